"""The short summary of a run that the terminal ends with, and that runs are compared by."""

import shlex
import time

from pydantic import ConfigDict, Field
from rich import box
from rich.table import Table

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.provenance import execution, waits
from tasks.flyte.model import FlyteModel
from tasks.report.evaluated import Estimate, EvaluatedPolicy, Evaluation, headline
from tasks.report.formats import duration, label, number, percent, percent_range
from tasks.report.history import History, lineage
from tasks.report.ledger import Ledger, covered, training_seconds
from tasks.report.tables import COLUMNS, render

PAGE, SUMMARY = "report.html", "summary.json"
"""Of a report's artifact."""
_ROWS = 12
"""A longer table is shown without its middle."""


class BenchmarkRow(FlyteModel):
    """A policy on a benchmark."""

    model_config = ConfigDict(frozen=True)

    name: str
    digest: str = ""
    """Of the artifact that holds its problems."""
    problems: int
    samples_per_problem: int
    """k of avg@k."""
    accuracy: float
    low: float
    high: float
    pass_at: float | None
    """pass@k."""
    majority: float | None
    """maj@k."""
    response_tokens: float | None
    truncated: float | None


class SummaryRow(FlyteModel):
    """An evaluated policy. Accuracies and shares are fractions; over several benchmarks they are means."""

    model_config = ConfigDict(frozen=True)

    label: str
    updates: int
    accuracy: float
    low: float
    """Of the accuracy's 95 % interval, as is ``high``."""
    high: float
    greedy: float | None
    working: float | None
    response_tokens: float | None
    benchmarks: list[BenchmarkRow] = Field(default_factory=list)


class Execution(FlyteModel):
    """What one execution of the workflow did for a run; an earlier one may have done the rest."""

    model_config = ConfigDict(frozen=True)

    artifacts: int
    """That the run consists of."""
    made: int
    """Those of them that this execution made."""
    seconds: float
    """From the start of its first process."""
    waited: float = 0.0
    """Those of them in which it only waited for another execution that did the same work."""

    def __str__(self) -> str:
        cached = self.artifacts - self.made
        waited = f", {duration(self.waited)} of it waiting for another run" if self.waited else ""
        made = f"{self.made} artifact{'' if self.made == 1 else 's'} made"
        return f"{made}, {cached} from the cache, in {duration(self.seconds)}{waited}"


