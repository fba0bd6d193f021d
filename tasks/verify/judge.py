"""Comparison of an answer with the gold answer by math-verify. The worker sets limits of time and memory."""

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from latex2sympy2_extended.logic import And
from latex2sympy2_extended.sets import FiniteSet
from math_verify import LatexExtractionConfig, grader, parse, parser, verify
from sympy.concrete.expr_with_limits import ExprWithLimits
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from tasks.verify.notation import (
    choice,
    has_base,
    is_compound,
    last_side,
    letters,
    readings,
    split_list_in_text,
    without_modulus,
)
from tasks.verify.verdicts import Outcome
from tasks.verify.words import mixed_text, plain_text, without_named_sets, words

# Only the content of the box is read, as a whole. math-verify's other patterns would find a number inside of text that
# is not an answer, and sympy's parse_expr, which evaluates Python, would read its plain expressions.
_BOX_ONLY = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]
_read_with_case = partial(latex2sympy, conversion_config=ConversionConfig(lowercase_symbols=False))
_same_digits, _same_solutions = grader.sympy_numeric_eq, grader.sympy_solve_and_compare
# math-verify raises where it compares x != 3 with another relation.
grader.INVERSE_RELATIONS.setdefault(sympy.Ne, sympy.Ne)
_DECIMALS, _DIGITS = 6, 15
"""Defaults of math-verify: decimals for the comparison of floats, digits for the difference of other numbers."""
_SIGNIFICANT = 5
"""Fewest digits of the smallest number that are compared."""
_MOST_ZEROS = 10_000
"""Most zeros behind the decimal point of a number that differs from zero. Time grows with the square of the zeros."""
_ROUNDED, _EXACT = 0.01, 1e-12
"""Largest relative difference of the two sides of an equation in an answer: with a rounded number, with exact ones."""
_LOG_2 = math.log10(2)
_PERCENT = sympy.UnevaluatedExpr(sympy.Rational(1, 100))
_ENDS = (sympy.oo, -sympy.oo)
_INFINITE = (*_ENDS, sympy.zoo, sympy.nan)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
"""A whole number. Two whole numbers are compared without math-verify, which takes milliseconds."""


def _same_relations(gold: Any, answer: Any, *precision: int) -> bool:
    """Compare solutions as math-verify does; equations without one are equal if they are multiples of each other."""
    if gold.lhs == answer.lhs or not gold.free_symbols:
        return False  # Their values differ. To solve equations for each letter can take minutes.
    same = _same_solutions(gold, answer, *precision)
    if not same or sympy.solve(gold, gold.free_symbols):
        return bool(same)
    factor = sympy.cancel((gold.lhs - gold.rhs) / (answer.lhs - answer.rhs))
    return bool(factor.is_number and factor.is_finite and factor.is_nonzero)


def _same_numbers(gold: Any, answer: Any, *precision: int) -> bool:
    """Compare digits as math-verify does, but rational numbers exactly: 1 - 1/2022! and 1 - 1/2023! differ."""
    if not _same_digits(gold, answer, *precision):
        return False
    if not isinstance(gold, sympy.Expr):
        return True
    difference = (gold - answer).doit()
    return not isinstance(difference, sympy.Rational) or difference == 0


# verify calls both by their names in its module.
grader.sympy_numeric_eq, grader.sympy_solve_and_compare = _same_numbers, _same_relations


def judge(gold: str, answer: str) -> Outcome:
    """Return the outcome of comparing the content of a box with a gold answer; ``crashed`` if math-verify raised."""
    if _WHOLE.fullmatch(gold) and _WHOLE.fullmatch(answer):
        return Outcome.CORRECT if int(gold) == int(answer) else Outcome.WRONG
    try:
        outcome = _compare(gold, answer)
    except Exception:  # The comparison failed: without an outcome, the response would get a silent 0.
        return Outcome.CRASHED
    if outcome is Outcome.CORRECT or (text := mixed_text(gold)) is None:
        return outcome
    if text == mixed_text(answer):
        return Outcome.CORRECT
    return Outcome.WRONG if outcome is Outcome.GOLD_UNPARSABLE else outcome


