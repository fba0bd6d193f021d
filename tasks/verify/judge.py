"""Compare an answer with the gold answer by math-verify. The worker limits time and memory."""

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.logic import And
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.relational import Relational

from tasks.verify.notation import has_base, readings, words
from tasks.verify.verdicts import Outcome

# Only what is in the box, read as a whole. math-verify's other patterns would find a number somewhere inside of text
# that is no answer, and its plain expressions go through sympy's parse_expr, which evaluates Python.
_BOX_ONLY = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]
_DECIMALS, _DIGITS = 6, 15
"""Defaults of math-verify: decimals to which floats are rounded, and digits of a difference."""
_SIGNIFICANT = 5
"""Significant digits of the smallest number that are compared."""
_MOST_ZEROS = 10_000
"""Most zeros after the decimal point of a number that is distinguished from 0; the time grows with their square."""
_ROUNDED, _EXACT = 0.01, 1e-12
"""Relative difference up to which an equation in an answer holds, with rounded and with exact numbers."""
_LOG_2 = math.log10(2)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
"""A whole number. Two of them are compared as such, since math-verify takes milliseconds for it."""


def judge(gold: str, answer: str) -> Outcome:
    """Compare the content of a response's box with a gold answer; ``crashed`` if math-verify raises."""
    if _WHOLE.fullmatch(gold) and _WHOLE.fullmatch(answer):
        return Outcome.CORRECT if int(gold) == int(answer) else Outcome.WRONG
    try:
        return _compare(gold, answer)
    except Exception:  # Without a comparison there is no reward, rather than a silent zero.
        return Outcome.CRASHED


def _compare(gold: str, answer: str) -> Outcome:
    expected = _words_of(gold)
    if expected is not None:
        if (found := words(answer)) is not None:
            return Outcome.CORRECT if found == expected else Outcome.WRONG
        return Outcome.WRONG if _parse(answer, False) else Outcome.NO_ANSWER
    with_bases = has_base(gold) and has_base(answer)
    reference = _parse_gold(gold, with_bases)
    if not reference:
        return Outcome.GOLD_UNPARSABLE
    given = _parse(answer, with_bases)
    if not given:
        return Outcome.NO_ANSWER
    if any(_is_false(one) for one in given):
        return Outcome.WRONG
    reference, given = _as_sets(reference, given), _as_sets(given, reference)
    decimals, digits = _precision([*reference, *given])
    same = verify(reference, given, decimals, digits, timeout_seconds=None, raise_on_error=True)
    return Outcome.CORRECT if same else Outcome.WRONG


@lru_cache(maxsize=64)
def _words_of(gold: str) -> tuple[str, ...] | None:
    return words(gold)


@lru_cache(maxsize=64)
def _parse_gold(gold: str, with_bases: bool) -> list[Any]:
    # verify raises on a gold answer such as 1/0. Identity is compared, since == of matrices gives no bool.
    return [one for one in _parse(gold, with_bases) if one is not sympy.nan and one is not sympy.zoo]


def _parse(text: str, with_bases: bool) -> list[Any]:
    # Without a fallback to strings, text that is no mathematics gives an empty list. So does deeply nested text, since
    # parse swallows RecursionError.
    parsed: list[Any] = []
    for reading in readings(text, with_bases):
        boxed = rf"\boxed{{{reading}}}"
        parsed += parse(boxed, _BOX_ONLY, fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True)
    return [_scientific(one) for one in parsed]


def _scientific(answer: Any) -> Any:
    """Turn 4.5 times a power of ten into a number, because math-verify compares the product with no fraction."""
    if not isinstance(answer, sympy.Mul) or len(answer.args) != 2:
        return answer
    mantissa, power = answer.args
    if not (isinstance(mantissa, sympy.Float) and isinstance(power, sympy.Pow) and power.base == 10):
        return answer
    if not isinstance(power.exp, sympy.Integer) or abs(power.exp) > _MOST_ZEROS:
        return answer
    exact = sympy.Rational(str(mantissa)) * sympy.Integer(10) ** power.exp
    return exact if isinstance(exact, sympy.Integer) else sympy.Float(exact)


def _is_false(answer: Any) -> bool:
    """Return whether the answer equates two different numbers, as in 7 = 6; rounded numbers are equal."""
    return any(
        isinstance(one, sympy.Eq) and one.lhs.is_number and one.rhs.is_number and not _about_equal(one.lhs, one.rhs)
        for one in _parts(answer)
    )


def _about_equal(one: Any, other: Any) -> bool:
    a, b, difference = one.evalf(), other.evalf(), (one - other).evalf()
    if one == other or a == b or difference == 0:
        return True
    if not (a.is_finite and b.is_finite):
        return False
    rounded = one.has(sympy.Float) or other.has(sympy.Float)
    return bool(abs(difference) <= (_ROUNDED if rounded else _EXACT) * max(abs(a), abs(b)))


def _as_sets(answers: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Convert solved inequalities, such as x < 3, to sets if the other answer is a set other than a finite one."""
    if not any(isinstance(other, sympy.Set) and not isinstance(other, sympy.FiniteSet) for other in others):
        return list(answers)
    return [one if (found := _solutions(one)) is None else found for one in answers]


def _solutions(answer: Any) -> sympy.Set | None:
    sets: list[sympy.Set | None] = []
    for part in _parts(answer):
        if isinstance(part, And) and part is not answer:
            sets.append(_solutions(part))
        else:
            sets.append(part.as_set() if _is_solved(part) else None)
    found = [one for one in sets if one is not None]
    if len(found) < len(sets) or not found:
        return None
    return sympy.Union(*found) if isinstance(answer, sympy.FiniteSet) else sympy.Intersection(*found)


def _is_solved(relation: Any) -> bool:
    """Return whether it is a solved inequality; another one, such as x^2 < 4, may be the problem itself."""
    if not isinstance(relation, Relational) or isinstance(relation, sympy.Eq):
        return False
    sides = (relation.lhs, relation.rhs)
    return any(isinstance(a, sympy.Symbol) and b.is_number for a, b in (sides, sides[::-1]))


def _parts(answer: Any) -> Sequence[Any]:
    if isinstance(answer, And):
        parts: Sequence[Any] = answer._unsorted_args
        return parts
    return answer.args if isinstance(answer, sympy.FiniteSet) else (answer,)


def _precision(answers: Sequence[Any]) -> tuple[int, int]:
    """Return the decimals and digits of the comparison, more than the defaults for small numbers."""
    zeros = max((zeros for one in answers for zeros in _zeros(one)), default=0)
    needed = min(zeros, _MOST_ZEROS) + _SIGNIFICANT
    return max(_DECIMALS, needed), max(_DIGITS, needed)


def _zeros(answer: Any) -> Iterator[int]:
    """Yield the number of zeros after the decimal point of each number in an expression, or one fewer."""
    if isinstance(answer, sympy.Integer) or not isinstance(answer, sympy.Basic | sympy.MatrixBase):
        return
    if isinstance(answer, sympy.MatrixBase):
        for entry in answer.flat():
            yield from _zeros(entry)
    elif isinstance(answer, sympy.Rational):
        if answer.p:
            yield int((answer.q.bit_length() - abs(answer.p).bit_length()) * _LOG_2)
    elif getattr(answer, "is_number", False):
        size = abs(answer.evalf(_SIGNIFICANT))
        if isinstance(size, sympy.Float) and size:
            _, _, exponent, bits = size._mpf_
            yield int(-(exponent + bits) * _LOG_2)
    else:
        for part in answer.args:
            yield from _zeros(part)
