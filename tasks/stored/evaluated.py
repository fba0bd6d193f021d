"""What an evaluation of a stored policy found, apart from the run that made the policy."""

from pydantic import ConfigDict

from tasks.artifacts import ArtifactRef, Store
from tasks.flyte_model import FlyteModel
from tasks.report.formats import percent, percent_range
from tasks.report.history import load_history
from tasks.report.summary import SummaryRow, summary_row


class EvaluatedPolicy(FlyteModel):
    """A stored policy's accuracy. ``str()`` of it is a line for the terminal."""

    model_config = ConfigDict(frozen=True)

    policy: str
    """The policy's artifact, as ``kind/digest``."""
    evaluation: str
    problems: int
    samples_per_problem: int
    """k of avg@k."""
    row: SummaryRow

    def __str__(self) -> str:
        row = self.row
        return (
            f"{self.policy} ({row.label}, {row.updates} updates): avg@{self.samples_per_problem} "
            f"{percent(row.accuracy)} ({percent_range(row.low, row.high)}), greedy {percent(row.greedy)}, on "
            f"{self.problems} problems\nevaluation  {self.evaluation}"
        )


def evaluated_policy(store: Store, evaluation: ArtifactRef) -> EvaluatedPolicy:
    """What an evaluation says of its policy."""
    history = load_history(store, [evaluation])
    (found,) = history.evaluated
    return EvaluatedPolicy(
        policy=str(found.policy),
        evaluation=str(evaluation),
        problems=history.problems,
        samples_per_problem=history.samples_per_problem,
        row=summary_row(found),
    )