def _compare(gold: str, answer: str) -> Outcome:
    """Compare the letters of two choices, such as (C) 12 and C, or else the values."""
    gold_choice, answer_choice = choice(gold), choice(answer)
    if gold_choice and answer_choice:
        is_same = gold_choice[0] == answer_choice[0]
        if not is_same or not (gold_choice[1] and answer_choice[1]):
            return Outcome.CORRECT if is_same else Outcome.WRONG
    # A side without a letter is compared with the value of the other.
    return _compare_values((gold_choice and gold_choice[1]) or gold, (answer_choice and answer_choice[1]) or answer)


def _compare_values(gold: str, answer: str) -> Outcome:
    """Compare compound answers as texts, words as words, and all else by math-verify.

    Raises:
        Exception: math-verify cannot compare the two.
    """
    gold, answer = (split_list_in_text(without_named_sets(text)) for text in (gold, answer))
    if is_compound(gold) or is_compound(answer):
        return Outcome.CORRECT if plain_text(gold) == plain_text(answer) else Outcome.WRONG
    expected = words(gold)
    if expected is not None:
        if (answer_words := words(answer)) is not None:
            return Outcome.CORRECT if answer_words == expected else Outcome.WRONG
        return Outcome.WRONG if _parse(answer) else Outcome.NO_ANSWER
    if without_modulus(answer) == answer:
        gold = without_modulus(gold)
    with_bases, variables = has_base(gold) and has_base(answer), letters(gold)
    with_case = _has_both_cases(variables) or _has_both_cases(letters(answer))
    reference = _parse_gold(gold, with_bases, with_case)
    if not reference:
        return Outcome.GOLD_UNPARSABLE
    parsed = _parse(answer, with_bases, variables, with_case)
    if not parsed:
        return Outcome.NO_ANSWER
    if not (parsed := [reading for reading in parsed if not _is_false(reading, r"\approx" in answer)]):
        return Outcome.WRONG
    if any(map(_is_condition, parsed)) and not any(isinstance(one, sympy.Eq) for one in reference):
        return Outcome.WRONG
    reference, parsed = _as_numbers(reference, parsed), _as_numbers(parsed, reference)
    reference, parsed = _as_sets(reference, parsed), _as_sets(parsed, reference)
    reference, parsed = _as_points(reference, parsed), _as_points(parsed, reference)
    if any(isinstance(a, And) and isinstance(b, And) and len(a.args) != len(b.args) for a in reference for b in parsed):
        return Outcome.WRONG  # math-verify raises where it compares chains of different lengths.
    decimals, digits = _precision([*reference, *parsed])
    same = verify(reference, parsed, decimals, digits, timeout_seconds=None, raise_on_error=True)
    return Outcome.CORRECT if same and not _is_infinite_alone(parsed, reference) else Outcome.WRONG


def _is_infinite_alone(answers: list[Any], reference: list[Any]) -> bool:
    """Return True if answers are infinite and the reference is not: sympy simplifies 2 pi - |oo| to 0."""
    return answers != reference and any(map(_is_infinite, answers)) and not any(map(_is_infinite, reference))


def _has_both_cases(variables: frozenset[str]) -> bool:
    """Return True if a letter is there as a capital and as a small letter, such as R and r."""
    return any(letter != letter.lower() and letter.lower() in variables for letter in variables)


@lru_cache(maxsize=64)
def _parse_gold(gold: str, with_bases: bool, with_case: bool) -> list[Any]:
    """Return the readings of a gold answer that have a value; empty if it cannot be read."""
    # verify raises on a gold answer such as 1/0. They are compared with `is`, because == of matrices gives no bool.
    parsed = _parse(gold, with_bases, letters(gold), with_case)
    return [reading for reading in parsed if reading is not sympy.nan and reading is not sympy.zoo]


