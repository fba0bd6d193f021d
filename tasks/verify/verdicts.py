"""What the verifier says about a response."""

from dataclasses import dataclass
from enum import StrEnum

from tasks.verify.answers import Extracted


class Outcome(StrEnum):
    """How the check of a response ended."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    """No closed box or block, or what is in it is too long; in a box, also what is no mathematics."""
    GOLD_UNPARSABLE = "gold_unparsable"
    """The reference answer cannot be read; found out only when there is an answer to compare it with."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """The worker died, ran into its memory limit, or math-verify raised. A program that crashes is wrong."""
    MISSING = "missing"
    """There is no response: it could not be generated."""


FAILURES = (Outcome.TIMEOUT, Outcome.CRASHED)
_REWARDS = {Outcome.CORRECT: 1.0, Outcome.WRONG: 0.0, Outcome.NO_ANSWER: 0.0}


@dataclass(frozen=True)
class Verdict:
    """The outcome of one response."""

    outcome: Outcome
    reward: float | None
    """1 if correct, 0 if wrong or without an answer, None where the verifier could not tell."""
    extracted: str | None
    """The content of the last closed box or block; None without one."""
    shows_working: bool
    """Whether any text stands before it."""

    @classmethod
    def of(cls, outcome: Outcome, extracted: Extracted) -> "Verdict":
        """The verdict that an outcome means, with its reward."""
        return cls(outcome, _REWARDS.get(outcome), extracted.answer, extracted.shows_working)
