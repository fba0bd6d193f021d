"""Responses of the base policy beside those of the final one, on the same held-out problems."""

from collections.abc import Collection, Iterator, Mapping, Sequence
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
_COLUMNS = ["prompt_id", "prompt", "answer", "response", "outcome", "response_tokens"]
Row = dict[str, Any]
Problem = tuple[str, str]
"""Benchmark and prompt_id."""


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
    """The examples of two policies, whose samples are given by benchmark."""
    right_before, right_after = _right(before), _right(after)
    wanted = [("turned right", 3), ("stayed wrong", 1), ("turned wrong", 1), ("stayed right", 1)]
    chosen: dict[Problem, str] = {}
    for change, count in wanted:
        found = (
            name
            for name, right in right_before.items()
            if name in right_after and _change(right, right_after[name]) == change
        )
        if change != "stayed right" or not chosen:
            chosen |= dict.fromkeys(islice(found, count), change)
    rows_before, rows_after = _rows_of(before, chosen), _rows_of(after, chosen)
    return [_example(change, rows_before[name], rows_after[name]) for name, change in chosen.items()]


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


def _change(before: bool, after: bool) -> str:
    return f"{'stayed' if before == after else 'turned'} {'right' if after else 'wrong'}"


def _right(samples: Mapping[str, Path]) -> dict[Problem, bool]:
    """Whether the first sampled response to a problem is right, by benchmark and problem."""
    return {
        (benchmark, row["prompt_id"]): row["outcome"] == "correct"
        for benchmark, path in samples.items()
        for row in _first_samples(path, ["prompt_id", "outcome"])
    }


def _rows_of(samples: Mapping[str, Path], chosen: Collection[Problem]) -> dict[Problem, Row]:
    """First sampled responses to the chosen problems."""
    return {
        (benchmark, row["prompt_id"]): row
        for benchmark, path in samples.items()
        for row in _first_samples(path)
        if (benchmark, row["prompt_id"]) in chosen
    }


def _first_samples(path: Path, columns: Sequence[str] = _COLUMNS) -> Iterator[Row]:
    """The first sampled response to every problem."""
    for table in stream_table(path, ["sample_index", *columns]):
        yield from table.filter(pc.equal(table["sample_index"], 0)).to_pylist()


def shown(text: str) -> str:
    """A text without characters that a page cannot hold; a long one keeps its start and its end."""
    visible = "".join(chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t" else c for c in text)
    if len(visible) <= _SHOWN_CHARACTERS:
        return visible
    half = _SHOWN_CHARACTERS // 2
    return f"{visible[:half]}\n[... {len(visible) - 2 * half} characters ...]\n{visible[-half:]}"
