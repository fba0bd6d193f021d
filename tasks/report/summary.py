"""The short summary of a run: the terminal shows it at the end, and runs are compared by it."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

from pydantic import ConfigDict, Field

from tasks.formats import duration, label, number, percent, percent_range
from tasks.process.provenance import execution, waits
from tasks.report.history import EvaluatedPolicy, History, Result, headline
from tasks.report.ledger import Ledger, training_seconds, union_seconds
from tasks.report.tables import COLUMNS, text_table
from tasks.settings.base import FlyteModel
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PAGE_FILE, SUMMARY_FILE
from tasks.store.lineage import ancestry

_ROWS = 12
"""Most rows of a table; a longer one is shown without its middle."""


class _Record(FlyteModel):
    model_config = ConfigDict(frozen=True)


class _Row(_Record):
    """Numbers of a policy. Accuracies and shares are fractions."""

    accuracy: float
    """avg@k; over several benchmarks its mean, as are the others."""
    low: float
    """Lower end of the 95 % interval of the accuracy."""
    high: float
    response_tokens: float | None


class BenchmarkRow(_Row):
    """A policy on a benchmark."""

    name: str
    digest: str = ""
    problems: int
    samples_per_problem: int
    pass_at: float | None
    majority: float | None
    truncated: float | None


class SummaryRow(_Row):
    """An evaluated policy."""

    label: str
    updates: int
    greedy: float | None
    working: float | None
    benchmarks: list[BenchmarkRow] = Field(default_factory=list)


class Execution(_Record):
    """The part of a run that one execution of the workflow made; an earlier one may have made the rest."""

    artifacts: int
    """The number of artifacts that the run consists of."""
    made: int
    """The number of them that this execution made."""
    seconds: float
    """Seconds from the start of its first process."""
    waited: float = 0.0
    """Seconds of these in which it only waited for another execution that did the same work."""

    def __str__(self) -> str:
        cached = self.artifacts - self.made
        waited = f", {duration(self.waited)} of it waiting for another run" if self.waited else ""
        made = f"{self.made} artifact{'' if self.made == 1 else 's'} made"
        return f"{made}, {cached} from the cache, in {duration(self.seconds)}{waited}"


class RunSummary(_Record):
    """The accuracies and the times of a run. ``str()`` of it is a table for the terminal."""

    algorithm: str
    updates_per_rollout: int
    """0 before the first stage."""
    seed: int
    base_policy: str = ""
    problems: int
    """The number of problems of all benchmarks."""
    samples_per_problem: int
    """k of avg@k; 0 where benchmarks differ in it."""
    rows: list[SummaryRow]
    ledger: dict[str, float]
    """Seconds by row; they add up to the process-seconds of the run."""
    gpu_seconds: dict[str, float] = Field(default_factory=dict)
    """GPU-seconds by row; empty where no process saw a GPU."""
    wall_clock: float
    """Seconds; less than the sum of the ledger when steps ran side by side."""
    execution: Execution | None = None
    """The execution that ends with this summary."""
    report: str = ""
    next_commands: list[str] = Field(default_factory=list)

    @property
    def name(self) -> str:
        """``mu_grpo, mu 32``."""
        return f"{self.algorithm}, mu {self.updates_per_rollout}" if self.updates_per_rollout else self.algorithm

    def __str__(self) -> str:
        last = self.rows[-1]
        taken = f"in {duration(self.wall_clock)}"
        if self.execution and self.execution.made < self.execution.artifacts:
            taken = f"{taken} with what other executions made"
        lines = [
            f"{self.name}, seed {self.seed}: {last.updates} updates {taken}",
            self._table(),
            *([self._by_benchmark()] if len(self.rows[-1].benchmarks) > 1 else []),
            self._times(),
        ]
        if self.execution:
            lines.append(f"now     {self.execution}")
        lines.append("")
        if self.report:
            lines.append(f"report  {shlex.quote(self.report)}")
        # Not wrapped: a path or a command that is broken in two cannot be copied.
        lines += [f"{'next' if place == 0 else '':<8}{command}" for place, command in enumerate(self.next_commands)]
        return "\n".join(lines).rstrip()

    @property
    def headline(self) -> str:
        """The name of the accuracy."""
        return headline(self.samples_per_problem, len(self.rows[-1].benchmarks))

    def _table(self) -> str:
        headings = ["policy", "updates", self.headline, "95 %", "greedy", "working", "tokens"]
        rows = [
            [
                *(row.label, str(row.updates), percent(row.accuracy), percent_range(row.low, row.high)),
                *(percent(row.greedy), percent(row.working), number(row.response_tokens)),
            ]
            for row in self.rows
        ]
        return _table(headings, rows)

    def _by_benchmark(self) -> str:
        last = self.rows[-1].benchmarks
        found = [{one.name: percent(one.accuracy) for one in row.benchmarks} for row in self.rows]
        headings = ["policy", *(f"{one.name}\navg@{one.samples_per_problem}" for one in last)]
        cells = [[each.get(one.name, "") for one in last] for each in found]
        return _table(headings, [[row.label, *some] for row, some in zip(self.rows, cells, strict=True)])

    def _times(self) -> str:
        parts = [f"{label(row)} {duration(seconds)}" for row, seconds in self.ledger.items() if seconds >= 0.05]
        parts.append(f"training {duration(training_seconds(self.ledger))} of {duration(sum(self.ledger.values()))}")
        if self.gpu_seconds:
            parts.append(f"{sum(self.gpu_seconds.values()) / 3600:,.2f} GPU-hours")
        # A part is not broken in two.
        text = ", ".join(part.replace(" ", "\xa0") for part in parts)
        wrapped = fill(text, COLUMNS - 1, initial_indent="time    ", subsequent_indent=" " * 8, break_long_words=False)
        return wrapped.replace("\xa0", " ")


def _table(headings: Sequence[str], rows: list[list[str]]) -> str:
    """Return a table of policies; one of many rows is shown without its middle."""
    dots = ["..."] + [""] * (len(headings) - 1)
    return text_table(headings, rows if len(rows) <= _ROWS else [*rows[:2], dots, *rows[-(_ROWS - 3) :]])


def make_summary(history: History, ledger: Ledger) -> RunSummary:
    """Return the summary of a run, without paths and commands."""
    return RunSummary(
        algorithm=history.algorithm,
        updates_per_rollout=history.updates_per_rollout,
        seed=history.seed,
        base_policy=history.evaluated[0].policy.digest,
        problems=history.problems,
        samples_per_problem=history.evaluated[-1].samples_per_problem,
        rows=[summary_row(policy) for policy in history.evaluated],
        ledger=ledger.seconds,
        gpu_seconds=ledger.gpu_seconds,
        wall_clock=ledger.wall_clock,
    )


def summary_row(policy: EvaluatedPolicy) -> SummaryRow:
    """Return an evaluated policy as a row."""
    benchmarks = [
        BenchmarkRow(name=one.benchmark, digest=one.prompts.digest if one.prompts else "", **_numbers(one))
        for one in policy.evaluations
    ]
    return SummaryRow(label=policy.label, updates=policy.updates, benchmarks=benchmarks, **_numbers(policy))


def _numbers(result: Result) -> dict[str, Any]:
    shares = {
        "greedy": result.greedy,
        "working": result.working,
        "majority": result.majority,
        "pass_at": result.pass_at.get(result.samples_per_problem),
    }
    plain = result.model_dump(include={"problems", "samples_per_problem", "response_tokens", "truncated"})
    values = {name: share and share.value for name, share in shares.items()}
    return {**plain, **values, **asdict(result.accuracy), "accuracy": result.accuracy.value}


def summarise(store: Store, report: ArtifactRef, next_commands: list[str]) -> RunSummary:
    """Return the summary of a written report, with the path of its page and what to do next.

    Raises:
        ArtifactError: the report is missing or corrupted.
    """
    folder = store.path(report)
    summary = RunSummary.model_validate_json((folder / SUMMARY_FILE).read_text(encoding="utf-8"))
    return summary.model_copy(update={"report": str(folder / PAGE_FILE), "next_commands": list(next_commands)})


def execution_since(store: Store, report: ArtifactRef, started: float) -> Execution:
    """Return what this execution made for a run since a moment, in Unix seconds, and how long that took."""
    manifests = ancestry(store, [report]).manifests.values()
    own = [one.timings for one in manifests if one.timings.execution == execution() and one.timings.started >= started]
    known = [*waits(), *(wait for one in own for wait in one.waited)]
    waited = union_seconds(wait for wait in known if wait[0] >= started)
    return Execution(artifacts=len(manifests), made=len(own), seconds=time.time() - started, waited=waited)
