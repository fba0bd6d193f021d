"""Training's wall-clock: generation, verification and optimization, as the paper measures it (text around Fig. 1)."""

from collections.abc import Sequence

from tasks.report.history import History, Stage
from tasks.report.ledger import covered


def training_clock(history: History) -> list[float]:
    """Seconds of training until each evaluated policy; 0 for the base policy.

    Steps that ran side by side count once. What a killed attempt had done counts, the time until the next attempt does
    not; nor do evaluations, nor the making of the base policy.
    """
    ends: dict[int, float] = {0: 0.0}
    seconds = 0.0
    for stage in history.stages:
        seconds += _seconds(stage)
        ends[stage.last_update] = seconds
    return [ends[policy.updates] for policy in history.evaluated]


def _seconds(stage: Stage) -> float:
    timings = [one.timings for one in (*stage.rollouts, *stage.verdicts, stage.policy)]
    carried = sum(max(0.0, sum(one.phases.values()) - one.seconds) for one in timings)
    return covered((one.started, one.finished) for one in timings) + carried


def seconds_to(level: float, clock: Sequence[float], accuracy: Sequence[float]) -> float | None:
    """Seconds of training until an evaluated policy first had an accuracy; None when none did."""
    return next((at for at, reached in zip(clock, accuracy, strict=True) if reached >= level), None)