def _parse(
    text: str, with_bases: bool = False, variables: frozenset[str] = frozenset(), with_case: bool = False
) -> list[Any]:
    """Return the expressions that a text may mean; the first three arguments are those of ``readings``.

    A capital and its small letter are two letters only with ``with_case``.
    """
    # Without a fallback to strings, text that is not mathematics gives an empty list. parse swallows RecursionError, so
    # text that is nested too deeply gives an empty list too.
    parsed: list[Any] = []
    # math-verify reads R as r, which suits most answers. In \pi(R^2-r^2) they are two letters.
    if parser.latex2sympy is not (reader := _read_with_case if with_case else latex2sympy):
        parser.latex2sympy = reader
        parser.parse_latex_cached.cache_clear()
    for reading in readings(text, with_bases, variables):
        # math-verify cannot read P(A\cap B), |A\cap B| and \det A, whose value is the last side.
        parsed += _read(reading) or _read(last_side(reading))
    return [_scientific(_with_real_letters(_ascending(_with_names(expression)))) for expression in parsed]


def _read(text: str) -> list[Any]:
    boxed = rf"\boxed{{{text}}}"
    return [*parse(boxed, _BOX_ONLY, fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True)]


def _with_names(answer: Any) -> Any:
    """Turn f(2) and dy/dx into letters: an equation with f(2) has no unknown, and sympy takes dy/dx for 0.

    So are e and I in e = 1/2 and I = 3, which name an eccentricity and an integral.
    """
    if not isinstance(answer, sympy.Basic):
        return answer
    if isinstance(answer, sympy.Eq) and answer.lhs in (sympy.E, sympy.I):
        return sympy.Eq(sympy.Symbol(str(answer.lhs).lower(), real=True), _with_names(answer.rhs))
    if isinstance(answer, And | FiniteSet):
        return answer.func(*map(_with_names, answer._unsorted_args), evaluate=False)
    names = {node: sympy.Symbol(str(node), real=True) for node in sympy.preorder_traversal(answer) if _is_name(node)}
    return answer.xreplace(names)


def _is_name(node: Any) -> bool:
    """Return True for a function's value at a number, and for the derivative of a letter by another one."""
    if isinstance(node, sympy.Derivative):
        return bool(node.expr.free_symbols.isdisjoint(node.variables))
    return isinstance(node, AppliedUndef) and not node.free_symbols


def _ascending(answer: Any) -> Any:
    """Turn chains such as 5 > x > -3 around, because math-verify compares relations of two chains in their order."""
    if isinstance(answer, FiniteSet):
        return answer.func(*map(_ascending, answer._unsorted_args), evaluate=False)
    relations = answer._unsorted_args if isinstance(answer, And) else ()
    falls = any(isinstance(one, sympy.Gt | sympy.Ge) for one in relations)
    if not falls or not all(isinstance(one, sympy.Gt | sympy.Ge | sympy.Eq) for one in relations):
        return answer
    return answer.func(*(one.reversed for one in reversed(relations)), evaluate=False)


def _with_real_letters(answer: Any) -> Any:
    """Make letters real: those of a text with an i, which may be an index, are not, and would differ from others."""
    if not isinstance(answer, sympy.Expr):
        return answer
    letters = [letter for letter in answer.free_symbols if letter.is_real is False]
    return answer.xreplace({letter: sympy.Symbol(letter.name, real=True) for letter in letters})


def _scientific(answer: Any) -> Any:
    """Turn a product such as 4.5 * 10^3 into a number, because math-verify cannot compare it with a fraction."""
    if not isinstance(answer, sympy.Mul) or len(answer.args) != 2:
        return answer
    mantissa, power = answer.args
    if not (isinstance(mantissa, sympy.Float) and isinstance(power, sympy.Pow) and power.base == 10):
        return answer
    if not isinstance(power.exp, sympy.Integer) or abs(power.exp) > _MOST_ZEROS:
        return answer
    exact = sympy.Rational(str(mantissa)) * sympy.Integer(10) ** power.exp
    return exact if isinstance(exact, sympy.Integer) else sympy.Float(exact)


