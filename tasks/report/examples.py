"""Responses that a page shows: before and after training, and token by token with what an update left out of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from tasks.artifacts import Store
from tasks.artifacts.records import Manifest
from tasks.artifacts.tables import read_table, stream_table
from tasks.report.history import History

_SHOWN_CHARACTERS = 1600
_MOST = 8
"""Most examples of a policy without another one to compare it with."""
_WANTED = {"turned right": 3, "stayed wrong": 1, "turned wrong": 1, "stayed right": 1}
"""Examples of each change; the last only where there is no other."""
_COLUMNS = ["prompt_id", "sample_index", "prompt", "answer", "response", "outcome", "response_tokens"]
NOTED = "examples.parquet"
"""Responses of a policy that noted what its updates did to their tokens."""
_WHOLE, _PART = 600, 180
"""A response of more tokens shows so many of its start, around its first trigger and of its end."""
_MARKS = ("trigger", "vetoed", "clipped", "rejected")
"""Columns of this table that mark a token; the first two are the veto's."""
_NOT_TOKENIZER = (".parquet", ".safetensors", ".index.json")
Row = dict[str, Any]
Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Response:
    """A sampled response and its verdict."""

    text: str
    outcome: str
    tokens: int

    @property
    def correct(self) -> bool:
        """Whether the verifier found its answer right."""
        return self.outcome == "correct"


@dataclass(frozen=True)
class Example:
    """A held-out problem with a response before and after training; only before when the run has no stage yet."""

    change: str
    prompt: str
    answer: str
    before: Response
    after: Response | None


@dataclass(frozen=True)
class Token:
    """A token of a response, or a gap where some are not shown."""

    text: str
    kind: str
    """Marks, separated by spaces; ``gap`` for a gap."""
    words: str
    """What a reader is told who points at it."""


@dataclass(frozen=True)
class CloseUp:
    """A response, token by token."""

    name: str
    """``best`` or ``worst``."""
    reward: float | None
    advantage: float
    length: int
    vetoed: int
    tokens: list[Token]


@dataclass(frozen=True)
class Group:
    """Responses to one prompt in one update."""

    stage: int
    update: int
    staleness: int
    prompt: str
    responses: list[CloseUp]


