"""Results of a comparison and of the laboratory, with their tables for the terminal and the page.

All accuracies and shares are fractions.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Self

from pydantic import Field, ValidationError
from rich.table import Table

from tasks.errors import DataError
from tasks.evaluate.statistics import Interval
from tasks.formats import (
    DASH,
    duration,
    format_saving,
    label,
    number,
    percent,
    pluralize,
    points_with_interval,
    share_with_interval,
)
from tasks.report.ledger import ROWS
from tasks.report.tables import number_table, render_text
from tasks.settings.base import FlyteModel
from tasks.store import ArtifactRef, Store
from tasks.store.layout import RESULT_FILE

MEAN = "mean"
"""Name of a benchmark that means the mean over all benchmarks."""
ALL = "all models"
"""Name of a model that means all models together."""
LEVEL = 0.05
"""Significance level: a difference is significant if its p-value is below."""
_HOW_TO_READ = (
    "All intervals are 95 % intervals, by bootstrap over problems and a t distribution over seeds. Tests are paired by "
    "seed and problem, and Holm's method adjusts p-values for the number of tests. The Wilcoxon test compares runs "
    "(models x seeds), and needs at least six. d_z is the mean of the runs' paired differences over their standard "
    "deviation, and r is their rank-biserial correlation. Two systems are equal if two one-sided tests show that their "
    "difference lies within {margin} points (p below 0.05)."
)


class _Result(FlyteModel):
    folder: str = ""
    """Folder of the artifact with the page or the figure; empty if there is none."""

    def save(self, folder: Path) -> None:
        (folder / RESULT_FILE).write_text(self.model_dump_json(indent=1, exclude={"folder"}), encoding="utf-8")

    @classmethod
    def load(cls, store: Store, ref: ArtifactRef) -> Self:
        """Load the result of an artifact, with the folder of the artifact.

        Raises:
            DataError: another version of the code wrote the result.
        """
        file = store.path(ref) / RESULT_FILE
        try:
            result = cls.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError as error:
            raise DataError(
                f"{file}: written by another version of the code ({error.error_count()} fields differ). To fix it, "
                f"make this {ref.kind} again; its finished runs are in the cache."
            ) from None
        return result.model_copy(update={"folder": str(file.parent)})


class Cell(FlyteModel):
    """Accuracy of a system with a model on a benchmark, or on the mean of all, after the last update."""

    model: str
    system: str
    benchmark: str
    accuracy: Interval
    """avg@k, mean over seeds, with its 95 % interval over problems and seeds."""
    by_seed: list[float]
    """avg@k of every seed."""
    base: float
    """avg@k of the base policy, mean over seeds."""


class PairedTest(FlyteModel):
    """Test of the reference against a baseline, paired by seed and problem."""

    model: str
    baseline: str
    benchmark: str
    difference: Interval
    """Accuracy of the reference minus that of the baseline, with its 95 % interval over problems and seeds, paired."""
    p_bootstrap: float
    """Two-sided p-value of the bootstrap. Every p-value here is adjusted by Holm: tests on means of benchmarks form one
    family, tests on single benchmarks another."""
    p_wilcoxon: float | None
    """p-value of the signed-rank test over runs, models x seeds; None with too few runs to reach the 5 % level."""
    cohen_dz: float | None
    """Mean of the paired differences over their standard deviation; None if they do not vary."""
    rank_biserial: float | None
    """Rank-biserial correlation of runs without ties: -1 if the baseline is better in each, 1 if the reference is."""
    p_equivalence: float
    """p-value of two one-sided tests that the difference lies within the margin."""
    equivalent: bool
    """True if ``p_equivalence`` is below ``LEVEL``."""


class Times(FlyteModel):
    """Seconds of a system with a model, mean over seeds."""

    model: str
    system: str
    updates: int
    wall_clocks: list[float]
    """Seconds of the runs, one entry for each seed."""
    ledger: dict[str, float]
    """Process-seconds by row."""
    gpu_seconds: dict[str, float]
    """Process-seconds times the GPUs of the pod, by row; empty on machines without GPUs."""


class Speed(FlyteModel):
    """Speed-up of the reference: seconds of a baseline over seconds of the reference."""

    model: str
    baseline: str
    name: str
    """generation, end to end, or to the level of the baseline."""
    ratio: float | None
    """Geometric mean over seeds; None if the ratio of a seed is None."""
    by_seed: list[float | None] = Field(default_factory=list)
    """Ratio of every seed; None if the reference did not reach the baseline's level, or a run has no such seconds."""


