"""Responses that a stage learned from, token by token, with what the update left out of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.artifacts import Store
from tasks.artifacts.records import Manifest
from tasks.artifacts.tables import read_table
from tasks.report.examples import shown
from tasks.report.history import History

FILE = "examples.parquet"
Decode = Callable[[Sequence[int]], str]
_WHOLE, _PART = 600, 180
"""A response of more tokens than the first shows so many of its start, around its first trigger and of its end."""
_MARKS = ("trigger", "vetoed", "clipped", "rejected")
"""Columns of the table that mark a token."""
_OF_VETO = ("trigger", "vetoed")
_NOT_TOKENIZER = (".parquet", ".safetensors", ".index.json")


@dataclass(frozen=True)
class Token:
    """A token of a response, or a gap where some are not shown."""

    text: str
    kind: str
    """Words of _MARKS, or none; ``gap`` of a gap."""
    words: str
    """What a reader is told who points at it."""


@dataclass(frozen=True)
class CloseUp:
    """A response."""

    name: str
    """best or worst."""
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


def pick_groups(store: Store, history: History) -> list[Group]:
    """A group of the first stage and one of the last, each of the last noted update that vetoed some of its tokens.

    Of the last noted update where none did. Nothing of policies that noted none.

    Raises:
        ArtifactError: a file of a policy is missing or corrupted.
    """
    marks = [mark for mark in _MARKS if history.vetoes or mark not in _OF_VETO]
    numbers = {stage.number: stage.policy for stage in history.stages if FILE in stage.policy.files}
    policies = [numbers[number] for number in sorted({min(numbers), max(numbers)})] if numbers else []
    return [group for policy in policies if (group := _group(store, policy, marks)) is not None]


def _group(store: Store, policy: Manifest, marks: Sequence[str]) -> Group | None:
    updates: dict[int, list[dict[str, Any]]] = {}
    for row in read_table(store.file(policy, FILE)).to_pylist():
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


def _close_up(name: str, row: dict[str, Any], decode: Decode, marks: Sequence[str]) -> CloseUp:
    texts = token_texts(row["response_token_ids"], decode)
    tokens = []
    for place, text in enumerate(texts):
        found = [mark for mark in marks if row[mark][place]]
        words = (
            f"ratio {row['ratio'][place]:.4g}, log-probability {row['logp'][place]:.3f} after "
            f"{row['behavior_logp'][place]:.3f}"
        )
        tokens.append(Token(text, " ".join(found), ", ".join([words, *found])))
    first = row["trigger"].index(True) if any(row["trigger"]) else len(tokens) // 2
    return CloseUp(name, row["reward"], row["advantage"], len(tokens), sum(row["vetoed"]), _shortened(tokens, first))


def _shortened(tokens: list[Token], first_trigger: int) -> list[Token]:
    if len(tokens) <= _WHOLE:
        return tokens
    around = max(0, first_trigger - _PART // 3)
    places = sorted({*range(_PART), *range(around, around + _PART), *range(len(tokens) - _PART, len(tokens))})
    found: list[Token] = []
    due = 0
    for place in [one for one in places if one < len(tokens)]:
        if place > due:
            found.append(Token(f"\n[... {place - due} tokens ...]\n", "gap", ""))
        found.append(tokens[place])
        due = place + 1
    return found


def token_texts(ids: Sequence[int], decode: Decode) -> list[str]:
    """The text that each token adds; a character of several tokens stands at the last of them.

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
    """What turns token ids of a policy into text; of its files only those of the tokenizer are read."""
    names = [name for name in policy.files if "/" not in name and not name.endswith(_NOT_TOKENIZER)]
    files = {name: store.file(policy, name) for name in names}
    if "tokenizer.json" in files:  # Without transformers, which takes seconds to load.
        from tokenizers import Tokenizer

        fast = Tokenizer.from_file(str(files["tokenizer.json"]))
        return lambda ids: str(fast.decode(list(ids), skip_special_tokens=False))
    from tasks.policy.loading import load_tokenizer

    slow = load_tokenizer(store.root / policy.ref.folder)
    return lambda ids: str(slow.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