def shown(text: str) -> str:
    """Return a text without characters that a page cannot hold; a long one keeps its start and its end."""
    visible = "".join(chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t" else c for c in text)
    if len(visible) <= _SHOWN_CHARACTERS:
        return visible
    half = _SHOWN_CHARACTERS // 2
    return f"{visible[:half]}\n[... {len(visible) - 2 * half} characters ...]\n{visible[-half:]}"


def pick_examples(history: History) -> list[Example]:
    """Return three problems that turned right, one that stayed wrong and one that turned wrong, as far as there are.

    They are the first of their sort in the order of the held-out problems, so nobody chose them. Of a policy without
    another one to compare it with, two right responses and two wrong ones of every benchmark.
    """
    samples = [{one.benchmark: one.samples for one in policy.evaluations} for policy in history.evaluated]
    if len(samples) > 1:
        return compared(samples[0], samples[-1])
    found = []
    for path in samples[0].values():
        for change, right in (("right", True), ("wrong", False)):
            rows = (row for row in _first_samples(path) if (row["outcome"] == "correct") == right)
            found += [_example(change, row) for row in islice(rows, 2)]
    return found[:_MOST]


def compared(before: Mapping[str, Path], after: Mapping[str, Path]) -> list[Example]:
    """Return examples of two policies, whose samples are given by benchmark: the same problems in the same order."""
    found: dict[str, list[Example]] = {change: [] for change in _WANTED}
    for benchmark in (one for one in before if one in after):
        for old, new in zip(_first_samples(before[benchmark]), _first_samples(after[benchmark]), strict=False):
            was, now = (row["outcome"] == "correct" for row in (old, new))
            change = f"{'stayed' if was == now else 'turned'} {'right' if now else 'wrong'}"
            if old["prompt_id"] == new["prompt_id"] and len(found[change]) < _WANTED[change]:
                found[change].append(_example(change, old, new))
    kept = found.pop("stayed right")
    return [example for examples in found.values() for example in examples] or kept


def _example(change: str, before: Row, after: Row | None = None) -> Example:
    new = _response(after) if after else None
    return Example(change, shown(before["prompt"]), shown(before["answer"]), _response(before), new)


def _response(row: Row) -> Response:
    return Response(shown(row["response"]), row["outcome"], row["response_tokens"])


def _first_samples(path: Path) -> Iterator[Row]:
    """Yield the first sampled response to every problem."""
    for table in stream_table(path, _COLUMNS):
        yield from table.filter(pc.equal(table["sample_index"], 0)).to_pylist()


def pick_groups(store: Store, history: History) -> list[Group]:
    """Return a group of the first stage that noted some and one of the last such stage.

    Each is of the last noted update that vetoed some of its tokens, or of the last noted update where none did.

    Raises:
        ArtifactError: a file of a policy is missing or corrupted.
    """
    marks = _MARKS if history.vetoes else _MARKS[2:]
    noted = [stage.policy for stage in history.stages if NOTED in stage.policy.files]
    ends = noted[:1] + noted[1:][-1:]
    return [group for policy in ends if (group := _group(store, policy, marks)) is not None]


def _group(store: Store, policy: Manifest, marks: Sequence[str]) -> Group | None:
    updates: dict[int, list[Row]] = {}
    for row in read_table(store.file(policy, NOTED)).to_pylist():
        updates.setdefault(row["update"], []).append(row)
    if not updates:
        return None
    with_veto = [update for update, rows in updates.items() if any(any(row["vetoed"]) for row in rows)]
    rows = updates[max(with_veto or updates)]
    decode = decoder(store, policy)
    return Group(
        stage=rows[0]["stage"],
        update=rows[0]["update"],
        staleness=rows[0]["staleness"],
        prompt=shown(decode(rows[0]["prompt_token_ids"])),
        responses=[_close_up(name, row, decode, marks) for name, row in zip(("best", "worst"), rows, strict=False)],
    )


def _close_up(name: str, row: Row, decode: Decode, marks: Sequence[str]) -> CloseUp:
    tokens = []
    for place, text in enumerate(token_texts(row["response_token_ids"], decode)):
        found = [mark for mark in marks if row[mark][place]]
        ratio, logp, before = row["ratio"][place], row["logp"][place], row["behavior_logp"][place]
        words = f"ratio {ratio:.4g}, log-probability {logp:.3f} after {before:.3f}"
        tokens.append(Token(text, " ".join(found), ", ".join([words, *found])))
    first = row["trigger"].index(True) if any(row["trigger"]) else len(tokens) // 2
    return CloseUp(name, row["reward"], row["advantage"], len(tokens), sum(row["vetoed"]), _shortened(tokens, first))


def _shortened(tokens: list[Token], first_trigger: int) -> list[Token]:
    if len(tokens) <= _WHOLE:
        return tokens
    around, end = max(0, first_trigger - _PART // 3), len(tokens) - _PART
    places = {*range(_PART), *range(around, around + _PART), *range(end, len(tokens))}
    found: list[Token] = []
    due = 0
    for place in sorted(one for one in places if one < len(tokens)):
        if place > due:
            found.append(Token(f"\n[... {place - due} tokens ...]\n", "gap", ""))
        found.append(tokens[place])
        due = place + 1
    return found


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
        texts.append(shown(now[len(before) :]) if whole else "")
        if whole:
            start, done = done, end
    return texts


def decoder(store: Store, policy: Manifest) -> Decode:
    """Return a function from a policy's token ids to text; of the policy's files only its tokenizer is read."""
    names = [name for name in policy.files if "/" not in name and not name.endswith(_NOT_TOKENIZER)]
    files = {name: store.file(policy, name) for name in names}
    if "tokenizer.json" in files:  # Without transformers, which takes seconds to load.
        from tokenizers import Tokenizer

        fast = Tokenizer.from_file(str(files["tokenizer.json"]))
        return lambda ids: str(fast.decode(list(ids), skip_special_tokens=False))
    from tasks.policy.loading import load_tokenizer

    slow = load_tokenizer(store.root / policy.ref.folder)
    return lambda ids: str(slow.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
