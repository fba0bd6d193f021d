"""Answers per second of a core that the verifier judges, beside math-verify in a plain loop that bad answers would end.

    python -m tests.benchmarks verification

Seconds are CPU time of this process and of all workers, so that what else a machine does counts for nobody; workers are
started before. After every hundred answers comes one that takes so much memory that its judge is replaced, and one that
hangs. These take seconds by themselves, a crashing one as many as in this process and a hanging one its deadline: the
rate without them says what bad answers cost besides.
"""

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from multiprocessing import get_context

import math_verify
import psutil

from tasks.settings import VerifySettings
from tasks.verify.answers import extract
from tasks.verify.judge import judge
from tasks.verify.verdicts import FAILURES, Outcome, Verdict
from tasks.verify.verifier import Verifier
from tests.benchmarks.measured import Measured, Ratio, Values, in_turn, ratio

ANSWERS = 500
DISTINCT_NUMBERS = 0.8
"""The share of whole numbers among the answers, as in competitions; the rest are expressions."""
MEMORY_MIB = 256
BAR = 0.9
LOOP, LOOPS = "plain loop", "two plain loops side by side"
ONE, TWO = "the verifier, 1 worker", "the verifier, 2 workers"
CRASHING, BOTH, WITHOUT = (
    "1 worker, 1 % crashing",
    "1 worker, 1 % crashing and 1 % hanging",
    "1 worker, 1 % crashing and 1 % hanging, without the seconds of bad answers",
)
FINDING = (
    "process_time and psutil: beside judging, a parent that takes in every outcome as it comes costs CPU time, so they "
    "are taken in every few milliseconds; and a new worker's time is the loading of math-verify, so the process that "
    "has loaded it forks the next judge."
)
Pair = tuple[str, str]


def answers(many: int) -> list[Pair]:
    """Gold answers and responses, no two alike: whole numbers, fractions, radicals, sets, intervals, polynomials."""
    draw = random.Random(0)
    pairs = []
    for i in range(many):
        a, b, c = (draw.randint(1, 999) for _ in range(3))
        other = draw.random() < 0.5
        forms = (
            [str(1000 * i + a)]
            if draw.random() < DISTINCT_NUMBERS
            else [
                rf"\frac{{{a}}}{{{b + other}}}",
                rf"{a}\sqrt{{{b + other}}}",
                rf"\{{{a}, {b + other}\}}",
                f"({a}, {a + b + other}]",
                f"{a}x^2+{b + other}x+{c}",
            ]
        )
        gold, given = forms[i % len(forms)], forms[i % len(forms)]
        if other and len(forms) == 1:
            given = str(1000 * i + a + 1)
        elif other:
            gold = gold.replace(str(b + 1), str(b), 1)
        pairs.append((gold, rf"so \boxed{{{given}}}"))
    return pairs


def crashing(number: int) -> str:
    """Makes math-verify use more than half of the worker's memory."""
    return rf"\boxed{{\lfloor 2.0^{{{200_000_000 + number}}}\rfloor}}"


def hanging(number: int) -> str:
    """Makes math-verify compute for hours."""
    return rf"\boxed{{10^{{10^{{10}}}}+{number}}}"


def mixed_in(pairs: Sequence[Pair], *bad: Callable[[int], str]) -> list[Pair]:
    """One of each bad kind after every hundred answers."""
    mixed = []
    for number, pair in enumerate(pairs, 1):
        mixed.append(pair)
        if number % 100 == 0:
            mixed += [("42", one(number)) for one in bad]
    return mixed


def loop(pairs: Sequence[Pair]) -> tuple[float, list[bool]]:
    """CPU seconds of math-verify alone, and what it says."""
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    said = [
        math_verify.verify(math_verify.parse(rf"\boxed{{{gold}}}"), math_verify.parse(response))
        for gold, response in pairs
    ]
    logging.disable(logging.NOTSET)
    return time.process_time() - began, said


def alone(bad: str) -> float:
    """CPU seconds of a bad answer, judged in this process."""
    began = time.process_time()
    judge("42", extract(bad).answer or "")
    return time.process_time() - began


