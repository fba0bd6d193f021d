"""Answers that the verifier judges per second of CPU time, compared with math-verify in a plain loop.

    python -m tools.benchmarks verification

A bad answer would end the loop, so the loop judges only good answers. The seconds are CPU time of this process and of
all workers, which are started before. Some measurements have bad answers after every hundred good ones: one that takes
so much memory that its judge is replaced, and one that hangs. Bad answers take seconds of their own: a crashing answer
those that it takes in a new process, a hanging answer its deadline. A rate without these seconds shows the other costs.
"""

import logging
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import count
from multiprocessing import get_context

import math_verify
import psutil

from tasks.settings.verify import MathVerifySettings
from tasks.verify.judge import judge
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import FAILURES, Outcome, Verdict, extract
from tools.benchmarks.measurement import Measurement, Ratio, Values, measure_interleaved, ratio

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
LOOP, TWO_LOOPS = "plain loop", "two plain loops side by side"
ONE_WORKER, TWO_WORKERS = "the verifier, 1 worker", "the verifier, 2 workers"
CRASHING, BOTH, WITHOUT = (
    "1 worker, 1 % crashing",
    "1 worker, 1 % crashing and 1 % hanging",
    "1 worker, 1 % crashing and 1 % hanging, without the seconds of bad answers",
)
FINDING = (
    "process_time and psutil: a parent process that reads every outcome immediately spends CPU time on it, so it reads "
    "outcomes every few milliseconds. A new worker spends most of its time on the import of math-verify, so a process "
    "that has imported it forks the next judge. cProfile of such a judge: the first answer of a form takes most of the "
    "time, because the parser learns the form. Therefore correct and wrong answers of usual forms are judged before "
    "the fork. strace and perf: for every answer, CPython maps and unmaps a chunk for frames 90 times. Calling the "
    "judge from a frame with a larger chunk saves a tenth of the time. This change was not kept, because it patches a "
    "private field of CPython. Two whole numbers are compared without math-verify."
)
BAD_GOLD = "42"
"""Gold answer of all bad answers."""
Pair = tuple[str, str]


