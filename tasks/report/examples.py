"""Example responses of a page: before and after training, and with the tokens that an update vetoed or clipped."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from tokenizers import Tokenizer

from tasks.formats import printable
from tasks.report.history import History, Stage
from tasks.store import Store
from tasks.store.layout import EXAMPLES_FILE, SAMPLES_FILE
from tasks.store.records import Manifest
from tasks.store.tables import read_table, stream_table

_WANTED = {"turned right": 3, "stayed wrong": 1, "turned wrong": 1, "stayed right": 1}
"""Largest number of examples of each change. ``stayed right`` is shown only if there is no other example."""
_COLUMNS = ["prompt_id", "sample_index", "prompt", "answer", "response", "outcome", "response_tokens"]
_MOST_TOKENS, _BEFORE = 600, 200
"""Largest number of tokens shown of a response, and how many of them come before its first trigger."""
_MARKS = ("trigger", "vetoed", "clipped", "rejected")
"""Columns that mark a token; the first two belong to the veto."""
TOKENIZER = "tokenizer.json"
Row = dict[str, Any]
Decode = Callable[[Sequence[int]], str]


class Example(NamedTuple):
    """A held-out problem with a response before and one after training."""

    change: str
    before: Row
    after: Row


class Token(NamedTuple):
    """A token of a response, or a gap that stands for the tokens left out."""

    text: str
    kind: str
    """Marks, separated by spaces; ``gap`` for a gap."""
    tooltip: str


def pick_examples(store: Store, history: History) -> list[Example]:
    """Return examples of the base policy and the last policy: at most as many of each change as ``_WANTED`` says.

    The first problems of each change are taken, so that no example is cherry-picked.
    """
    first, last = history.evaluated[0], history.evaluated[-1]
    if first is last:
        return []
    samples = (
        [store.file(history.manifests[one.evaluation], SAMPLES_FILE) for one in policy.evaluations]
        for policy in (first, last)
    )
    return examples_of_change(*samples)


def examples_of_change(before: Sequence[Path], after: Sequence[Path]) -> list[Example]:
    """Return examples from the samples of two policies, a file per benchmark, with the same problems in one order."""
    examples: dict[str, list[Example]] = {change: [] for change in _WANTED}
    for files in zip(before, after, strict=True):
        for old, new in zip(*map(_first_samples, files), strict=True):
            old_correct, new_correct = (row["outcome"] == "correct" for row in (old, new))
            change = f"{'stayed' if old_correct == new_correct else 'turned'} {'right' if new_correct else 'wrong'}"
            if len(examples[change]) < _WANTED[change]:
                examples[change].append(Example(change, old, new))
    stayed_right = examples.pop("stayed right")
    return [example for some in examples.values() for example in some] or stayed_right


def _first_samples(path: Path) -> Iterator[Row]:
    for table in stream_table(path, _COLUMNS):
        yield from table.filter(pc.equal(table["sample_index"], 0)).to_pylist()


def pick_groups(store: Store, history: History) -> list[list[Row]]:
    """Return the best and the worst response of one group of the first and of the last stage with stored examples.

    The group is that of the stage's last stored update that vetoed a token, or of its last stored update if none did.
    A response is a row of the table, with the text of its ``prompt`` and its ``tokens``.

    Raises:
        ArtifactError: a file of a policy is missing or corrupted.
    """
    stages = [one for one in history.stages if {EXAMPLES_FILE, TOKENIZER} <= one.policy.files.keys()]
    return [group for stage in stages[:1] + stages[1:][-1:] if (group := _group(store, stage))]


def _group(store: Store, stage: Stage) -> list[Row]:
    policy, marks = stage.policy, _MARKS if stage.veto else _MARKS[2:]
    rows = read_table(store.file(policy, EXAMPLES_FILE)).to_pylist()
    updates = [row["update"] for row in rows if any(row["vetoed"])] or [row["update"] for row in rows]
    decode = decoder(store, policy)
    return [
        {**row, "prompt": decode(row["prompt_token_ids"]), "tokens": _tokens(row, decode, marks)}
        for row in rows
        if row["update"] == max(updates)
    ]


def decoder(store: Store, policy: Manifest) -> Decode:
    """Return a function from token ids to their text, with special tokens, by the tokenizer of a policy."""
    tokenizer = Tokenizer.from_file(str(store.file(policy, TOKENIZER)))
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


def _tokens(row: Row, decode: Decode, marks: Sequence[str]) -> list[Token]:
    """Return the tokens of a response; of a long response, only those around its first trigger."""
    tokens = []
    for index, text in enumerate(token_texts(row["response_token_ids"], decode)):
        kinds = [mark for mark in marks if row[mark][index]]
        ratio, logp, before = row["ratio"][index], row["logp"][index], row["behavior_logp"][index]
        numbers = f"ratio {ratio:.4g}, log-probability {logp:.3f} after {before:.3f}"
        tokens.append(Token(text, " ".join(kinds), ", ".join([numbers, *kinds])))
    first = row["trigger"].index(True) if any(row["trigger"]) else 0
    start = max(0, min(first - _BEFORE, len(tokens) - _MOST_TOKENS))
    end = start + _MOST_TOKENS
    gaps = [[Token(f"[... {count} tokens ...]", "gap", "")] * (count > 0) for count in (start, len(tokens) - end)]
    return [*gaps[0], *tokens[start:end], *gaps[1]]


def token_texts(ids: Sequence[int], decode: Decode) -> list[str]:
    """Return the text that each token adds. A character that spans several tokens belongs to the last of them.

    A token is decoded together with the tokens before it, because tokenizers decode the first token of a word
    differently at the start of a text.
    """
    texts: list[str] = []
    start = done = 0
    for end in range(1, len(ids) + 1):
        before, now = decode(ids[start:done]), decode(ids[start:end])
        whole = not now.endswith("�") or end == len(ids)
        texts.append(printable(now[len(before) :]) if whole else "")
        if whole:
            start, done = done, end
    return texts
