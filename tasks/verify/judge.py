"""Compares one answer with the gold answer by math-verify. Has no bounds of its own: the worker around it has."""

from functools import lru_cache
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify
from sympy import nan, zoo

from tasks.verify.verdicts import Outcome

# Only what is in the box, read as a whole. math-verify's other patterns would find a number somewhere inside of text
# that is no answer, and its plain expressions go through sympy's parse_expr, which evaluates Python.
_BOX_ONLY = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]


def judge(gold: str, answer: str) -> Outcome:
    """``correct``, ``wrong``, ``no_answer``, ``gold_unparsable``, or ``crashed`` where math-verify raised.

    Args:
        gold: the reference answer, LaTeX without a box.
        answer: the content of the response's box.
    """
    try:
        reference = _parse_gold(gold)
        if not reference:
            return Outcome.GOLD_UNPARSABLE
        given = _parse(answer)
        if not given:
            return Outcome.NO_ANSWER
        same = verify(reference, given, timeout_seconds=None, raise_on_error=True)
    except Exception:  # Whatever was raised, the comparison has not been made: that is never a silent zero.
        return Outcome.CRASHED
    return Outcome.CORRECT if same else Outcome.WRONG


@lru_cache(maxsize=64)
def _parse_gold(gold: str) -> list[Any]:
    # verify raises on a gold answer such as 1/0. Its type is asked first because a comparison of matrices is no bool.
    return [one for one in _parse(gold) if one is not nan and one is not zoo]


def _parse(text: str) -> list[Any]:
    # Without a fallback to strings, text that is no mathematics gives an empty list. parse swallows RecursionError, so
    # what is nested too deeply to be read counts as such text.
    boxed = rf"\boxed{{{text}}}"
    parsed: list[Any] = parse(boxed, _BOX_ONLY, fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True)
    return parsed
