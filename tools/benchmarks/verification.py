"""Answers per second of a core that the verifier judges, beside math-verify in a plain loop that bad answers would end.

    python -m tools.benchmarks verification

Seconds are CPU time of this process and of all workers, so that what else a machine does counts for nobody; workers are
started before. After every hundred answers comes one that takes so much memory that its judge is replaced, and one that
hangs. These take seconds by themselves, a crashing one as many as in a new process and a hanging one its deadline: the
rate without them says what bad answers cost besides.
"""

import logging
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from itertools import count
from multiprocessing import get_context

import math_verify
import psutil

from tasks.settings.verify import MathVerifySettings
from tasks.verify.judge import judge
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import FAILURES, Outcome, Verdict, extract
from tools.benchmarks.measured import Measured, Ratio, Values, in_turn, ratio

ANSWERS = 500
EXPRESSIONS: tuple[Callable[[int, int, int], str], ...] = (
    lambda a, b, _: rf"\frac{{{a}}}{{{b}}}",
    lambda a, b, _: rf"{a}\sqrt{{{b}}}",
    lambda a, b, _: rf"\{{{a}, {b}\}}",
    lambda a, b, _: f"({a}, {a + b}]",
    lambda a, b, c: f"{a}x^2+{b}x+{c}",
)
LARGE = 200_000_000
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
    "process_time and psutil: besides judging, a parent that reads every outcome at once costs CPU time, so it "
    "reads outcomes every few milliseconds. Most of the time of a new worker is the import of math-verify, so the "
    "process that has imported it forks the next judge. cProfile of such a judge: the first answer of a form takes "
    "most of the time, because the parser learns the form; therefore correct and wrong answers of usual forms are "
    "judged before the fork. strace and perf: CPython maps and unmaps a chunk for frames 90 times per answer. "
    "Calling the judge from a frame with a larger chunk saves a tenth; this was not kept, because it patches a "
    "private field of CPython. Two whole numbers are compared without math-verify."
)
BAD_GOLD = "42"
Pair = tuple[str, str]


