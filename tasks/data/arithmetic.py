"""Generated arithmetic problems with answer and working; a policy that shows its working is right more often."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from tasks.settings import ArithmeticSettings


class Form(NamedTuple):
    """Notation of an answer: the texts before and after the number."""

    opening: str
    closing: str


BOXED = Form("\\boxed{", "}")
PROGRAM = Form("\n```python\nprint(", ")\n```")
"""A program that prints the number."""


@dataclass(frozen=True)
class Problem:
    """A problem with its answer and the intermediate results that lead to the answer."""

    level: int
    prompt: str
    answer: int
    working: str

    @property
    def prompt_id(self) -> str:
        """Unique name of the problem."""
        return f"L{self.level}:{self.prompt.removesuffix('=')}"

    def solution(self, answer: int | None = None, form: Form = BOXED) -> str:
        """Return a response: the working and the right answer, or ``answer`` alone, which is a guess."""
        working, number = (self.working, self.answer) if answer is None else ("", answer)
        return f"{working}{form.opening}{number}{form.closing}"

    def gold(self, form: Form = BOXED) -> str:
        """Return the gold answer: the number, or the test of a program that prints the number."""
        return str(self.answer) if form is BOXED else json.dumps({"inputs": [""], "outputs": [str(self.answer)]})


CHARACTERS = "0123456789+-*=;(){}"
"""All characters of prompts and solutions, except those of ``\\boxed`` and of the lines around a program."""

_TWO_DIGITS, _DIGITS, _SMALL = range(10, 100), range(2, 10), range(2, 21)


def _sum(a: int, b: int) -> Problem:
    return Problem(1, f"{a}+{b}=", a + b, f"{a}+{b}={a + b};")


def _sum_of_product(a: int, b: int, c: int) -> Problem:
    m = b * c
    return Problem(2, f"{a}+{b}*{c}=", a + m, f"{b}*{c}={m};{a}+{m}={a + m};")


def _sum_of_products(a: int, b: int, c: int, d: int) -> Problem:
    m, n = a * b, c * d
    return Problem(3, f"{a}*{b}+{c}*{d}=", m + n, f"{a}*{b}={m};{c}*{d}={n};{m}+{n}={m + n};")


def _product_of_sum(a: int, b: int, c: int, d: int) -> Problem:
    s, m = a + b, (a + b) * c
    return Problem(4, f"({a}+{b})*{c}-{d}=", m - d, f"{a}+{b}={s};{s}*{c}={m};{m}-{d}={m - d};")


_LEVELS: dict[int, tuple[Callable[..., Problem], tuple[range, ...]]] = {
    1: (_sum, (_TWO_DIGITS, _DIGITS)),
    2: (_sum_of_product, (_TWO_DIGITS, _DIGITS, _DIGITS)),
    3: (_sum_of_products, (_DIGITS, _DIGITS, _DIGITS, _DIGITS)),
    4: (_product_of_sum, (_SMALL, _SMALL, _DIGITS, _DIGITS)),
}


def problems(level: int) -> Iterator[Problem]:
    """Return all problems of a level in a fixed order: 720 of level 1, 5760 of 2, 4096 of 3, 23104 of 4."""
    make, ranges = _LEVELS[level]
    return (make(*numbers) for numbers in product(*ranges))


def form_of(settings: ArithmeticSettings) -> Form:
    """Return the notation of the answers."""
    return PROGRAM if settings.as_code else BOXED


def hash_fraction(text: str) -> float:
    """Return a number in [0, 1) that depends only on the text, and is the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def split(settings: ArithmeticSettings) -> tuple[list[Problem], list[Problem]]:
    """Return the training problems and the held-out problems of all levels in the settings.

    The hash of a problem decides whether it is held out. Held-out problems are sorted by hash, so that the first n of
    them are a random sample for every n.
    """
    training: list[Problem] = []
    held_out: list[Problem] = []
    for level in sorted(set(settings.levels)):
        for problem in problems(level):
            (held_out if hash_fraction(problem.prompt_id) < settings.held_out_share else training).append(problem)
    return training, sorted(held_out, key=lambda problem: hash_fraction(problem.prompt_id))
