"""Answers per second of the verifier beside math-verify in a plain loop, on the same distinct answers.

    python -m tests.benchmarks.verify_throughput

The plain loop has math-verify's own bounds, which are alarms, and dies of what they do not catch. Workers are started
before the clock.
"""

import argparse
import logging
import random
import time

import math_verify
from rich.console import Console
from rich.table import Table

from tasks.settings import VerifySettings
from tasks.verify.verifier import Verifier


def integers(count: int) -> list[tuple[str, str]]:
    """Gold answers, each with one right and seven wrong integers."""
    return [(str(i // 8), rf"\boxed{{{i // 8 + i % 8}}}") for i in range(count)]


def mixed(count: int) -> list[tuple[str, str]]:
    """Fractions, radicals, sets, intervals and polynomials; every other answer is right."""
    draw = random.Random(0)
    pairs = []
    for i in range(count):
        a, b, c = (draw.randint(1, 999) for _ in range(3))
        forms = [
            rf"\frac{{{a}}}{{{b}}}",
            rf"{a}\sqrt{{{b}}}",
            rf"\{{{a}, {b}\}}",
            f"({a}, {a + b}]",
            f"{a}x^2+{b}x+{c}",
        ]
        other = [rf"\frac{{{a}}}{{{b + 1}}}", rf"{a}\sqrt{{{b + 1}}}", rf"\{{{a}\}}", f"[{a}, {a + b}]", f"{a}x^2+{c}"]
        pairs.append((forms[i % 5], rf"\boxed{{{(forms if draw.random() < 0.5 else other)[i % 5]}}}"))
    return pairs


def plain(pairs: list[tuple[str, str]]) -> float:
    """Answers per second of math-verify in this process."""
    start = time.perf_counter()
    for gold, response in pairs:
        math_verify.verify(math_verify.parse(rf"\boxed{{{gold}}}"), math_verify.parse(response))
    return len(pairs) / (time.perf_counter() - start)


def verified(pairs: list[tuple[str, str]], workers: int) -> float:
    """Answers per second of the verifier."""
    with Verifier(VerifySettings(workers=workers)) as verifier:
        verifier.verify(pairs[: 32 * workers], "warm-up")
        start = time.perf_counter()
        verifier.verify(pairs, f"{workers} workers")
        return len(pairs) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=4000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    table = Table("answers", "checked by", "answers/s", "per worker")
    for name, pairs in (("integers", integers(options.answers)), ("mixed", mixed(options.answers // 8))):
        plain(pairs[:32])
        table.add_row(name, "plain loop", f"{plain(pairs):,.0f}", "")
        for workers in options.workers:
            rate = verified(pairs, workers)
            table.add_row(name, f"{workers} workers", f"{rate:,.0f}", f"{rate / workers:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