def answers(many: int, seed: int) -> list[Pair]:
    """Gold answers and responses, no two alike, half of them right: of five, four are whole numbers, as often as in
    competitions, and one is a fraction, radical, set, interval or polynomial."""
    draw = random.Random(seed)
    pairs = []
    for i in range(many):
        a, b, c = (draw.randint(1, 998) for _ in range(3))
        other = draw.random() < 0.5
        form = EXPRESSIONS[i // 5 % len(EXPRESSIONS)] if i % 5 == 4 else lambda _, b, __, i=i: f"{1000 * i + b}"
        pairs.append((form(a, b, c), rf"so \boxed{{{form(a, b + other, c)}}}"))
    return pairs


def is_right(pair: Pair) -> bool:
    """Return True if an answer is equal to its gold answer: those of ``answers`` are written alike then."""
    return extract(pair[1]).answer == pair[0]


def crashing(number: int) -> str:
    """Makes math-verify use more than half of the worker's memory."""
    return rf"\boxed{{\lfloor 2.0^{{{LARGE + number}}}\rfloor}}"


def hanging(number: int) -> str:
    """Makes math-verify compute for hours."""
    return rf"\boxed{{10^{{10^{{10}}}}+{number}}}"


def mixed_in(pairs: Sequence[Pair], seed: int, *bad: Callable[[int], str]) -> list[Pair]:
    """One of each bad kind, different ones by seed, after every hundred answers."""
    mixed = []
    for number, pair in enumerate(pairs, 1):
        mixed.append(pair)
        if number % 100 == 0:
            mixed += [(BAD_GOLD, one(1000 * seed + number)) for one in bad]
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
    """CPU seconds of a bad answer in a process whose parser knows its form."""
    logging.disable(logging.CRITICAL)
    judge(BAD_GOLD, extract(crashing(1 - LARGE)).answer or "")
    began = time.process_time()
    judge(BAD_GOLD, extract(bad).answer or "")
    return time.process_time() - began


class Judged:
    """The verifier with workers that are started, and what it said the last time."""

    def __init__(self, workers: int) -> None:
        settings = MathVerifySettings(workers=workers, memory_mib=MEMORY_MIB)
        self._verifier, self.deadline_seconds = Verifier(settings), settings.deadline_seconds
        self.verify(answers(64 * workers, -1))
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


def _told(pairs: Sequence[Pair], said: Sequence[bool]) -> Counter[str]:
    """Counts of good answers that were judged as they are written, and of the others."""
    return Counter(
        "as written" if right == is_right(pair) else "otherwise" for pair, right in zip(pairs, said, strict=True)
    )


def _cpu() -> float:
    """Seconds; those of a process that ended are its parent's."""
    while True:
        with suppress(psutil.NoSuchProcess):  # A judge ended meanwhile: count again.
            below = psutil.Process().children(recursive=True)
            return time.process_time() + sum(sum(process.cpu_times()[:4]) for process in below)


def measure(repeats: int) -> Measured:
    """All in turn, each on answers of its own, since math-verify remembers. The last way is arithmetic on another."""
    walls: dict[str, Values] = {ONE: [], TWO: []}
    counted: dict[str, Counter[str]] = {way: Counter() for way in (LOOP, LOOPS, ONE, TWO, CRASHING, BOTH)}
    besides: Values = []
    seeds = count()
    spawn = get_context("spawn")
    with (
        ProcessPoolExecutor(2, spawn) as pool,
        ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as fresh,
        closing(Judged(1)) as one,
        closing(Judged(2)) as two,
    ):

        def looped(way: str) -> Callable[[], float]:
            def work() -> float:
                pairs = answers(ANSWERS, next(seeds))
                half = len(pairs) // 2
                made = [loop(pairs)] if way == LOOP else list(pool.map(loop, (pairs[:half], pairs[half:])))
                said = [right for _, some in made for right in some]
                counted[way].update(_told(pairs, said))
                return len(pairs) / sum(seconds for seconds, _ in made)

            return work

        def judged(way: str, by: Judged, *bad: Callable[[int], str]) -> Callable[[], float]:
            def work() -> float:
                pairs = mixed_in(answers(ANSWERS, seed := next(seeds)), seed, *bad)
                seconds = by.verify(pairs)
                outcomes = [verdict.outcome for verdict in by.verdicts]
                if way in walls:
                    walls[way].append(len(pairs) / by.wall)
                if way == BOTH:
                    by_themselves = outcomes.count(Outcome.TIMEOUT) * by.deadline_seconds
                    by_themselves += outcomes.count(Outcome.CRASHED) * fresh.submit(alone, crashing(0)).result()
                    besides.append(len(pairs) / (seconds - by_themselves))
                good = [(pair, outcome) for pair, outcome in zip(pairs, outcomes, strict=True) if pair[0] != BAD_GOLD]
                counted[way].update(_told([pair for pair, _ in good], [one is Outcome.CORRECT for _, one in good]))
                counted[way].update(str(outcome) for outcome in outcomes if outcome in FAILURES)
                return len(pairs) / seconds

            return work

        ways = {
            LOOP: looped(LOOP),
            LOOPS: looped(LOOPS),
            ONE: judged(ONE, one),
            TWO: judged(TWO, two),
            CRASHING: judged(CRASHING, one, crashing),
            BOTH: judged(BOTH, one, crashing, hanging),
        }
        for way in (LOOP, LOOPS):
            ways[way]()  # So that parsers know the forms.
        values = in_turn(ways, repeats, "verification")
    values[WITHOUT] = besides
    bad = 2 * ANSWERS // 100
    return Measured(
        name="verification",
        what=f"Judged answers per second of CPU time, with {ANSWERS} different answers.",
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
            "ms that a bad answer costs besides its own time": 1000
            * statistics.median(
                ((ANSWERS + bad) / with_bad - ANSWERS / good) / bad
                for with_bad, good in zip(besides, values[ONE], strict=True)
            ),
            "judged answers, all repeats": {way: dict(sorted(found.items())) for way, found in counted.items()},
            "deadline, s": MathVerifySettings().deadline_seconds,
        },
        finding=FINDING,
    )
