"""How often the 95 % intervals of tasks/evaluate/statistics.py hold the truth, by simulation.

    python -m tools.benchmarks.coverage

Coverage of values 0 and 1 is computed without chance, at a thousand accuracies, from the interval of every count. The
rest is simulated; the worst cells are simulated again with more trials, since the least of many cells is too low by
chance. Takes about half an hour on one core; ``--trials`` makes it shorter.
"""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table
from scipy import stats

from tasks.evaluate.statistics import DIFFERENCES, interval, interval_of
from tasks.process.progress import bar
from tasks.report.tables import render_markdown

Values = npt.NDArray[np.float64]
Random = np.random.Generator
PROBLEMS = (1, 2, 3, 5, 10, 30, 100, 500)
SIMULATED = (1, 3, 10, 30, 100, 500)
ACCURACIES = (0.003, 0.03, 0.1, 0.5, 0.9, 0.99)
SAMPLES = (4, 16)
SEEDS = (2, 3, 5)
WORST, AGAIN = 5, 10
"""The number of worst cells that are simulated again, and the factor of their trials."""
SEED_SPREAD = 0.02


def alike(accuracy: float, many: int, random: Random) -> Values:
    """[P], problems that are all as hard."""
    return np.full(many, accuracy)


def spread(accuracy: float, many: int, random: Random) -> Values:
    """[P], from a Beta distribution as wide as can be with one top or none."""
    return random.beta(2 * accuracy, 2 * (1 - accuracy), many)


def few(accuracy: float, many: int, random: Random) -> Values:
    """[P], most problems are all as good as certain; few are solved every second time."""
    rare = min(accuracy, 1 - accuracy)
    half = np.where(random.random(many) < 2 * rare, 0.5, 0.0)
    return half if accuracy <= 0.5 else 1 - half


DIFFICULTIES: dict[str, Callable[[float, int, Random], Values]] = {
    "all alike": alike,
    "Beta": spread,
    "few at a half": few,
}


@dataclass(frozen=True)
class Cell:
    """A case, its rows and columns in the table, and one trial of it."""

    kind: str
    problems: int
    case: str
    trial: Callable[[Random], bool]

    def coverage(self, trials: int) -> float:
        """The share of trials whose interval holds the truth."""
        random = np.random.default_rng(self.problems)
        return sum(self.trial(random) for _ in range(trials)) / trials


def exact(problems: int) -> tuple[float, float]:
    """The least coverage of values 0 and 1 (k = 1, or problems that are solved always or never), and where it is."""
    rows = [np.array([[1.0] * correct + [0.0] * (problems - correct)]) for correct in range(problems + 1)]
    found = [_bounds(row.tobytes(), problems) for row in rows]
    low_C, high_C = np.array(found).T
    truth_T = np.concatenate([np.linspace(0, 1, 1001), np.geomspace(1e-5, 0.1, 200), 1 - np.geomspace(1e-5, 0.1, 200)])
    chance_CT = stats.binom.pmf(np.arange(problems + 1)[:, None], problems, truth_T)
    holds_CT = (low_C[:, None] <= truth_T) & (truth_T <= high_C[:, None])
    coverage_T = (chance_CT * holds_CT).sum(axis=0)
    return float(coverage_T.min()), float(truth_T[coverage_T.argmin()])


@lru_cache(maxsize=100_000)
def _bounds(values: bytes, problems: int) -> tuple[float, float]:
    got = interval(np.frombuffer(values).reshape(1, problems))
    return got.low, got.high


def _solved(difficulty: str, accuracy: float, problems: int, k: int, random: Random) -> Values:
    """[P], the sorted shares of k samples that are correct."""
    return np.sort(random.binomial(k, DIFFICULTIES[difficulty](accuracy, problems, random)) / k)


def one_policy(difficulty: str, accuracy: float, problems: int, k: int) -> Cell:
    """avg@k of a policy on one benchmark."""

    def trial(random: Random) -> bool:
        low, high = _bounds(_solved(difficulty, accuracy, problems, k, random).tobytes(), problems)
        return low <= accuracy <= high

    return Cell(difficulty, problems, f"accuracy {accuracy:g}, k = {k}", trial)


def two_benchmarks(difficulty: str, accuracy: float, problems: int, k: int) -> Cell:
    """The mean over two benchmarks, one of 30 problems that are solved half of the time."""

    def trial(random: Random) -> bool:
        values = {
            "one": _solved(difficulty, accuracy, problems, k, random)[None],
            "other": _solved("Beta", 0.5, 30, k, random)[None],
        }
        got = interval_of([values])
        return got.low <= (accuracy + 0.5) / 2 <= got.high

    return Cell("mean of two benchmarks", problems, f"{difficulty}, accuracy {accuracy:g}, k = {k}", trial)