class RunSummary(FlyteModel):
    """What a run found and what it took. ``str()`` of it is a table for the terminal."""

    model_config = ConfigDict(frozen=True)

    algorithm: str
    updates_per_rollout: int
    """0 before the first stage."""
    seed: int
    base_policy: str = ""
    """Digest of the policy that it began with."""
    problems: int
    """Of all benchmarks."""
    samples_per_problem: int
    """k of avg@k; 0 where benchmarks differ in it."""
    rows: list[SummaryRow]
    ledger: dict[str, float]
    """Seconds by row; they add up to the process-seconds of the run."""
    gpu_seconds: dict[str, float] = Field(default_factory=dict)
    """By row; empty where no process saw a GPU."""
    wall_clock: float
    """Seconds; less than the sum of the ledger when steps ran side by side."""
    execution: Execution | None = None
    """The one that this summary ends."""
    report: str = ""
    """Path of the page."""
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
            render(self._table()),
            *([render(self._by_benchmark())] if len(self.rows[-1].benchmarks) > 1 else []),
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
        """What the accuracy is."""
        return headline(self.samples_per_problem, len(self.rows[-1].benchmarks))

    def _by_benchmark(self) -> Table:
        """Accuracies of the policies, a column per benchmark."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column("policy")
        names = [one.name for one in self.rows[-1].benchmarks]
        for one in self.rows[-1].benchmarks:
            table.add_column(f"{one.name}\navg@{one.samples_per_problem}", justify="right")
        for row in _short(self.rows):
            found = {} if row is None else {one.name: percent(one.accuracy) for one in row.benchmarks}
            table.add_row("..." if row is None else row.label, *(found.get(name, "") for name in names))
        return table

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column("policy")
        for heading in ("updates", self.headline, "95 %", "greedy", "working", "tokens"):
            table.add_column(heading, justify="right")
        for row in _short(self.rows):
            if row is None:
                table.add_row("...")
                continue
            table.add_row(
                row.label,
                str(row.updates),
                percent(row.accuracy),
                percent_range(row.low, row.high),
                percent(row.greedy),
                percent(row.working),
                number(row.response_tokens),
            )
        return table

    def _times(self) -> str:
        parts = [f"{label(row)} {duration(seconds)}" for row, seconds in self.ledger.items() if seconds >= 0.05]
        parts.append(f"training {duration(training_seconds(self.ledger))} of {duration(sum(self.ledger.values()))}")
        if self.gpu_seconds:
            parts.append(f"{sum(self.gpu_seconds.values()) / 3600:,.2f} GPU-hours")
        lines, line = [], "time    "
        for part in parts:
            if len(line) + len(part) > COLUMNS - 2:
                lines.append(line.rstrip())
                line = " " * 8
            line += part + (", " if part is not parts[-1] else "")
        return "\n".join([*lines, line])


def _short(rows: list[SummaryRow]) -> list[SummaryRow | None]:
    if len(rows) <= _ROWS:
        return list(rows)
    return [*rows[:2], None, *rows[-(_ROWS - 3) :]]


def make_summary(history: History, ledger: Ledger) -> RunSummary:
    """The summary of a run, without paths and commands."""
    return RunSummary(
        algorithm=history.algorithm,
        updates_per_rollout=history.updates_per_rollout,
        seed=history.seed,
        base_policy=history.evaluated[0].policy.digest,
        problems=history.evaluated[-1].problems,
        samples_per_problem=history.evaluated[-1].samples_per_problem,
        rows=[summary_row(policy) for policy in history.evaluated],
        ledger=ledger.seconds,
        gpu_seconds=ledger.gpu_seconds,
        wall_clock=ledger.wall_clock,
    )


def summary_row(policy: EvaluatedPolicy) -> SummaryRow:
    """An evaluated policy as a row."""
    return SummaryRow(
        label=policy.label,
        updates=policy.updates,
        accuracy=policy.accuracy.value,
        low=policy.accuracy.low,
        high=policy.accuracy.high,
        greedy=_value(policy.greedy),
        working=_value(policy.working),
        response_tokens=policy.response_tokens,
        benchmarks=[_benchmark_row(one) for one in policy.evaluations],
    )


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _benchmark_row(evaluation: Evaluation) -> BenchmarkRow:
    k = evaluation.samples_per_problem
    return BenchmarkRow(
        name=evaluation.benchmark,
        digest=evaluation.prompts.digest if evaluation.prompts else "",
        problems=evaluation.problems,
        samples_per_problem=k,
        accuracy=evaluation.accuracy.value,
        low=evaluation.accuracy.low,
        high=evaluation.accuracy.high,
        pass_at=_value(evaluation.pass_at.get(k)),
        majority=_value(evaluation.majority),
        response_tokens=evaluation.response_tokens,
        truncated=evaluation.truncated,
    )


def summarise(store: Store, report: ArtifactRef, next_commands: list[str]) -> RunSummary:
    """The summary of a written report, with the path of its page and what to do next.

    Raises:
        ArtifactError: the report is missing or corrupted.
    """
    folder = store.path(report)
    summary = RunSummary.model_validate_json((folder / SUMMARY).read_text(encoding="utf-8"))
    return summary.model_copy(update={"report": str(folder / PAGE), "next_commands": list(next_commands)})


def execution_since(store: Store, report: ArtifactRef, started: float) -> Execution:
    """What this execution made for a run since a moment, in Unix seconds, and how long that took until now."""
    manifests = lineage(store, [report]).values()
    own = [one.timings for one in manifests if one.timings.execution == execution() and one.timings.started >= started]
    waited = covered(wait for wait in [*waits(), *(wait for one in own for wait in one.waited)] if wait[0] >= started)
    return Execution(artifacts=len(manifests), made=len(own), seconds=time.time() - started, waited=waited)
