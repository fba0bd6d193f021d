"""Results of a comparison and of the laboratory, and their tables: for the terminal, documentation and the page.

All accuracies and shares are fractions.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Self

from pydantic import ConfigDict, Field
from rich.table import Table

from tasks.formats import MISSING, duration, format_saving, label, number, percent, percent_range, points
from tasks.report.ledger import ROWS
from tasks.report.tables import number_table, render, render_markdown
from tasks.settings.base import FlyteModel
from tasks.store import ArtifactRef, Store
from tasks.store.layout import RESULT_FILE

MEAN = "mean"
"""Stands for the mean over the benchmarks where a benchmark is named."""
ALL = "all models"
"""Stands for all models together where a model is named."""
LEVEL = 0.05
"""A difference whose p is below it is told apart from none."""
_COLUMNS = 132
_HOW_TO_READ = (
    "Intervals are of 95 %, by bootstrap over problems and a t distribution over seeds; tests are paired by seed and "
    "problem, their p-values adjusted by Holm for their number. Wilcoxon is over runs, models x seeds, from six of "
    "them on. d_z is the mean paired difference of runs in its standard deviations, r their rank-biserial correlation. "
    "Equal: two one-sided tests put the difference within the margin of {margin} points, p below 0.05."
)


class _Row(FlyteModel):
    model_config = ConfigDict(frozen=True)


class _Result(_Row):
    folder: str = ""
    """Folder of the artifact that holds the page or the figure."""

    def save(self, folder: Path) -> None:
        (folder / RESULT_FILE).write_text(self.model_dump_json(indent=1, exclude={"folder"}), encoding="utf-8")

    @classmethod
    def load(cls, store: Store, ref: ArtifactRef) -> Self:
        """Read the result of an artifact, with the artifact's folder."""
        folder = store.path(ref)
        result = cls.model_validate_json((folder / RESULT_FILE).read_text(encoding="utf-8"))
        return result.model_copy(update={"folder": str(folder)})


class Cell(_Row):
    """A system with a model on a benchmark, or on the mean of all, after its last update."""

    model: str
    system: str
    benchmark: str
    accuracy: float
    """avg@k, mean over seeds."""
    low: float
    """Lower end of the 95 % interval over problems and seeds."""
    high: float
    by_seed: list[float]
    base: float
    """Before training, mean over seeds."""


class PairedTest(_Row):
    """The reference against a baseline, paired by seed and problem."""

    model: str
    baseline: str
    benchmark: str
    difference: float
    """Accuracy of the reference minus that of the baseline."""
    low: float
    """Lower end of the 95 % interval over problems and seeds, paired."""
    high: float
    p_bootstrap: float
    """Two-sided, adjusted by Holm for all tests on means, or all on single benchmarks, of the reproduction."""
    p_wilcoxon: float | None
    """Signed rank over runs, models x seeds, adjusted likewise; None with too few to reach the 5 % level."""
    cohen_dz: float | None
    """Mean of the paired differences by their standard deviation; None where they do not vary."""
    rank_biserial: float | None
    """Rank-biserial correlation of runs: -1 where the baseline is better in every run, 1 where the reference is."""
    p_equivalence: float
    """p of two one-sided tests that the difference lies within the margin; adjusted likewise."""
    equivalent: bool


class Times(_Row):
    """Seconds of a system with a model, mean over seeds."""

    model: str
    system: str
    updates: int
    wall_clocks: list[float]
    """Seconds of the runs, one entry for each seed."""
    ledger: dict[str, float]
    """Process-seconds by row."""
    gpu_seconds: dict[str, float]
    """Process-seconds times the GPUs of the pod, by row; empty on machines without one."""


class Speed(_Row):
    """Seconds of a baseline over those of the reference: the geometric mean over seeds, and every seed's."""

    model: str
    baseline: str
    name: str
    """generation, end to end, to the level of the baseline."""
    ratio: float | None
    """None where the reference never reached the baseline's level."""
    by_seed: list[float | None] = Field(default_factory=list)


class Cause(_Row):
    """A part of the seconds that the reference saves against a baseline."""

    model: str
    baseline: str
    name: str
    seconds: float
    """Saved per run, mean over seeds; negative where the reference spends more."""


class ReproductionResult(_Result):
    """All that a reproduction's tables show. ``str()`` of it is those tables for the terminal."""

    models: list[str]
    systems: list[str]
    seeds: list[int]
    reference: str
    margin: float
    missing: list[str]
    cells: list[Cell]
    tests: list[PairedTest]
    times: list[Times]
    speeds: list[Speed]
    causes: list[Cause]

    def __str__(self) -> str:
        parts = [_missing(self)] if self.missing else []
        for title, table in tables(self).values():
            parts += [title, render(table, _COLUMNS)]
        parts.append(fill(how_to_read(self), 100))
        if self.folder:
            parts += ["", f"report  {self.folder}/report.html"]
        return "\n".join(parts)


class ArmResult(_Row):
    """An arm of the laboratory over all its seeds."""

    name: str
    accuracy: float
    """avg@k at the end, mean over seeds."""
    low: float
    high: float
    by_seed: list[float]
    best: float
    """The highest accuracy along the way, mean over seeds."""
    vetoed: float | None
    clipped: float | None
    difference: float | None = None
    """Accuracy minus that of the reference arm, paired by seed and problem; None for the reference itself."""
    difference_low: float | None = None
    difference_high: float | None = None
    p: float | None = None
    """p by the bootstrap that gives the interval, adjusted by Holm for the number of arms."""
    stopped: list[str]
    """Messages of runs that a gate stopped."""


