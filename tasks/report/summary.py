"""Results as commands print them: of a run, of the evaluation of a stored policy, and of rescoring a stored run."""

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Self

from pydantic import Field, ValidationError

from tasks.formats import duration, label, number, percent, percent_range, share, share_with_interval
from tasks.process.provenance import execution_id, uncommitted_change, waits
from tasks.report.history import Accuracies, EvaluatedPolicy, History, load_finished, load_history
from tasks.report.ledger import Ledger, make_ledger, union_seconds
from tasks.report.tables import TERMINAL_WIDTH, text_table
from tasks.settings.base import FlyteModel
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PAGE_FILE, SUMMARY_FILE, VERDICTS_FILE
from tasks.store.lineage import ancestry
from tasks.store.records import Manifest
from tasks.store.tables import read_table


class ExecutionWork(FlyteModel):
    """The work of one execution of the workflow for a run. Other executions made the remaining artifacts of the run."""

    artifacts: int
    """Number of artifacts of the run."""
    made: int
    """Number of artifacts that the execution added; one that the store had already is not new, even if made again."""
    seconds: float
    """Seconds since the start of the first process of the execution."""
    waited: float = 0.0
    """Seconds in which the execution only waited for another execution with the same work."""
    outdated: str = ""
    """Warning of results that the execution found and that are older than a change of the code; empty without any."""

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
    later_updates: int = 0
    """Updates after the last evaluation, in an unfinished run."""
    ledger: dict[str, float]
    """Seconds by row; their sum is the process-seconds of the run."""
    gpu_seconds: dict[str, float] = Field(default_factory=dict)
    """GPU-seconds by row; empty if no process saw a GPU."""
    wall_clock: float
    """Seconds; less than the sum of the ledger if steps ran in parallel."""
    training: float
    """Seconds of wall-clock of generation, verification and optimization."""
    execution: ExecutionWork | None = None
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
            time_taken = f"{time_taken}, with the work of other executions"
        lines = [
            f"{self.name}, seed {self.seed}: {self.last.updates + self.later_updates} updates {time_taken}",
            self._table(),
            *([self._by_benchmark()] if len(self.last.evaluations) > 1 else []),
            self._times(),
        ]
        if self.execution:
            lines.append(f"now     {self.execution}")
            if self.execution.outdated:
                lines.append(_entry("code", self.execution.outdated))
        lines.append("")
        if self.report:
            lines.append(f"report  {shlex.quote(self.report)}")
        # Paths and commands are not wrapped, so that they can be copied.
        lines += [f"{'next' if index == 0 else '':<8}{command}" for index, command in enumerate(self.next_commands)]
        return "\n".join(lines).rstrip()

    def _table(self) -> str:
        reward = ["reward"] * any(one.reward is not None for one in self.evaluated)
        headings = ["policy", "updates", self.last.headline, "95 %", *reward, "greedy", "working", "tokens"]
        rows = [
            [
                one.label,
                str(one.updates),
                share(one.accuracy),
                percent_range(one.accuracy.low, one.accuracy.high),
                *(number(one.reward, 3) for _ in reward),
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
        return _entry("time", text).replace("\xa0", " ")


def _entry(name: str, text: str) -> str:
    """Return a named text of the summary, in lines that fit the terminal."""
    width, indent = TERMINAL_WIDTH - 1, " " * 8
    return fill(text, width, initial_indent=f"{name:<8}", subsequent_indent=indent, break_long_words=False)


def make_summary(history: History, ledger: Ledger) -> RunSummary:
    """Return the summary of a run, without paths and commands."""
    return RunSummary(
        algorithm=history.algorithm,
        updates_per_rollout=history.updates_per_rollout,
        seed=history.seed,
        evaluated=history.evaluated,
        later_updates=history.last_update - history.evaluated[-1].updates,
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


def work_of_execution(store: Store, report: ArtifactRef, started: float) -> ExecutionWork:
    """Return the work of this execution for a run since ``started``, in Unix seconds."""
    manifests = ancestry(store, [report]).manifests.values()
    timings = [manifest.timings for manifest in manifests]
    made = [one for one in timings if one.execution == execution_id() and one.started >= started]
    all_waits = [*waits, *(wait for one in made for wait in one.waited)]
    waited = union_seconds(wait for wait in all_waits if wait[0] >= started)
    return ExecutionWork(
        artifacts=len(manifests),
        made=len(made),
        seconds=max(0.0, time.time() - started),
        waited=waited,
        outdated=_outdated(manifests),
    )


def _outdated(manifests: Iterable[Manifest]) -> str:
    """Return a warning if a file of tasks/ that is not committed was changed after some of the artifacts were made."""
    file, changed = uncommitted_change() or ("", 0.0)
    tasks = dict.fromkeys(one.task for one in manifests if one.timings.process_started < changed)
    if not tasks:
        return ""
    return (
        f"{file} was changed, without a commit, after this run's results of {', '.join(sorted(tasks))} were made. No "
        "step runs again for changed code, also not with --overwrite-cache: if the change can alter these results, "
        "raise the cache version of their tasks in tasks/flyte/tasks.py, or use another store."
    )


class PolicyAccuracies(FlyteModel):
    """Accuracies of a stored policy; ``str()`` returns lines for the terminal."""

    evaluated: EvaluatedPolicy

    @classmethod
    def of(cls, store: Store, average: ArtifactRef) -> Self:
        """Return the accuracies of a policy from the average of its evaluations."""
        (evaluated,) = load_history(store, [average]).evaluated
        return cls(evaluated=evaluated)

    def __str__(self) -> str:
        mean = self.evaluated
        lines = [
            f"{mean.policy} ({mean.label}, {mean.updates} updates): {mean.headline} "
            f"{share_with_interval(mean.accuracy)}{_reward(mean)}, greedy {share(mean.greedy)}, on "
            f"{mean.problems} problems"
        ]
        for one in mean.evaluations:
            k = one.samples_per_problem
            lines.append(
                f"{one.benchmark:<15} avg@{k} {share_with_interval(one.accuracy)}{_reward(one)}, pass@{k} "
                f"{share(one.pass_at_k)}, maj@{k} {share(one.majority)}, truncated {percent(one.truncated)}, on "
                f"{one.problems} problems  {one.evaluation}"
            )
        return "\n".join(lines)


def _reward(measured: Accuracies) -> str:
    return "" if measured.reward is None else f", reward {number(measured.reward, 3)}"


class RescoredStage(FlyteModel):
    """A stage's verdicts before and after rescoring."""

    responses: int
    reward_before: float | None
    """Mean reward over the responses that could be judged."""
    reward_after: float | None
    changed: dict[str, int]
    """Number of responses whose outcome differs, by "before -> after"."""
    verdicts: str
    """The artifact of the new verdicts, as ``kind/digest``."""

    @classmethod
    def of(cls, store: Store, before: ArtifactRef, after: ArtifactRef) -> Self:
        """Compare two verdicts on the same rollouts."""
        tables = [read_table(folder / VERDICTS_FILE, columns=["outcome"]) for folder in store.paths([before, after])]
        pairs = zip(*(table["outcome"].to_pylist() for table in tables), strict=True)
        facts = [store.manifest(ref).known_facts for ref in (before, after)]
        return cls(
            responses=tables[0].num_rows,
            reward_before=facts[0]["reward"],
            reward_after=facts[1]["reward"],
            changed=dict(Counter(f"{old} -> {new}" for old, new in pairs if old != new)),
            verdicts=str(after),
        )


class RescoredRun(FlyteModel):
    """A run's verdicts before and after rescoring; ``str()`` returns a table for the terminal."""

    stages: list[RescoredStage]

    @classmethod
    def of(cls, store: Store, before: Sequence[ArtifactRef], after: Sequence[ArtifactRef]) -> Self:
        """Compare verdicts on the same rollouts, stage by stage."""
        return cls(stages=[RescoredStage.of(store, old, new) for old, new in zip(before, after, strict=True)])

    def __str__(self) -> str:
        rows = []
        for index, stage in enumerate(self.stages, start=1):
            rewards = number(stage.reward_before, 3), number(stage.reward_after, 3)
            changed = sum(stage.changed.values())
            rows.append((str(index), str(stage.responses), *rewards, str(changed), stage.verdicts))
        table = text_table(("stage", "responses", "reward before", "after", "changed", "verdicts"), rows)
        changes = sum((Counter(stage.changed) for stage in self.stages), Counter())
        lines = [f"  {count:6d}  {change}" for change, count in changes.most_common()]
        return "\n".join([table, "", *(lines or ["No outcome changed."])])
