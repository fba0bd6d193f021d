"""Responses of the base policy beside those of the final one, on the same held-out problems."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from tasks.artifacts.tables import stream_table
from tasks.report.history import History

_SHOWN_CHARACTERS = 1600
_MOST = 8
"""Examples of a policy without another one to compare it with."""
_WANTED = {"turned right": 3, "stayed wrong": 1, "turned wrong": 1, "stayed right": 1}
"""Examples of each change; the last only where there is no other."""
_COLUMNS = ["prompt_id", "sample_index", "prompt", "answer", "response", "outcome", "response_tokens"]
Row = dict[str, Any]


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


def pick_examples(history: History) -> list[Example]:
    """Three problems that turned right, one that stayed wrong and one that turned wrong, as far as there are.

    They are the first of their sort in the order of the held-out problems, so nobody chose them.
    """
    if len(history.evaluated) == 1:
        return [example for one in history.evaluated[0].evaluations for example in examples_of(one.samples)][:_MOST]
    policies = history.evaluated[0], history.evaluated[-1]
    return compared(*({one.benchmark: one.samples for one in policy.evaluations} for policy in policies))


def compared(before: Mapping[str, Path], after: Mapping[str, Path]) -> list[Example]:
    """The examples of two policies, whose samples are given by benchmark: the same problems in the same order."""
    found: dict[str, list[Example]] = {change: [] for change in _WANTED}
    for benchmark in (one for one in before if one in after):
        for old, new in zip(_first_samples(before[benchmark]), _first_samples(after[benchmark]), strict=False):
            change = _change(old, new)
            if old["prompt_id"] == new["prompt_id"] and len(found[change]) < _WANTED[change]:
                found[change].append(_example(change, old, new))
    kept = found.pop("stayed right")
    return [example for examples in found.values() for example in examples] or kept


def examples_of(samples: Path) -> list[Example]:
    """Of one evaluation: two right responses and two wrong ones, as far as there are; the first of their sort."""
    return [
        _example(change, row)
        for change, right in (("right", True), ("wrong", False))
        for row in islice((row for row in _first_samples(samples) if (row["outcome"] == "correct") == right), 2)
    ]


def _example(change: str, before: Row, after: Row | None = None) -> Example:
    responses = [
        Response(shown(row["response"]), row["outcome"], row["response_tokens"]) for row in (before, after) if row
    ]
    return Example(change, shown(before["prompt"]), shown(before["answer"]), responses[0], (*responses[1:], None)[0])


def _change(before: Row, after: Row) -> str:
    was, now = (row["outcome"] == "correct" for row in (before, after))
    return f"{'stayed' if was == now else 'turned'} {'right' if now else 'wrong'}"


def _first_samples(path: Path) -> Iterator[Row]:
    """The first sampled response to every problem."""
    for table in stream_table(path, _COLUMNS):
        yield from table.filter(pc.equal(table["sample_index"], 0)).to_pylist()


def shown(text: str) -> str:
    """A text without characters that a page cannot hold; a long one keeps its start and its end."""
    visible = "".join(chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t" else c for c in text)
    if len(visible) <= _SHOWN_CHARACTERS:
        return visible
    half = _SHOWN_CHARACTERS // 2
    return f"{visible[:half]}\n[... {len(visible) - 2 * half} characters ...]\n{visible[-half:]}"
