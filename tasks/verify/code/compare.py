"""Compares what a program gave with what was expected, outside of the program's process."""

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def same_text(expected: str, given: str, tolerance: float) -> bool:
    """Compare texts line by line and word by word, ignoring space between words, behind lines and around the whole.

    Words are equal as texts or as decimal numbers; where the expected one has a point or an exponent, up to
    ``tolerance``, relative or absolute. LiveCodeBench compares numbers by value, which is a tolerance of 0.
    """
    lines, given_lines = ([line.split() for line in text.strip().split("\n")] for text in (expected, given))
    return len(lines) == len(given_lines) and all(
        line == other
        or (len(line) == len(other) and all(_same_word(*words, tolerance) for words in zip(line, other, strict=True)))
        for line, other in zip(lines, given_lines, strict=True)
    )


def same_value(expected: Any, given: Any, tolerance: float) -> bool:
    """Compare a returned value with one of JSON's types; a tuple counts as a list, as in LiveCodeBench.

    An expected float is met up to ``tolerance``, relative or absolute.
    """
    if isinstance(expected, list):
        return (
            isinstance(given, list | tuple)
            and len(expected) == len(given)
            and all(same_value(*pair, tolerance) for pair in zip(expected, given, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(given, dict)
            and expected.keys() == given.keys()
            and all(same_value(one, given[key], tolerance) for key, one in expected.items())
        )
    if isinstance(expected, float) and isinstance(given, int | float):
        return _close(expected, given, tolerance)
    return bool(expected == given)


def _same_word(expected: str, given: str, tolerance: float) -> bool:
    if expected == given:
        return True
    if not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(given)):
        return False
    try:
        if Decimal(expected) == Decimal(given):
            return True
    except InvalidOperation:  # an exponent beyond all bounds
        return False
    return not expected.lstrip("+-").isdigit() and _close(float(expected), float(given), tolerance)


def _close(expected: float, given: float, tolerance: float) -> bool:
    try:
        return expected == given or math.isclose(expected, given, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an integer beyond all floats
        return False