class Cause(FlyteModel):
    """Seconds that the reference saves against a baseline for one cause."""

    model: str
    baseline: str
    name: str
    seconds: float
    """Saved seconds per run, mean over seeds; negative if the reference spends more."""


class ReproductionResult(_Result):
    """The result of a reproduction. ``str()`` returns its tables for the terminal."""

    models: list[str]
    systems: list[str]
    seeds: list[int]
    reference: str
    margin: float
    """Largest difference of accuracies that counts as equal."""
    missing: list[str]
    """Names of planned runs that are not finished."""
    cells: list[Cell]
    tests: list[PairedTest]
    times: list[Times]
    speeds: list[Speed]
    causes: list[Cause]

    def __str__(self) -> str:
        parts = [describe_missing(self)] if self.missing else []
        for title, table in tables(self).values():
            parts += [title, render_text(table)]
        parts.append(fill(how_to_read(self), 100))
        if self.folder:
            parts += ["", f"report  {self.folder}/report.html"]
        return "\n".join(parts)


class ArmResult(FlyteModel):
    """The result of an arm of the laboratory over all seeds."""

    name: str
    accuracy: Interval
    """avg@k at the end, mean over seeds."""
    by_seed: list[float]
    """avg@k at the end, of every seed."""
    best: float
    """Highest accuracy of all evaluations of a run, mean over seeds."""
    vetoed: float | None
    """Share of vetoed tokens among all tokens of all updates; None if no run made an update."""
    clipped: float | None
    """Share of clipped tokens, as ``vetoed``."""
    difference: Interval | None = None
    """Accuracy minus the accuracy of the reference arm, paired by seed and problem; None for the reference arm."""
    p: float | None = None
    """p-value of the bootstrap, adjusted by Holm for the number of arms."""
    stopped: list[str]
    """Messages of runs that ended early."""


class LaboratoryResult(_Result):
    """The result of a part of the laboratory. ``str()`` returns a table for the terminal."""

    part: str
    title: str
    asks: str
    reference: str
    seeds: int
    problems: int
    updates: int
    base: float
    """Accuracy of the base policy, mean over seeds."""
    arms: list[ArmResult]

    def __str__(self) -> str:
        table = render_text(arms_table(self))
        lines = [f"{self.part}. {self.title}", self.asks, "", table, "", fill(laboratory_legend(self), 100)]
        return "\n".join([*lines, "", f"figure  {self.folder}/curves.svg"] if self.folder else lines)


def describe_missing(result: ReproductionResult) -> str:
    """Return a sentence with the names of the runs that are not finished."""
    verb = "is" if len(result.missing) == 1 else "are"
    return f"Not finished; {pluralize(len(result.missing), 'run')} {verb} missing: {'; '.join(result.missing)}."


def how_to_read(result: ReproductionResult) -> str:
    """Return the explanation of the tables' columns."""
    return _HOW_TO_READ.format(margin=f"{100 * result.margin:g}")


def tables(result: ReproductionResult) -> dict[str, tuple[str, Table]]:
    """Return title and table by the name of the table; tables without rows are left out."""
    seeds = sorted({len(cell.by_seed) for cell in result.cells})
    numbers = f"{seeds[0]} to " if len(seeds) > 1 else ""
    ledger = "Process-seconds by phase, mean over seeds; making the base policy is not part of training"
    named = {
        "accuracy": (f"Accuracy after the last update, {numbers}{pluralize(seeds[-1], 'seed')}", _accuracies(result)),
        "tests": (f"{result.reference} minus each baseline", _tests(result)),
        "times": ("Seconds of training, mean over seeds", _times(result)),
        "speeds": (f"How much faster {result.reference} is", _speeds(result)),
        "causes": (f"Seconds that {result.reference} saves, by cause", _causes(result)),
        "ledger": (ledger, _ledgers({(one.model, one.system): one.ledger for one in result.times})),
        "gpus": (
            "GPU-seconds: process-seconds of a step, times the GPUs of its pod",
            _ledgers({(one.model, one.system): one.gpu_seconds for one in result.times}),
        ),
    }
    return {name: (title, table) for name, (title, table) in named.items() if table.row_count}