def _is_false(answer: Any, is_rounded: bool) -> bool:
    r"""Return True if equations say that different numbers are equal, as 7 = 6 and 7 = x = 6; rounded ones may differ.

    With ``is_rounded`` this is so for terms of the same letters too: ``2n \approx 3n`` would be two answers.
    """
    for item in answer.args if isinstance(answer, FiniteSet | sympy.Tuple) else (answer,):
        for is_equation, chain in groupby(_items(item), lambda one: isinstance(one, sympy.Eq)):
            firsts: dict[frozenset[Any], Any] = {}
            for side in (side for one in chain if is_equation for side in one.args):
                letters = frozenset(side.free_symbols)
                if side.has(AppliedUndef) or side in letters or not (side.is_number or is_rounded):
                    continue
                place = {letter: 1 + sympy.Float(i) / 7 for i, letter in enumerate(sorted(letters, key=str), 1)}
                pair = [one.xreplace(place) for one in (firsts.setdefault(letters, side), side)]
                if not (_about_equal(*pair) or _about_equal(*map(_without_percent, pair))):
                    return True
    return False


def _is_condition(answer: Any) -> bool:
    """Return True for an equation such as 2x - 3y + 5 = 0, whose right side is not the value of its left side."""
    if not isinstance(answer, sympy.Eq) or answer.rhs != 0:
        return False
    return isinstance(answer.lhs, sympy.Add) and any(term.is_number for term in answer.lhs.args)


def _is_infinite(answer: Any) -> bool:
    """Return True for an infinite expression in an answer, such as |ln 0|; ends of intervals and sums do not count."""
    if not isinstance(answer, sympy.Expr):
        parts = answer.flat() if isinstance(answer, sympy.MatrixBase) else answer.args
        return any(_is_infinite(part) for part in parts if part not in _ENDS)
    # What remains of sums and limits has no closed form.
    bodies = answer.doit().replace(lambda one: isinstance(one, ExprWithLimits | sympy.Limit), lambda one: one.args[0])
    return bool(bodies.has(*_INFINITE))


def _about_equal(left: Any, right: Any) -> bool:
    """Return True if two numbers are equal, or almost equal if one of them is rounded; matrices have to be equal."""
    if not (left.is_number and right.is_number):
        return bool(left == right)
    left, right = (side.replace(sympy.UnevaluatedExpr, lambda value: value) for side in (left, right))
    a, b, difference = left.evalf(), right.evalf(), (left - right).evalf(chop=True)
    if left == right or a == b or difference == 0:
        return True
    if not (a.is_finite and b.is_finite):
        return False
    if all(side.is_real and float(side).is_integer() and float(side) % 10 for side in (a, b)):
        return False  # Neither is the other one, rounded: 204 and 205.0 would be two guesses.
    rounded = left.has(sympy.Float) or right.has(sympy.Float)
    return bool(abs(difference) <= (_ROUNDED if rounded else _EXACT) * max(abs(a), abs(b)))


