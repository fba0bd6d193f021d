"""Benchmarks: sets of problems that policies are evaluated on, and those that are known by name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, model_validator

from tasks.settings.base import Day, Number, Settings
from tasks.settings.sources import SourceSettings
from tasks.settings.verify import VerifyKind

HELD_OUT = "held_out"
"""The benchmark that is the held-out part of the run's own prompts."""


@dataclass(frozen=True)
class Benchmark:
    """A row: what differs from BenchmarkSettings' defaults."""

    row: dict[str, Any]
    stated: str
    """Statement of the paper about it."""
    chosen: str = ""
    """Choices that were made here."""


DATA_SETS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("data_sets.yaml").read_text(encoding="utf-8"))
"""Data sets that are known by name."""


def _benchmark(stated: str, chosen: str = "", **row: Any) -> Benchmark:
    return Benchmark(row, stated, chosen)


BENCHMARKS = {name: _benchmark(**fields) for name, fields in DATA_SETS["benchmarks"].items()}
"""Known benchmarks."""
PAPER = ("amc23", "amc24", "aime24", "aime25", "math500")
"""The five whose mean is the paper's headline."""


class BenchmarkSettings(Settings):
    """Problems that policies are evaluated on. What is not given is that of the run's ``evaluate`` and ``prompts``.

    A name of ``BENCHMARKS`` alone stands for its row; fields that are given beside it take the place of the row's.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")
    """Name in tables, figures, trackers and artifacts."""
    source: SourceSettings | None = None
    """Rows of a benchmark of your own. A source takes the place of a known benchmark's as a whole."""
    answer_type: VerifyKind | None = None
    """Kind of judging, as in ``verify.kind``; the run's own without it."""
    problems: int | None = Field(None, ge=1)
    """Number of problems, the first ones; all of them without it."""
    samples_per_problem: int | None = Field(None, ge=1)
    """k of avg@k."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Longest response to a problem, in tokens."""
    temperature: Number | None = Field(None, gt=0)
    """Sampling temperature on this benchmark."""
    greedy: bool = False
    """One greedy response to every problem besides."""
    template: str | None = None
    """The text that the policy continues; ``{prompt}`` stands for the problem."""
    chat: bool | None = None
    """Put the text into the tokenizer's chat template as a user's message."""
    date: Day | None = None
    """The day that a chat template takes for today."""
    max_unreadable_share: Number = Field(0.1, ge=0, le=1)
    """More gold answers that the verifier cannot read are an error. Up to it they are counted and listed, and count as
    not solved."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_row(cls, values: Any) -> Any:
        if isinstance(values, str):
            values = {"name": values}
        if not isinstance(values, dict) or values.get("name") not in BENCHMARKS:
            return values
        row = BENCHMARKS[values["name"]].row
        if values.get("source"):
            # Of another source neither the fields nor the number of problems are known.
            row = {key: value for key, value in row.items() if key not in ("source", "problems")}
        return cls.merge(row, {key: value for key, value in values.items() if key != "source" or value})

    @model_validator(mode="after")
    def _has_problems(self) -> "BenchmarkSettings":
        if self.source is None and self.name != HELD_OUT:
            raise ValueError(
                f"name {self.name!r} without source: no benchmark is known by this name; known: "
                f"{', '.join(BENCHMARKS)}. Give a source with hub, path or arithmetic"
            )
        if self.template is not None and "{prompt}" not in self.template:
            raise ValueError(f"template {self.template!r} must contain {{prompt}}")
        return self