def of_seeds(seeds: int, accuracy: float, problems: int, spread_of_seeds: float, paired: bool) -> Cell:
    """The mean over seeds whose accuracies differ, or of the paired difference of two arms that are alike."""
    truth = 0.1 + 0.8 * accuracy

    def arm(level_P: Values, random: Random) -> Values:
        level_SP = level_P + random.normal(0, spread_of_seeds, (seeds, 1))
        return random.binomial(4, np.clip(level_SP, 0, 1)) / 4

    def trial(random: Random) -> bool:
        level_P = 0.1 + 0.8 * spread(accuracy, problems, random)
        if paired:
            got = interval(arm(level_P, random) - arm(level_P, random), DIFFERENCES)
            return got.low <= 0 <= got.high
        got = interval(arm(level_P, random))
        return got.low <= truth <= got.high

    case = f"{seeds} seeds that differ by {spread_of_seeds:g}, accuracy {truth:g}"
    return Cell(f"{'difference' if paired else 'mean'} of {seeds} seeds", problems, case, trial)


def cells() -> list[Cell]:
    """All that are simulated."""
    found = [
        one_policy(difficulty, accuracy, problems, k)
        for difficulty in DIFFICULTIES
        for problems in SIMULATED
        for accuracy in ACCURACIES
        for k in SAMPLES
    ]
    found += [two_benchmarks("few at a half", 0.03, problems, 4) for problems in SIMULATED]
    found += [two_benchmarks("Beta", 0.5, problems, 4) for problems in SIMULATED]
    return found + [
        of_seeds(seeds, accuracy, problems, differ, paired)
        for paired in (False, True)
        for seeds in SEEDS
        for problems in (3, 30, 100)
        for accuracy, differ in ((0.5, 0.0), (0.5, SEED_SPREAD), (0.1, SEED_SPREAD))
    ]


def measured(chosen: Iterable[Cell], trials: int) -> dict[Cell, float]:
    """The coverage of cells, the worst of them with more trials."""
    # Means and differences of seeds take long: each interval draws a weight for every problem.
    many = {cell: max(1, trials // 4) if "seeds" in cell.kind else trials for cell in chosen}
    with bar("coverage", len(many) + WORST) as progress:
        found: dict[Cell, float] = {}
        for cell, count in many.items():
            found[cell] = cell.coverage(count)
            progress.advance()
        for cell in sorted(found, key=found.__getitem__)[:WORST]:
            found[cell] = cell.coverage(AGAIN * many[cell])
            progress.advance()
    return found


def table(found: dict[Cell, float], exactly: dict[int, tuple[float, float]]) -> Table:
    """The least coverage of every kind and number of problems, in percent."""
    made = Table(box=box.SIMPLE_HEAD)
    made.add_column("values")
    for problems in PROBLEMS:
        made.add_column(str(problems), justify="right")
    made.add_row("0 or 1", *(f"{100 * exactly[problems][0]:.1f}" for problems in PROBLEMS))
    for kind in dict.fromkeys(cell.kind for cell in found):
        least = {
            problems: min(
                (found[cell] for cell in found if (cell.kind, cell.problems) == (kind, problems)), default=None
            )
            for problems in PROBLEMS
        }
        made.add_row(kind, *("" if one is None else f"{100 * one:.1f}" for one in least.values()))
    return made


def main() -> None:
    """Prints the table and the worst cell."""
    parser = argparse.ArgumentParser(description="Coverage of the 95 % intervals, by simulation.")
    parser.add_argument(
        "--trials",
        type=int,
        default=400,
        help="of a cell, ten times as many of the worst ones; with 0 nothing is simulated",
    )
    options = parser.parse_args()
    exactly = {problems: exact(problems) for problems in PROBLEMS}
    found = measured(cells(), options.trials) if options.trials else {}
    print(render_markdown(table(found, exactly)))
    problems = min(exactly, key=lambda one: exactly[one][0])
    print(
        f"\nworst of 0 or 1: {100 * exactly[problems][0]:.2f} % with {problems} problems at {exactly[problems][1]:.5g}"
    )
    if found:
        worst = min(found, key=found.__getitem__)
        print(f"worst simulated: {100 * found[worst]:.2f} % of {worst.kind}, {worst.problems} problems, {worst.case}")


if __name__ == "__main__":
    main()
