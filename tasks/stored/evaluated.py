"""The result of an evaluation of a stored policy, apart from the run that made the policy."""

from pydantic import ConfigDict

from tasks.model import FlyteModel
from tasks.report.formats import percent, percent_range
from tasks.report.history import load_history
from tasks.report.summary import SummaryRow, summary_row
from tasks.store import ArtifactRef, Store


class EvaluatedPolicy(FlyteModel):
    """A stored policy's accuracy. ``str()`` of it is some lines for the terminal."""

    model_config = ConfigDict(frozen=True)

    policy: str
    """The policy, as ``kind/digest``."""
    evaluations: list[str]
    """The evaluations, in the order of the benchmarks, as ``kind/digest``."""
    headline: str
    """The name of the accuracy."""
    problems: int
    row: SummaryRow

    def __str__(self) -> str:
        row = self.row
        lines = [
            f"{self.policy} ({row.label}, {row.updates} updates): {self.headline} {percent(row.accuracy)} "
            f"({percent_range(row.low, row.high)}), greedy {percent(row.greedy)}, on {self.problems} problems"
        ]
        for one, evaluation in zip(row.benchmarks, self.evaluations, strict=True):
            k = one.samples_per_problem
            lines.append(
                f"{one.name:<16}avg@{k} {percent(one.accuracy)} ({percent_range(one.low, one.high)}), pass@{k} "
                f"{percent(one.pass_at)}, maj@{k} {percent(one.majority)}, truncated {percent(one.truncated)}, on "
                f"{one.problems} problems  {evaluation}"
            )
        return "\n".join(lines)


def evaluated_policy(store: Store, average: ArtifactRef) -> EvaluatedPolicy:
    """Return what an average of evaluations says of its policy."""
    history = load_history(store, [average])
    (found,) = history.evaluated
    return EvaluatedPolicy(
        policy=str(found.policy),
        evaluations=[str(one.evaluation) for one in found.evaluations],
        headline=history.headline,
        problems=found.problems,
        row=summary_row(found),
    )
