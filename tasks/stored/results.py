"""Results of evaluating a stored policy and of rescoring a stored run, as their commands print them."""

from collections import Counter
from collections.abc import Sequence

from tasks.formats import number, percent, share, share_with_interval
from tasks.report.history import EvaluatedPolicy, load_history
from tasks.report.tables import text_table
from tasks.settings.base import FlyteModel
from tasks.store import ArtifactRef, Store
from tasks.store.layout import VERDICTS_FILE
from tasks.store.tables import read_table


class PolicyAccuracies(FlyteModel):
    """Accuracies of a stored policy; ``str()`` returns lines for the terminal."""

    evaluated: EvaluatedPolicy

    def __str__(self) -> str:
        mean = self.evaluated
        lines = [
            f"{mean.policy} ({mean.label}, {mean.updates} updates): {mean.headline} "
            f"{share_with_interval(mean.accuracy)}, greedy {share(mean.greedy)}, on {mean.problems} problems"
        ]
        for one in mean.evaluations:
            k = one.samples_per_problem
            lines.append(
                f"{one.benchmark:<16}avg@{k} {share_with_interval(one.accuracy)}, pass@{k} {share(one.pass_at_k)}, "
                f"maj@{k} {share(one.majority)}, truncated {percent(one.truncated)}, on "
                f"{one.problems} problems  {one.evaluation}"
            )
        return "\n".join(lines)


def describe_evaluation(store: Store, average: ArtifactRef) -> PolicyAccuracies:
    """Return the accuracies of a policy from the average of its evaluations."""
    (evaluated,) = load_history(store, [average]).evaluated
    return PolicyAccuracies(evaluated=evaluated)


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
        for place, stage in enumerate(self.stages, start=1):
            rewards = number(stage.reward_before, 3), number(stage.reward_after, 3)
            changed = sum(stage.changed.values())
            rows.append((str(place), str(stage.responses), *rewards, str(changed), stage.verdicts))
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