def _accuracies(result: ReproductionResult) -> Table:
    cells = {(cell.model, cell.benchmark, cell.system): cell for cell in result.cells}
    rows = []
    for model, benchmark in dict.fromkeys((cell.model, cell.benchmark) for cell in result.cells):
        row = [cells.get((model, benchmark, system)) for system in result.systems]
        base = max((cell for cell in row if cell), key=lambda cell: len(cell.by_seed)).base  # Runs may be missing.
        shown = [share_with_interval(one.accuracy) if one else DASH for one in row]
        rows.append((model, _benchmark(benchmark), percent(base), *shown))
    return number_table("", ("model", "benchmark"), ("base", *result.systems), rows)


def _benchmark(name: str) -> str:
    return "mean of all" if name == MEAN else name


def _tests(result: ReproductionResult) -> Table:
    headings = ("difference (95 %)", "p bootstrap", "p Wilcoxon", "d_z", "r", "p equal", "equal")
    rows = [
        (
            test.baseline,
            test.model,
            _benchmark(test.benchmark),
            points_with_interval(test.difference),
            p_value(test.p_bootstrap),
            p_value(test.p_wilcoxon),
            number(test.cohen_dz, 2),
            number(test.rank_biserial, 2),
            p_value(test.p_equivalence),
            "yes" if test.equivalent else "not shown",
        )
        for test in result.tests
    ]
    return number_table("", ("against", "model", "benchmark"), headings, rows)


def p_value(p: float | None) -> str:
    """Return a p-value as text: ``0.012`` or ``< 0.001``."""
    return number(p, 3) if p is None or p >= 0.001 else "< 0.001"


def _times(result: ReproductionResult) -> Table:
    rows = [
        (
            one.model,
            one.system,
            str(one.updates),
            duration(mean(one.wall_clocks)),
            ", ".join(map(duration, one.wall_clocks)),
        )
        for one in result.times
    ]
    return number_table("", ("model", "system"), ("updates", "wall-clock", "by seed"), rows)


def _ledgers(ledgers: Mapping[tuple[str, str], Mapping[str, float]]) -> Table:
    """Return a table with a row per model and system, and a column per row of their ledgers."""
    columns = [row for row in ROWS if any(row in ledger for ledger in ledgers.values())]
    rows = [(*names, *(number(ledger.get(row)) for row in columns)) for names, ledger in ledgers.items() if ledger]
    return number_table("", ("model", "system"), [label(row) for row in columns], rows)


def _speeds(result: ReproductionResult) -> Table:
    rows = []
    for one in result.speeds:
        ratio = "not on every seed" if one.ratio is None else number(one.ratio, 2)
        rows.append((one.baseline, one.model, one.name, ratio, " ".join(number(each, 2) for each in one.by_seed)))
    return number_table("", ("against", "model", ""), ("times as fast", "by seed"), rows)


def _causes(result: ReproductionResult) -> Table:
    columns = list(dict.fromkeys((cause.model, cause.baseline) for cause in result.causes))
    seconds = {(cause.model, cause.baseline, cause.name): cause.seconds for cause in result.causes}
    rows = []
    for name in dict.fromkeys(cause.name for cause in result.causes):
        saved = [seconds.get((*column, name)) for column in columns]
        rows.append((name, *(DASH if one is None else format_saving(one) for one in saved)))
    if columns:
        sums = [sum(one.seconds for one in result.causes if (one.model, one.baseline) == column) for column in columns]
        rows.append(("total", *map(format_saving, sums)))
    return number_table("", ("",), [f"{model}, against {baseline}" for model, baseline in columns], rows)


def laboratory_legend(result: LaboratoryResult) -> str:
    """Return the explanation of the table of ``arms_table``."""
    return (
        f"{pluralize(result.seeds, 'seed')}, {result.updates} updates, {result.problems} held-out problems. The base "
        f"policy has {percent(result.base)}. A difference is the arm's accuracy minus that of {result.reference!r}, "
        "paired by seed and problem. Intervals and p are by bootstrap over problems and a t distribution over seeds, "
        "and p is adjusted by Holm's method."
    )


def arms_table(result: LaboratoryResult) -> Table:
    """Return the table of a part of the laboratory, with a row per arm."""
    headings = ("final accuracy (95 %)", "by seed", "best", "vetoed", "clipped", "difference (95 %)", "p")
    rows = [
        (
            arm.name + (" (stopped)" if arm.stopped else ""),
            share_with_interval(arm.accuracy),
            " ".join(f"{100 * one:.0f}" for one in arm.by_seed),
            percent(arm.best),
            percent(arm.vetoed),
            percent(arm.clipped),
            points_with_interval(arm.difference) if arm.difference else "",
            "" if arm.p is None else p_value(arm.p),
        )
        for arm in result.arms
    ]
    return number_table("", ("arm",), headings, rows)
