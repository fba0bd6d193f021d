"""The short summary of a run, for the terminal and for comparisons of runs."""

import shlex
import time
from textwrap import fill

from pydantic import Field, ValidationError

from tasks.formats import duration, label, number, percent_range, share
from tasks.process.provenance import execution, waits
from tasks.report.history import EvaluatedPolicy, History, load_finished
from tasks.report.ledger import Ledger, make_ledger, union_seconds
from tasks.report.tables import COLUMNS, text_table
from tasks.settings.base import FlyteModel
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PAGE_FILE, SUMMARY_FILE
from tasks.store.lineage import ancestry


class Execution(FlyteModel):
    """The work of one execution of the workflow for a run. The other artifacts are those of other executions."""

    artifacts: int
    """Number of artifacts of the run."""
    made: int
    """Number of new artifacts; an execution that makes an artifact again keeps the one that is there."""
    seconds: float
    """Seconds since the start of the first process of the execution."""
    waited: float = 0.0
    """Seconds in which the execution only waited for another execution with the same work."""

    def __str__(self) -> str:
        waited = f", {duration(self.waited)} of it waiting for another run" if self.waited else ""
        return f"{self.artifacts} artifacts, {self.made} of them new, in {duration(self.seconds)}{waited}"


class RunSummary(FlyteModel):
    """The accuracies and times of a run. ``str()`` returns a table for the terminal."""

    algorithm: str
    updates_per_rollout: int
    """mu; 0 before the first stage."""
    seed: int
    evaluated: list[EvaluatedPolicy]
    """Evaluated policies, in the order of updates."""
    ledger: dict[str, float]
    """Seconds by row; their sum is the process-seconds of the run."""
    gpu_seconds: dict[str, float] = Field(default_factory=dict)
    """GPU-seconds by row; empty if no process saw a GPU."""
    wall_clock: float
    """Seconds; less than the sum of the ledger if steps ran in parallel."""
    training: float
    """Seconds of wall-clock of generation, verification and optimization."""
    execution: Execution | None = None
    """The execution that printed this summary."""
    report: str = ""
    next_commands: list[str] = Field(default_factory=list)

    @property
    def name(self) -> str:
        """The algorithm with mu, such as ``mu_grpo, mu 32``."""
        return f"{self.algorithm}, mu {self.updates_per_rollout}" if self.updates_per_rollout else self.algorithm

    @property
    def base_policy(self) -> ArtifactRef:
        """The policy that the run started from."""
        return self.evaluated[0].policy

    @property
    def last(self) -> EvaluatedPolicy:
        """The last policy of the run."""
        return self.evaluated[-1]

    def __str__(self) -> str:
        time_taken = f"in {duration(self.wall_clock)}"
        if self.execution and self.execution.made < self.execution.artifacts:
            time_taken = f"{time_taken} with what other executions made"
        lines = [
            f"{self.name}, seed {self.seed}: {self.last.updates} updates {time_taken}",
            self._table(),
            *([self._by_benchmark()] if len(self.last.evaluations) > 1 else []),
            self._times(),
        ]
        if self.execution:
            lines.append(f"now     {self.execution}")
        lines.append("")
        if self.report:
            lines.append(f"report  {shlex.quote(self.report)}")
        # Paths and commands are not wrapped, so that they can be copied.
        lines += [f"{'next' if index == 0 else '':<8}{command}" for index, command in enumerate(self.next_commands)]
        return "\n".join(lines).rstrip()

    def _table(self) -> str:
        headings = ["policy", "updates", self.last.headline, "95 %", "greedy", "working", "tokens"]
        rows = [
            [
                one.label,
                str(one.updates),
                share(one.accuracy),
                percent_range(one.accuracy.low, one.accuracy.high),
                share(one.greedy),
                share(one.working),
                number(one.response_tokens),
            ]
            for one in self.evaluated
        ]
        return text_table(headings, rows)

    def _by_benchmark(self) -> str:
        names = (f"{one.benchmark}\navg@{one.samples_per_problem}" for one in self.last.evaluations)
        rows = [[policy.label, *(share(one.accuracy) for one in policy.evaluations)] for policy in self.evaluated]
        return text_table(["policy", *names], rows)

    def _times(self) -> str:
        parts = [f"{label(row)} {duration(seconds)}" for row, seconds in self.ledger.items() if seconds >= 0.05]
        parts.append(f"training {duration(self.training)} of {duration(self.wall_clock)}")
        if self.gpu_seconds:
            parts.append(f"{sum(self.gpu_seconds.values()) / 3600:,.2f} GPU-hours")
        # No-break spaces keep each part on one line.
        text = ", ".join(part.replace(" ", "\xa0") for part in parts)
        wrapped = fill(text, COLUMNS - 1, initial_indent="time    ", subsequent_indent=" " * 8, break_long_words=False)
        return wrapped.replace("\xa0", " ")


def make_summary(history: History, ledger: Ledger) -> RunSummary:
    """Return the summary of a run, without paths and commands."""
    return RunSummary(
        algorithm=history.algorithm,
        updates_per_rollout=history.updates_per_rollout,
        seed=history.seed,
        evaluated=history.evaluated,
        ledger=ledger.seconds,
        gpu_seconds=ledger.gpu_seconds,
        wall_clock=ledger.wall_clock,
        training=ledger.training,
    )


def summarise(store: Store, report: ArtifactRef, next_commands: list[str]) -> RunSummary:
    """Return the summary of a stored report, with the path of its page and the next commands.

    Raises:
        ArtifactError: the report is missing or corrupted.
    """
    folder = store.path(report)
    try:
        summary = RunSummary.model_validate_json((folder / SUMMARY_FILE).read_bytes())
    except ValidationError:  # Another version of the code wrote the report.
        history = load_finished(store, store.manifest(report))
        summary = make_summary(history, make_ledger(history))
    return summary.model_copy(update={"report": str(folder / PAGE_FILE), "next_commands": list(next_commands)})


def execution_since(store: Store, report: ArtifactRef, started: float) -> Execution:
    """Return the work of this execution for a run since ``started``, in Unix seconds."""
    manifests = ancestry(store, [report]).manifests.values()
    made = [one.timings for one in manifests if one.timings.execution == execution() and one.timings.started >= started]
    all_waits = [*waits, *(wait for timings in made for wait in timings.waited)]
    waited = union_seconds(wait for wait in all_waits if wait[0] >= started)
    return Execution(artifacts=len(manifests), made=len(made), seconds=max(0.0, time.time() - started), waited=waited)
