"""Calls a function of the user's own and reads its value as a judgement. Belongs to a worker, which sets the limits."""

import inspect
import math
import struct
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tasks.verify.verdicts import Judgement, Outcome

Score = Callable[[str, str, str], Any]
_LONGEST_ERROR = 2000
"""Last characters of a traceback that are told: with their escapes they fit into one write to a pipe."""


def load(name: str) -> Score:
    """Import and return the function that ``module:name`` names.

    Raises:
        TypeError: it cannot be called with three arguments. Besides that, whatever the module raises.
    """
    module, _, function = name.partition(":")
    score: Score = getattr(import_module(module), function)
    try:
        inspect.signature(score).bind("", "", "")
    except TypeError as error:
        raise TypeError(f"{name} cannot be called with three arguments, prompt, response and answer: {error}") from None
    except ValueError:  # A function in C may not tell.
        pass
    return score


def judgement_of(score: Score, prompt: str, response: str, answer: str, correct_from: float) -> Judgement:
    """Call the function for a response; where it raises or returns no reward, the outcome is ``crashed``.

    Args:
        score: returns a finite number, an ``Outcome``, or None for ``no_answer``.
        prompt: the text that the policy continued.
        response: of the policy.
        answer: the reference answer.
        correct_from: the least reward of a correct response.
    """
    try:
        return _read(score(prompt, response, answer), correct_from)
    except (Exception, SystemExit) as error:
        told = "".join(traceback.format_exception(error)).rstrip().encode("ascii", "backslashreplace").decode()
        return Judgement(Outcome.CRASHED, None, told[-_LONGEST_ERROR:])


def _read(value: Any, correct_from: float) -> Judgement:
    if value is None:
        return Judgement(Outcome.NO_ANSWER)
    if isinstance(value, Outcome):
        return Judgement(value)
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(
            f"the function returned {ascii(value)[:200]}, a {type(value).__name__}; allowed: a finite number, an "
            "Outcome, or None"
        )
    reward = float(value)
    if not math.isfinite(reward):
        raise ValueError(f"the function returned {reward}; allowed: a finite number, an Outcome, or None")
    struct.pack("<f", reward)  # Rewards are kept as 32-bit floats: a number that is too large for one raises.
    return Judgement(Outcome.CORRECT if reward >= correct_from else Outcome.WRONG, reward)
