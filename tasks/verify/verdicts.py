"""What the verifier says about a response."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tasks.verify.answers import Extracted


class Outcome(StrEnum):
    """How the check of a response ended."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    """The response has no closed box or block, or what is in it is too long; in a box, also what is no mathematics. A
    function returned None."""
    GOLD_UNPARSABLE = "gold_unparsable"
    """The reference answer cannot be read; found out only when there is an answer to compare it with."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """The worker died or ran into its memory limit, math-verify or the user's function raised, or the function returned
    what is no reward. A program that crashes is wrong."""
    MISSING = "missing"
    """There is no response: it could not be generated."""


FAILURES = (Outcome.TIMEOUT, Outcome.CRASHED)
_REWARDS = {Outcome.CORRECT: 1.0, Outcome.WRONG: 0.0, Outcome.NO_ANSWER: 0.0}


class Judgement(NamedTuple):
    """What a judge says of a response."""

    outcome: Outcome
    reward: float | None = None
    """A number that a function returned; None where the outcome says what the reward is."""
    error: str | None = None
    """The traceback of a function that raised."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one response."""

    outcome: Outcome
    reward: float | None
    """The number that a function returned; else 1 if correct, 0 if wrong or without an answer. None where the verifier
    could not tell."""
    extracted: str | None
    """The content of the last closed box or block; None without one, and of a function's."""
    shows_working: bool
    """Whether any text stands before the box or block."""

    @classmethod
    def of(cls, judgement: Judgement, extracted: Extracted) -> "Verdict":
        """The verdict that a judgement means, with its reward."""
        outcome, reward, _ = judgement
        return cls(
            outcome, _REWARDS.get(outcome) if reward is None else reward, extracted.answer, extracted.shows_working
        )
