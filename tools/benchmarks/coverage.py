"""Coverage of the 95 % intervals of tasks/evaluate/statistics.py: the share that contains the true value.

    python -m tools.benchmarks.coverage

The coverage for values 0 and 1 is computed exactly, at a thousand accuracies. Other values are simulated. The cells
with the smallest coverage are simulated again with more trials, because the smallest of many estimates is too small by
chance. The command takes about half an hour on one core; fewer ``--trials`` take less.

Legend of shapes: P problems, S seeds, C counts of correct problems, T true accuracies.
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

from tasks.evaluate.statistics import DIFFERENCES, interval
from tasks.process.logs import bar
from tools.docs.sections import render_markdown

Values = npt.NDArray[np.float64]
Random = np.random.Generator
PROBLEMS = (1, 2, 3, 5, 10, 30, 100, 500)
SIMULATED = (1, 3, 10, 30, 100, 500)
ACCURACIES = (0.003, 0.03, 0.1, 0.5, 0.9, 0.99)
SAMPLES = (4, 16)
SEEDS = (2, 3, 5)
WORST, MORE_TRIALS = 5, 10
"""The number of cells that are simulated again, and the factor of their trials."""
SEED_SPREAD = 0.02


def equal_problems(accuracy: float, problems: int, random: Random) -> Values:
    """Return the same chance of a correct sample for all problems, [P]."""
    return np.full(problems, accuracy)


def beta_problems(accuracy: float, problems: int, random: Random) -> Values:
    """Return chances of a correct sample, [P], from a wide Beta distribution whose parameters have the sum 2."""
    return random.beta(2 * accuracy, 2 * (1 - accuracy), problems)


def few_halves(accuracy: float, problems: int, random: Random) -> Values:
    """Return chances of a correct sample, [P]: a few are 1/2, and the others are all 0 or all 1."""
    rare = min(accuracy, 1 - accuracy)
    chance_P = np.where(random.random(problems) < 2 * rare, 0.5, 0.0)
    return chance_P if accuracy <= 0.5 else 1 - chance_P


DIFFICULTIES: dict[str, Callable[[float, int, Random], Values]] = {
    "equal": equal_problems,
    "Beta": beta_problems,
    "few at 1/2": few_halves,
}


@dataclass(frozen=True)
class Cell:
    """A simulated case: its row and column in the table, its description, and one trial."""

    kind: str
    problems: int
    case: str
    trial: Callable[[Random], bool]

    def coverage(self, trials: int) -> float:
        """Return the share of trials whose interval contains the true value."""
        random = np.random.default_rng(self.problems)
        return sum(self.trial(random) for _ in range(trials)) / trials


def exact(problems: int) -> tuple[float, float]:
    """Return the smallest coverage for values 0 and 1, which are those of one sample, and the accuracy where it is."""
    rows = [np.array([[1.0] * correct + [0.0] * (problems - correct)]) for correct in range(problems + 1)]
    low_C, high_C = np.array([_bounds(row.tobytes(), problems) for row in rows]).T
    truth_T = np.concatenate([np.linspace(0, 1, 1001), np.geomspace(1e-5, 0.1, 200), 1 - np.geomspace(1e-5, 0.1, 200)])
    chance_CT = stats.binom.pmf(np.arange(problems + 1)[:, None], problems, truth_T)
    covered_CT = (low_C[:, None] <= truth_T) & (truth_T <= high_C[:, None])
    coverage_T = (chance_CT * covered_CT).sum(axis=0)
    return float(coverage_T.min()), float(truth_T[coverage_T.argmin()])


@lru_cache(maxsize=100_000)
def _bounds(values: bytes, problems: int) -> tuple[float, float]:
    result = interval([{"": np.frombuffer(values).reshape(1, problems)}])
    return result.low, result.high


def _solved(difficulty: str, accuracy: float, problems: int, k: int, random: Random) -> Values:
    """Return the sorted shares of correct samples, [P], of k samples each."""
    return np.sort(random.binomial(k, DIFFICULTIES[difficulty](accuracy, problems, random)) / k)


def one_policy(difficulty: str, accuracy: float, problems: int, k: int) -> Cell:
    """Return the case of avg@k of a policy on one benchmark."""

    def trial(random: Random) -> bool:
        low, high = _bounds(_solved(difficulty, accuracy, problems, k, random).tobytes(), problems)
        return low <= accuracy <= high

    return Cell(difficulty, problems, f"accuracy {accuracy:g}, k = {k}", trial)


def two_benchmarks(difficulty: str, accuracy: float, problems: int, k: int) -> Cell:
    """Return the case of a mean over two benchmarks; the other one has 30 problems with accuracy 0.5."""

    def trial(random: Random) -> bool:
        values = {
            "one": _solved(difficulty, accuracy, problems, k, random)[None],
            "other": _solved("Beta", 0.5, 30, k, random)[None],
        }
        result = interval([values])
        return result.low <= (accuracy + 0.5) / 2 <= result.high

    return Cell("mean of two benchmarks", problems, f"{difficulty}, accuracy {accuracy:g}, k = {k}", trial)


def of_seeds(seeds: int, accuracy: float, problems: int, seed_spread: float, paired: bool) -> Cell:
    """Return the case of a mean over seeds whose accuracies differ, or of a paired difference of two equal arms."""
    truth = 0.1 + 0.8 * accuracy

    def arm(level_P: Values, random: Random) -> Values:
        level_SP = level_P + random.normal(0, seed_spread, (seeds, 1))
        return random.binomial(4, np.clip(level_SP, 0, 1)) / 4

    def trial(random: Random) -> bool:
        level_P = 0.1 + 0.8 * beta_problems(accuracy, problems, random)
        if paired:
            result = interval([{"": arm(level_P, random) - arm(level_P, random)}], DIFFERENCES)
            return result.low <= 0 <= result.high
        result = interval([{"": arm(level_P, random)}])
        return result.low <= truth <= result.high

    case = f"{seeds} seeds that differ by {seed_spread:g}, accuracy {truth:g}"
    return Cell(f"{'difference' if paired else 'mean'} of {seeds} seeds", problems, case, trial)


def cells() -> list[Cell]:
    """Return all cases that are simulated."""
    chosen = [
        one_policy(difficulty, accuracy, problems, k)
        for difficulty in DIFFICULTIES
        for problems in SIMULATED
        for accuracy in ACCURACIES
        for k in SAMPLES
    ]
    chosen += [two_benchmarks("few at 1/2", 0.03, problems, 4) for problems in SIMULATED]
    chosen += [two_benchmarks("Beta", 0.5, problems, 4) for problems in SIMULATED]
    return chosen + [
        of_seeds(seeds, accuracy, problems, seed_spread, paired)
        for paired in (False, True)
        for seeds in SEEDS
        for problems in (3, 30, 100)
        for accuracy, seed_spread in ((0.5, 0.0), (0.5, SEED_SPREAD), (0.1, SEED_SPREAD))
    ]


def simulate(chosen: Iterable[Cell], trials: int) -> dict[Cell, float]:
    """Return the coverage of cells, with more trials of the cells where it is smallest."""
    # Each interval of a mean or a difference over seeds draws a weight for every problem, which takes long.
    counts = {cell: max(1, trials // 4) if "seeds" in cell.kind else trials for cell in chosen}
    with bar("coverage", len(counts) + WORST) as progress:
        coverages: dict[Cell, float] = {}
        for cell, count in counts.items():
            coverages[cell] = cell.coverage(count)
            progress.advance()
        for cell in sorted(coverages, key=coverages.__getitem__)[:WORST]:
            coverages[cell] = cell.coverage(MORE_TRIALS * counts[cell])
            progress.advance()
    return coverages


def smallest_table(coverages: dict[Cell, float], exact_coverages: dict[int, tuple[float, float]]) -> Table:
    """Return a table of the smallest coverages in percent, by kind and number of problems."""
    table = Table("values", *map(str, PROBLEMS), box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("0 or 1", *(f"{100 * exact_coverages[problems][0]:.1f}" for problems in PROBLEMS))
    for kind in dict.fromkeys(cell.kind for cell in coverages):
        own = {
            problems: [
                coverage for cell, coverage in coverages.items() if (cell.kind, cell.problems) == (kind, problems)
            ]
            for problems in PROBLEMS
        }
        table.add_row(kind, *(f"{100 * min(some):.1f}" if some else "" for some in own.values()))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the 95 % intervals of accuracies.")
    parser.add_argument(
        "--trials",
        type=int,
        default=400,
        help="trials of a cell; the cells with the smallest coverage get ten times as many; 0 simulates nothing",
    )
    options = parser.parse_args()
    exact_coverages = {problems: exact(problems) for problems in PROBLEMS}
    coverages = simulate(cells(), options.trials) if options.trials else {}
    print(render_markdown(smallest_table(coverages, exact_coverages)))
    problems = min(exact_coverages, key=lambda one: exact_coverages[one][0])
    coverage, accuracy = exact_coverages[problems]
    print(f"\nsmallest, values 0 or 1: {100 * coverage:.2f} % for {problems} problems with accuracy {accuracy:.5g}")
    if coverages:
        cell = min(coverages, key=coverages.__getitem__)
        smallest = 100 * coverages[cell]
        print(f"smallest, simulated: {smallest:.2f} % for {cell.kind}, {cell.problems} problems, {cell.case}")


if __name__ == "__main__":
    main()
