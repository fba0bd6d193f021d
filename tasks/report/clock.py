"""Training's wall-clock: generation, verification and optimization, as the paper measures it (text around Fig. 1)."""

from collections.abc import Sequence

from tasks.artifacts.records import Manifest
from tasks.report.history import History
from tasks.report.ledger import at_work


def stage_clock(history: History) -> list[float]:
    """Seconds of training until the base policy, which is 0, and until the policy of every stage.

    Steps that ran side by side count once. What a killed attempt had done counts, the time until the next attempt does
    not; nor do evaluations, nor what comes before the first stage.
    """
    made: list[Manifest] = []
    clock = [0.0]
    for stage in history.stages:
        made += [*stage.rollouts, *stage.verdicts, stage.policy]
        clock.append(at_work(made))
    return clock


def training_clock(history: History) -> list[float]:
    """Seconds of training until each evaluated policy."""
    clock = stage_clock(history)
    return [clock[policy.stage] for policy in history.evaluated]


def seconds_to(level: float, clock: Sequence[float], accuracy: Sequence[float]) -> float | None:
    """Seconds of training until an evaluated policy first had an accuracy; None when none did."""
    return next((at for at, reached in zip(clock, accuracy, strict=True) if reached >= level), None)
