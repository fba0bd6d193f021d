"""Results of evaluating a stored policy and of rescoring a stored run, as their commands print them."""

from collections import Counter
from collections.abc import Sequence

from tasks.formats import percent, percent_range
from tasks.report.history import load_history
from tasks.report.summary import SummaryRow, summary_row
from tasks.report.tables import text_table
from tasks.settings.base import FlyteModel
from tasks.store import ArtifactRef, Store
from tasks.store.layout import VERDICTS_FILE
from tasks.store.tables import read_table


class PolicyAccuracies(FlyteModel):
    """Accuracies of a stored policy; ``str()`` returns lines for the terminal."""

    policy: str
    """The policy, as ``kind/digest``."""
    evaluations: list[str]
    """The evaluations as ``kind/digest``, in the order of the benchmarks."""
    headline: str
    """Name of the accuracy, such as avg@4."""
    problems: int
    row: SummaryRow

    def __str__(self) -> str:
        row = self.row
        lines = [
            f"{self.policy} ({row.label}, {row.updates} updates): {self.headline} {percent(row.accuracy)} "
            f"({percent_range(row.low, row.high)}), greedy {percent(row.greedy)}, on {self.problems} problems"
        ]
        for benchmark, evaluation in zip(row.benchmarks, self.evaluations, strict=True):
            k = benchmark.samples_per_problem
            accuracy = f"{percent(benchmark.accuracy)} ({percent_range(benchmark.low, benchmark.high)})"
            lines.append(
                f"{benchmark.name:<16}avg@{k} {accuracy}, pass@{k} {percent(benchmark.pass_at)}, "
                f"maj@{k} {percent(benchmark.majority)}, truncated {percent(benchmark.truncated)}, on "
                f"{benchmark.problems} problems  {evaluation}"
            )
        return "\n".join(lines)


def describe_evaluation(store: Store, average: ArtifactRef) -> PolicyAccuracies:
    """Return the accuracies of a policy from the average of its evaluations."""
    history = load_history(store, [average])
    (evaluated,) = history.evaluated
    return PolicyAccuracies(
        policy=str(evaluated.policy),
        evaluations=[str(measured.evaluation) for measured in evaluated.evaluations],
        headline=history.headline,
        problems=evaluated.problems,
        row=summary_row(evaluated),
    )


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


class RescoredRun(FlyteModel):
    """A run's verdicts before and after rescoring; ``str()`` returns a table for the terminal."""

    stages: list[RescoredStage]

    def __str__(self) -> str:
        rows = []
        for number, stage in enumerate(self.stages, start=1):
            rewards = percent(stage.reward_before), percent(stage.reward_after)
            changed = sum(stage.changed.values())
            rows.append((str(number), str(stage.responses), *rewards, str(changed), stage.verdicts))
        table = text_table(("stage", "responses", "reward before", "after", "changed", "verdicts"), rows)
        changes = sum((Counter(stage.changed) for stage in self.stages), Counter())
        lines = [f"  {count:6d}  {change}" for change, count in changes.most_common()]
        return "\n".join([table, "", *(lines or ["No outcome changed."])])


def compare_verdicts(store: Store, before: Sequence[ArtifactRef], after: Sequence[ArtifactRef]) -> RescoredRun:
    """Compare verdicts on the same rollouts, stage by stage."""
    return RescoredRun(stages=[_stage(store, old, new) for old, new in zip(before, after, strict=True)])


def _stage(store: Store, before: ArtifactRef, after: ArtifactRef) -> RescoredStage:
    tables = [read_table(folder / VERDICTS_FILE, columns=["outcome"]) for folder in store.paths([before, after])]
    pairs = zip(*(table["outcome"].to_pylist() for table in tables), strict=True)
    facts = [store.manifest(ref).known_facts for ref in (before, after)]
    return RescoredStage(
        responses=tables[0].num_rows,
        reward_before=facts[0]["reward"],
        reward_after=facts[1]["reward"],
        changed=dict(Counter(f"{old} -> {new}" for old, new in pairs if old != new)),
        verdicts=str(after),
    )