def answers(many: int, seed: int) -> list[Pair]:
    """Return different pairs of gold answer and response, of which half are correct.

    Of five gold answers, four are whole numbers, as many as in competitions. The fifth is a fraction, radical, set,
    interval or polynomial.
    """
    random_numbers = random.Random(seed)
    pairs = []
    for i in range(many):
        a, b, c = (random_numbers.randint(1, 998) for _ in range(3))
        wrong = random_numbers.random() < 0.5
        form = EXPRESSIONS[i // 5 % len(EXPRESSIONS)] if i % 5 == 4 else lambda _, b, __, i=i: f"{1000 * i + b}"
        pairs.append((form(a, b, c), rf"so \boxed{{{form(a, b + wrong, c)}}}"))
    return pairs


def is_correct(pair: Pair) -> bool:
    """Return whether a response of ``answers`` is correct; then its answer is the same text as the gold answer."""
    return extract(pair[1]).answer == pair[0]


def crashing(number: int) -> str:
    """Return a response for which math-verify needs more than half of the memory of a worker."""
    return rf"\boxed{{\lfloor 2.0^{{{LARGE + number}}}\rfloor}}"


def hanging(number: int) -> str:
    """Return a response for which math-verify computes for hours."""
    return rf"\boxed{{10^{{10^{{10}}}}+{number}}}"


def with_bad_answers(pairs: Sequence[Pair], seed: int, *bad: Callable[[int], str]) -> list[Pair]:
    """Return the pairs with one bad answer of each kind after every hundred of them; they differ by seed."""
    mixed = []
    for number, pair in enumerate(pairs, 1):
        mixed.append(pair)
        if number % 100 == 0:
            mixed += [(BAD_GOLD, response(1000 * seed + number)) for response in bad]
    return mixed


def judge_in_loop(pairs: Sequence[Pair]) -> tuple[float, list[bool]]:
    """Return the CPU seconds of math-verify in a plain loop, and whether each answer is correct."""
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    correct = [
        math_verify.verify(math_verify.parse(rf"\boxed{{{gold}}}"), math_verify.parse(response))
        for gold, response in pairs
    ]
    logging.disable(logging.NOTSET)
    return time.process_time() - began, correct


def seconds_alone(bad: str) -> float:
    """Return the CPU seconds of a bad answer in this process, whose parser has learned its form before."""
    logging.disable(logging.CRITICAL)
    judge(BAD_GOLD, extract(crashing(1 - LARGE)).answer or "")
    began = time.process_time()
    judge(BAD_GOLD, extract(bad).answer or "")
    return time.process_time() - began


class StartedVerifier:
    """The verifier with started workers, and the verdicts and wall-clock seconds of its last call."""

    def __init__(self, workers: int) -> None:
        settings = MathVerifySettings(workers=workers, memory_mib=MEMORY_MIB)
        self._verifier, self.deadline_seconds = Verifier(settings), settings.deadline_seconds
        self.verify(answers(64 * workers, -1))
        self.verdicts: list[Verdict] = []
        self.wall = 0.0

    def verify(self, pairs: Sequence[Pair]) -> float:
        """Judge answers, and return the CPU seconds of this process and of its descendants, also of ended ones."""
        before, began = _cpu_seconds(), time.perf_counter()
        self.verdicts = self._verifier.verify(pairs, "")
        self.wall = time.perf_counter() - began
        return _cpu_seconds() - before

    def close(self) -> None:
        """End the workers."""
        self._verifier.close()


def _count_expected(pairs: Sequence[Pair], correct: Sequence[bool]) -> Counter[str]:
    """Count the good answers with the expected verdict, ``as written``, and the others."""
    expected = map(is_correct, pairs)
    return Counter("as written" if one == other else "otherwise" for one, other in zip(correct, expected, strict=True))


def _cpu_seconds() -> float:
    """Return CPU seconds; those of an ended process belong to its parent."""
    while True:
        with suppress(psutil.NoSuchProcess):  # A judge has ended meanwhile: count again.
            descendants = psutil.Process().children(recursive=True)
            return time.process_time() + sum(sum(process.cpu_times()[:4]) for process in descendants)


def measure(repeats: int) -> Measurement:
    """Measure everything, always with new answers, because math-verify judges an answer faster the second time.

    ``WITHOUT`` is not measured: it is computed from ``BOTH``.
    """
    clock_rates: dict[str, Values] = {ONE_WORKER: [], TWO_WORKERS: []}
    names = (LOOP, TWO_LOOPS, ONE_WORKER, TWO_WORKERS, CRASHING, BOTH)
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    rates_without: Values = []
    seeds = count()
    spawn = get_context("spawn")
    with (
        ProcessPoolExecutor(2, spawn) as pool,
        ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as fresh,
        closing(StartedVerifier(1)) as one,
        closing(StartedVerifier(2)) as two,
    ):

        def loop_rate(name: str) -> float:
            pairs = answers(ANSWERS, next(seeds))
            half = len(pairs) // 2
            parts = (pairs[:half], pairs[half:])
            results = [judge_in_loop(pairs)] if name == LOOP else list(pool.map(judge_in_loop, parts))
            counts[name].update(_count_expected(pairs, [one for _, correct in results for one in correct]))
            return len(pairs) / sum(seconds for seconds, _ in results)

        def verifier_rate(name: str, verifier: StartedVerifier, *bad: Callable[[int], str]) -> float:
            pairs = with_bad_answers(answers(ANSWERS, seed := next(seeds)), seed, *bad)
            seconds = verifier.verify(pairs)
            outcomes = [verdict.outcome for verdict in verifier.verdicts]
            if name in clock_rates:
                clock_rates[name].append(len(pairs) / verifier.wall)
            if name == BOTH:
                own = outcomes.count(Outcome.TIMEOUT) * verifier.deadline_seconds
                own += outcomes.count(Outcome.CRASHED) * fresh.submit(seconds_alone, crashing(0)).result()
                rates_without.append(len(pairs) / (seconds - own))
            good = [(pair, outcome) for pair, outcome in zip(pairs, outcomes, strict=True) if pair[0] != BAD_GOLD]
            correct = [outcome is Outcome.CORRECT for _, outcome in good]
            counts[name].update(_count_expected([pair for pair, _ in good], correct))
            counts[name].update(str(outcome) for outcome in outcomes if outcome in FAILURES)
            return len(pairs) / seconds

        ways = {
            LOOP: partial(loop_rate, LOOP),
            TWO_LOOPS: partial(loop_rate, TWO_LOOPS),
            ONE_WORKER: partial(verifier_rate, ONE_WORKER, one),
            TWO_WORKERS: partial(verifier_rate, TWO_WORKERS, two),
            CRASHING: partial(verifier_rate, CRASHING, one, crashing),
            BOTH: partial(verifier_rate, BOTH, one, crashing, hanging),
        }
        for name in (LOOP, TWO_LOOPS):
            ways[name]()  # The parsers learn the forms of answers.
        values = measure_interleaved(ways, repeats, "verification")
    values[WITHOUT] = rates_without
    bad = 2 * ANSWERS // 100
    return Measurement(
        name="verification",
        what=f"Judged answers per second of CPU time, with {ANSWERS} different answers.",
        unit="answers/s",
        ways=values,
        ratios=[
            ratio(values, ONE_WORKER, LOOP, BAR),
            ratio(values, TWO_WORKERS, TWO_LOOPS, BAR),
            Ratio(f"{TWO_WORKERS}, by the clock", ONE_WORKER, ratio(clock_rates, TWO_WORKERS, ONE_WORKER).values),
            ratio(values, CRASHING, LOOP),
            ratio(values, BOTH, LOOP),
            ratio(values, WITHOUT, LOOP, BAR),
        ],
        facts={
            "ms that a bad answer costs besides its own time": 1000
            * statistics.median(
                ((ANSWERS + bad) / with_bad - ANSWERS / good) / bad
                for with_bad, good in zip(rates_without, values[ONE_WORKER], strict=True)
            ),
            "judged answers, all repeats": {name: dict(sorted(count.items())) for name, count in counts.items()},
            "deadline, s": MathVerifySettings().deadline_seconds,
        },
        finding=FINDING,
    )
