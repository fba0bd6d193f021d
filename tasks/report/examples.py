"""Responses that a page shows: before and after training, and token by token with what an update left out of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from tokenizers import Tokenizer

from tasks.formats import printable
from tasks.report.history import History
from tasks.store import Store
from tasks.store.layout import EXAMPLES_FILE
from tasks.store.records import Manifest
from tasks.store.tables import read_table, stream_table

_WANTED = {"turned right": 3, "stayed wrong": 1, "turned wrong": 1, "stayed right": 1}
"""Examples of each change; the last only where there is no other."""
_COLUMNS = ["prompt_id", "sample_index", "prompt", "answer", "response", "outcome", "response_tokens"]
_MOST_TOKENS, _BEFORE = 600, 200
"""Tokens of a long response that are shown, and those of them before its first trigger."""
_MARKS = ("trigger", "vetoed", "clipped", "rejected")
"""Columns that mark a token; the first two are the veto's."""
_TOKENIZER = "tokenizer.json"
Row = dict[str, Any]
Decode = Callable[[Sequence[int]], str]


class Example(NamedTuple):
    """A held-out problem with a response before and after training."""

    change: str
    before: Row
    after: Row


class Token(NamedTuple):
    """A token of a response, or a gap where some are not shown."""

    text: str
    kind: str
    """Marks, separated by spaces; ``gap`` for a gap."""
    words: str
    """The text that appears when a reader points at it."""


def pick_examples(history: History) -> list[Example]:
    """Return three problems that turned right, one that stayed wrong and one that turned wrong, as far as there are.

    They are the first of their sort in the order of the held-out problems, so nobody chose them.
    """
    first, last = history.evaluated[0], history.evaluated[-1]
    if first is last:
        return []
    return examples_of_change(*({one.benchmark: one.samples for one in policy.evaluations} for policy in (first, last)))


def examples_of_change(before: Mapping[str, Path], after: Mapping[str, Path]) -> list[Example]:
    """Return examples of two policies, whose samples are given by benchmark: the same problems in the same order."""
    found: dict[str, list[Example]] = {change: [] for change in _WANTED}
    for benchmark in (one for one in before if one in after):
        for old, new in zip(_first_samples(before[benchmark]), _first_samples(after[benchmark]), strict=False):
            was, now = (row["outcome"] == "correct" for row in (old, new))
            change = f"{'stayed' if was == now else 'turned'} {'right' if now else 'wrong'}"
            if old["prompt_id"] == new["prompt_id"] and len(found[change]) < _WANTED[change]:
                found[change].append(Example(change, old, new))
    kept = found.pop("stayed right")
    return [example for examples in found.values() for example in examples] or kept


def _first_samples(path: Path) -> Iterator[Row]:
    for table in stream_table(path, _COLUMNS):
        yield from table.filter(pc.equal(table["sample_index"], 0)).to_pylist()


def pick_groups(store: Store, history: History) -> list[list[Row]]:
    """Return a group of the first stage that noted some and one of the last such stage: its best and worst response.

    Each is of the last noted update that vetoed some of its tokens, or of the last noted update where none did. Beside
    the columns of the table a row has the text of the ``prompt``, and ``tokens``.

    Raises:
        ArtifactError: a file of a policy is missing or corrupted.
    """
    marks = _MARKS if history.vetoes else _MARKS[2:]
    noted = [one.policy for one in history.stages if {EXAMPLES_FILE, _TOKENIZER} <= one.policy.files.keys()]
    return [group for policy in noted[:1] + noted[1:][-1:] if (group := _group(store, policy, marks))]


def _group(store: Store, policy: Manifest, marks: Sequence[str]) -> list[Row]:
    rows = read_table(store.file(policy, EXAMPLES_FILE)).to_pylist()
    updates = [row["update"] for row in rows if any(row["vetoed"])] or [row["update"] for row in rows]
    tokenizer = Tokenizer.from_file(str(store.file(policy, _TOKENIZER)))

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    return [
        {**row, "prompt": decode(row["prompt_token_ids"]), "tokens": _tokens(row, decode, marks)}
        for row in rows
        if row["update"] == max(updates)
    ]


def _tokens(row: Row, decode: Decode, marks: Sequence[str]) -> list[Token]:
    """Return the tokens of a response; of a long one those around its first trigger."""
    tokens = []
    for place, text in enumerate(token_texts(row["response_token_ids"], decode)):
        mine = [mark for mark in marks if row[mark][place]]
        ratio, logp, before = row["ratio"][place], row["logp"][place], row["behavior_logp"][place]
        words = f"ratio {ratio:.4g}, log-probability {logp:.3f} after {before:.3f}"
        tokens.append(Token(text, " ".join(mine), ", ".join([words, *mine])))
    first = row["trigger"].index(True) if any(row["trigger"]) else 0
    start = max(0, min(first - _BEFORE, len(tokens) - _MOST_TOKENS))
    end = start + _MOST_TOKENS
    gaps = [[Token(f"[... {count} tokens ...]", "gap", "")] * (count > 0) for count in (start, len(tokens) - end)]
    return [*gaps[0], *tokens[start:end], *gaps[1]]


def token_texts(ids: Sequence[int], decode: Decode) -> list[str]:
    """Return the text that each token adds; a character of several tokens stands at the last of them.

    A token is decoded together with the piece before it, since tokenizers write a word's first token differently at the
    start of a text.
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