class Judged:
    """The verifier with workers that are started, and what it said the last time."""

    def __init__(self, workers: int) -> None:
        settings = VerifySettings(workers=workers, memory_mib=MEMORY_MIB)
        self._verifier, self.deadline_seconds = Verifier(settings), settings.deadline_seconds
        self.verify(answers(64 * workers))
        self.verdicts: list[Verdict] = []
        self.wall = 0.0

    def verify(self, pairs: Sequence[Pair]) -> float:
        """CPU seconds of this process and of those below it, also of those that ended."""
        before, began = _cpu(), time.perf_counter()
        self.verdicts = self._verifier.verify(pairs, "")
        self.wall = time.perf_counter() - began
        return _cpu() - before

    def close(self) -> None:
        """Ends the workers."""
        self._verifier.close()


def _cpu() -> float:
    """Seconds; those of a process that ended are its parent's."""
    while True:
        with suppress(psutil.NoSuchProcess):  # A judge ended meanwhile: count again.
            below = psutil.Process().children(recursive=True)
            return time.process_time() + sum(sum(process.cpu_times()[:4]) for process in below)


def measure(repeats: int) -> Measured:
    """All in turn; the last way is arithmetic on the one before."""
    good = answers(ANSWERS)
    half, some = len(good) // 2, mixed_in(good, crashing)
    every = mixed_in(good, crashing, hanging)
    expected = loop(good)[1]
    walls: dict[str, Values] = {ONE: [], TWO: []}
    otherwise: Counter[str] = Counter()
    besides: Values = []
    with ProcessPoolExecutor(2, get_context("spawn")) as pool, closing(Judged(1)) as one, closing(Judged(2)) as two:

        def side_by_side() -> float:
            return len(good) / sum(seconds for seconds, _ in pool.map(loop, (good[:half], good[half:])))

        def judged(way: str, by: Judged, pairs: list[Pair]) -> Callable[[], float]:
            fine = set(good)

            def work() -> float:
                seconds = by.verify(pairs)
                outcomes = [verdict.outcome for verdict in by.verdicts]
                if way in walls:
                    walls[way].append(len(pairs) / by.wall)
                if way == BOTH:
                    by_themselves = outcomes.count(Outcome.TIMEOUT) * by.deadline_seconds
                    by_themselves += outcomes.count(Outcome.CRASHED) * alone(crashing(0))
                    besides.append(len(pairs) / (seconds - by_themselves))
                rows = [outcome for outcome, pair in zip(outcomes, pairs, strict=True) if pair in fine]
                otherwise[way] += sum(
                    (outcome is Outcome.CORRECT) != right for outcome, right in zip(rows, expected, strict=True)
                )
                bad = Counter(outcome for outcome in outcomes if outcome in FAILURES)
                counted[way] = {str(outcome): number for outcome, number in sorted(bad.items())}
                return len(pairs) / seconds

            return work

        counted: dict[str, dict[str, int]] = {}
        side_by_side()
        ways = {
            LOOP: lambda: len(good) / loop(good)[0],
            LOOPS: side_by_side,
            ONE: judged(ONE, one, good),
            TWO: judged(TWO, two, good),
            CRASHING: judged(CRASHING, one, some),
            BOTH: judged(BOTH, one, every),
        }
        values = in_turn(ways, repeats, "verification")
    values[WITHOUT] = besides
    return Measured(
        name="verification",
        what=f"Answers judged per second of CPU time, {ANSWERS} different ones.",
        unit="answers/s",
        ways=values,
        ratios=[
            ratio(values, ONE, LOOP, BAR),
            ratio(values, TWO, LOOPS, BAR),
            Ratio(f"{TWO}, by the clock", ONE, [b / a for a, b in zip(walls[ONE], walls[TWO], strict=True)]),
            ratio(values, CRASHING, LOOP),
            ratio(values, BOTH, LOOP),
            ratio(values, WITHOUT, LOOP, BAR),
        ],
        facts={
            "good answers judged otherwise than by the loop, all repeats": sum(otherwise.values()),
            "bad answers": counted,
            "deadline, s": VerifySettings().deadline_seconds,
        },
        finding=FINDING,
    )
