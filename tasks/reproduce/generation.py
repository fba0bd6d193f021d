"""The difference in generation between two runs, replayed: what their calls make of it, and what their responses do."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from tasks.reproduce.rates import Engine, Rates, Timed, engine_of
from tasks.reproduce.replay import Replayed, Work, replay
from tasks.reproduce.sampled import Sampled

BASELINE, REFERENCE = 0, 1


@dataclass(frozen=True)
class Division:
    """Modelled seconds that the reference saves in generation; they add up to the difference of both models."""

    barrier: float
    """By its calls: passes that are not full."""
    batches: float
    """By its calls: passes that are."""
    responses: float
    """Because its policy answers differently."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.barrier + self.batches + self.responses


class Generation:
    """Generation of a baseline and of the reference, whose calls are timed.

    Args:
        sampled: of the baseline, and of the reference.
    """

    def __init__(self, sampled: tuple[Sampled, Sampled]) -> None:
        self._engines: tuple[Engine, Engine] = (engine_of(sampled[0].engine), engine_of(sampled[1].engine))
        replayed = {(rows, made): replay(sampled[rows], sampled[made]) for rows in (0, 1) for made in (0, 1)}
        self._work = {corner: (_sum(calls, "full"), _sum(calls, "barrier")) for corner, calls in replayed.items()}
        self.timed = [_timed(one, replayed[place, place]) for place, one in enumerate(sampled)]
        """Calls of both, for a fit."""
        self.seconds = (_in_calls(sampled[0]), _in_calls(sampled[1]))
        """Inside the calls of both, times the devices."""

    def divide(self, rates: Rates) -> Division:
        """What is saved, by cause.

        Either run's responses are replayed in either run's calls. What changes with the calls alone, and with the
        responses alone, is the mean over both values of the other (Shapley's value of two causes).
        """
        full, barrier = ({corner: self._seconds(corner, part, rates) for corner in self._work} for part in (0, 1))
        return Division(
            barrier=mean(barrier[rows, BASELINE] - barrier[rows, REFERENCE] for rows in (0, 1)),
            batches=mean(full[rows, BASELINE] - full[rows, REFERENCE] for rows in (0, 1)),
            responses=sum(
                mean(part[BASELINE, made] - part[REFERENCE, made] for made in (0, 1)) for part in (full, barrier)
            ),
        )

    def _seconds(self, corner: tuple[int, int], part: int, rates: Rates) -> float:
        return float(self._work[corner][part] @ rates[self._engines[corner[1]]])


def _sum(calls: Sequence[Replayed], part: str) -> Work:
    return np.sum([getattr(call, part) for call in calls], axis=0)


def _timed(sampled: Sampled, calls: Sequence[Replayed]) -> Timed:
    seconds = [call.seconds for call in sampled.calls if call.seconds is not None]
    return Timed(engine_of(sampled.engine), np.array([call.slowest for call in calls]), np.array(seconds))


def _in_calls(sampled: Sampled) -> float:
    each = sampled.engine.tensor_parallel
    return each * sum(len(call.shares) * (call.seconds or 0.0) for call in sampled.calls)