def _as_numbers(answers: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Add 12.5 to the readings of 12.5% unless the other answer is in per cent, too."""
    if any(other.has(_PERCENT) for other in others):
        return list(answers)
    return [*answers, *(_without_percent(answer) for answer in answers if answer.has(_PERCENT))]


def _without_percent(answer: Any) -> Any:
    """Return an answer with 12.5 in place of 12.5%."""
    if isinstance(answer, And | FiniteSet | sympy.Eq):
        parts = getattr(answer, "_unsorted_args", answer.args)
        return answer.func(*map(_without_percent, parts), evaluate=False)
    return answer.xreplace({_PERCENT: sympy.S.One})


def _as_sets(answers: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Turn solved inequalities, such as x < 3, into sets if the other answer is an interval or a union of intervals."""
    if not any(isinstance(other, sympy.Set) and not isinstance(other, sympy.FiniteSet) for other in others):
        return list(answers)
    return [answer if (solutions := _solutions(answer)) is None else solutions for answer in answers]


def _as_points(answers: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Turn values of several letters, such as x = 2, y = 1, into a point if the other answer is one.

    math-verify would compare them in the order of their values. Values of x, y and z are in the order of the alphabet.
    """
    if not any(isinstance(other, sympy.Tuple | sympy.Interval) for other in others):
        return list(answers)
    return [answer if (point := _point(answer)) is None else point for answer in answers]


def _point(answer: Any) -> sympy.Tuple | None:
    """Return the point of the values of letters, as (2, 1) for x = 2, y = 1; None for other answers."""
    values = list(getattr(answer, "_unsorted_args", answer.args)) if isinstance(answer, sympy.FiniteSet) else []
    if not all(isinstance(value, sympy.Eq) and isinstance(value.lhs, sympy.Symbol) for value in values):
        return None
    names = [value.lhs.name for value in values]
    if not names or len(set(names)) < len(names):
        return None
    if set(names) <= set("xyz"):
        values.sort(key=lambda value: value.lhs.name)
    return sympy.Tuple(*(value.rhs for value in values))


def _solutions(answer: Any) -> sympy.Set | None:
    """Return the set of the solutions of an answer; None unless all of its items are solved inequalities."""
    sets: list[sympy.Set | None] = []
    for item in _items(answer):
        if isinstance(item, And) and item is not answer:
            sets.append(_solutions(item))
        else:
            sets.append(item.as_set() if _is_solved(item) else None)
    if not sets or None in sets:
        return None
    # A list such as x > 0, x < 1, of which one always holds, has the word and between its items; else it has or.
    is_either = isinstance(answer, sympy.FiniteSet) and (union := sympy.Union(*sets)) != sympy.S.Reals
    return union if is_either else sympy.Intersection(*sets)


def _is_solved(relation: Any) -> bool:
    """Return True for a solved inequality, such as x < 3; one such as x^2 < 4 may be the problem itself."""
    if not isinstance(relation, Relational) or isinstance(relation, sympy.Eq):
        return False
    sides = (relation.lhs, relation.rhs)
    return any(isinstance(a, sympy.Symbol) and b.is_number for a, b in (sides, sides[::-1]))


def _items(answer: Any) -> Sequence[Any]:
    """Return the items of a list, a set or a chain of relations; else the answer itself."""
    if isinstance(answer, And):
        return list(answer._unsorted_args)
    return answer.args if isinstance(answer, sympy.FiniteSet) else (answer,)


def _precision(answers: Sequence[Any]) -> tuple[int, int]:
    """Return decimals and digits for the comparison, enough that no small number is rounded to 0."""
    zeros = max((zeros for answer in answers for zeros in _zeros(answer)), default=0)
    needed = min(zeros, _MOST_ZEROS) + _SIGNIFICANT
    return max(_DECIMALS, needed), max(_DIGITS, needed)


def _zeros(answer: Any) -> Iterator[int]:
    """Yield the number of zeros behind the decimal point of every number in an expression, or one less."""
    if isinstance(answer, sympy.Integer) or not isinstance(answer, sympy.Basic | sympy.MatrixBase):
        return
    if isinstance(answer, sympy.MatrixBase):
        for entry in answer.flat():
            yield from _zeros(entry)
    elif isinstance(answer, sympy.Rational):
        if answer.p:
            yield int((answer.q.bit_length() - abs(answer.p).bit_length()) * _LOG_2)
    elif getattr(answer, "is_number", False):
        try:
            size = abs(answer.evalf(_SIGNIFICANT))
        except (ArithmeticError, TypeError, ValueError):  # It has no value, as (-1)! and sums that diverge.
            return
        if isinstance(size, sympy.Float) and size:
            _, _, exponent, bits = size._mpf_
            yield int(-(exponent + bits) * _LOG_2)
    else:
        for operand in answer.args:
            yield from _zeros(operand)