class LaboratoryResult(_Result):
    """A part of the laboratory. ``str()`` of it is a table for the terminal."""

    part: str
    title: str
    asks: str
    reference: str
    seeds: int
    problems: int
    updates: int
    base: float
    """Accuracy before training."""
    arms: list[ArmResult]

    def __str__(self) -> str:
        table = render(arms_table(self), _COLUMNS)
        lines = [f"{self.part}. {self.title}", self.asks, "", table, "", fill(_laboratory_legend(self), 100)]
        return "\n".join([*lines, "", f"figure  {self.folder}/curves.svg"] if self.folder else lines)


def markdown(result: ReproductionResult) -> str:
    """Return all tables for a page of documentation."""
    parts = [_missing(result)] if result.missing else []
    for title, table in tables(result).values():
        parts += [f"**{title}**", render_markdown(table)]
    return "\n\n".join([*parts, how_to_read(result)]) + "\n"


def _missing(result: ReproductionResult) -> str:
    return f"Not finished; {len(result.missing)} runs are missing: {'; '.join(result.missing)}."


def how_to_read(result: ReproductionResult) -> str:
    """Explain the columns of the tables."""
    return _HOW_TO_READ.format(margin=f"{100 * result.margin:g}")


def tables(result: ReproductionResult) -> dict[str, tuple[str, Table]]:
    """Return all tables with their titles, by what they are about; those without a row are left out."""
    seeds = sorted({len(cell.by_seed) for cell in result.cells})
    numbers = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    ledger = "Process-seconds by what they were spent on, mean over seeds; making the base policy is no training"
    found = {
        "accuracy": (f"Accuracy after the last update, {numbers} seeds", _accuracies(result)),
        "tests": (f"{result.reference} minus each baseline", _tests(result)),
        "times": ("Seconds of training, mean over seeds", _times(result)),
        "speeds": (f"How much faster {result.reference} is", _speeds(result)),
        "causes": (f"Seconds that {result.reference} saves, by cause", _causes(result)),
        "ledger": (ledger, _ledgers({(one.model, one.system): one.ledger for one in result.times})),
        "gpus": (
            "GPU-seconds: those of the step, times the GPUs of its pod",
            _ledgers({(one.model, one.system): one.gpu_seconds for one in result.times}),
        ),
    }
    return {name: (title, table) for name, (title, table) in found.items() if table.row_count}


def _accuracies(result: ReproductionResult) -> Table:
    cells = {(cell.model, cell.benchmark, cell.system): cell for cell in result.cells}
    rows = []
    for model, benchmark in dict.fromkeys((cell.model, cell.benchmark) for cell in result.cells):
        row = [cells.get((model, benchmark, system)) for system in result.systems]
        base = next(cell.base for cell in row if cell)
        shown = [f"{percent(one.accuracy)} ({percent_range(one.low, one.high)})" if one else MISSING for one in row]
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
            f"{points(test.difference)} ({points(test.low)} to {points(test.high)})",
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
    """``0.012``, ``< 0.001``."""
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
    """Return the seconds of each model and system, a column per row of the ledgers."""
    columns = [row for row in ROWS if any(row in one for one in ledgers.values())]
    rows = [(*of, *(number(one.get(row)) for row in columns)) for of, one in ledgers.items() if one]
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
        found = [seconds.get((*column, name)) for column in columns]
        rows.append((name, *(MISSING if one is None else format_saving(one) for one in found)))
    if columns:
        sums = [sum(one.seconds for one in result.causes if (one.model, one.baseline) == column) for column in columns]
        rows.append(("in all", *map(format_saving, sums)))
    return number_table("", ("",), [f"{model}, against {baseline}" for model, baseline in columns], rows)


def laboratory_markdown(result: LaboratoryResult) -> str:
    """Return the table of a part of the laboratory for a page."""
    return f"{render_markdown(arms_table(result))}\n\n{_laboratory_legend(result)}"


def _laboratory_legend(result: LaboratoryResult) -> str:
    return (
        f"{result.seeds} seeds, {result.updates} updates, {result.problems} held-out problems; the base policy has "
        f"{percent(result.base)}. Differences are to {result.reference!r}, paired by seed and problem; intervals by "
        "bootstrap over problems and a t distribution over seeds, p by the same, adjusted by Holm."
    )


def arms_table(result: LaboratoryResult) -> Table:
    """Return the arms of a part of the laboratory."""
    headings = ("at the end (95 %)", "seeds", "best", "vetoed", "clipped", "difference (95 %)", "p")
    rows = []
    for arm in result.arms:
        low, high = points(arm.difference_low), points(arm.difference_high)
        rows.append(
            (
                arm.name + (" (stopped)" if arm.stopped else ""),
                f"{percent(arm.accuracy)} ({percent_range(arm.low, arm.high)})",
                " ".join(f"{100 * one:.0f}" for one in arm.by_seed),
                percent(arm.best),
                percent(arm.vetoed),
                percent(arm.clipped),
                "" if arm.difference is None else f"{points(arm.difference)} ({low} to {high})",
                "" if arm.p is None else p_value(arm.p),
            )
        )
    return number_table("", ("arm",), headings, rows)
