"""Runs side by side: in the terminal, and over seeds as a table for the documentation."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from tasks.errors import DataError
from tasks.report.formats import MISSING, duration, label, moment, percent
from tasks.report.ledger import ROWS, training_seconds
from tasks.report.parameters import written
from tasks.report.summary import BenchmarkRow, RunSummary
from tasks.report.tables import render

_WIDEST, _WIDEST_CELL = 4000, 30
Row = tuple[str, list[str]]
"""The name of a measure or setting, and a cell for every run."""
_Benchmark = tuple[str, str, str, str]
"""What runs must have in common to stand side by side: name, samples per problem, number of problems, digest."""


class _Measure(NamedTuple):
    """Something that runs are compared by."""

    name: str
    of: Callable[[RunSummary], float | None]
    write: Callable[[float], str]

    def cell(self, summary: RunSummary) -> str:
        """Return the value of a run as text."""
        value = self.of(summary)
        return MISSING if value is None else self.write(value)


@dataclass(frozen=True)
class ComparedRun:
    """A finished run among others."""

    summary: RunSummary
    settings: Mapping[str, Any]
    """As ``chosen`` returns them; empty where they are not known."""
    report: str = ""
    """The report's artifact, such as ``report/0123abcd``."""
    finished: float = 0.0
    """Unix seconds."""


def compare(runs: Sequence[ComparedRun], width: int | None = None) -> str:
    """Return a table with a column per run: the settings that differ, accuracy at equal numbers of updates, and times.

    Args:
        runs: the runs.
        width: most columns of a line; more runs than fit are in several tables. None puts all into one.

    Raises:
        DataError: there are fewer than two runs.
    """
    if len(runs) < 2:
        raise DataError(f"compare: {len(runs)} run given; allowed: two or more.")
    summaries = [run.summary for run in runs]
    heading = [f"{one.name}\nseed {one.seed}" for one in summaries]
    first = training_seconds(summaries[0].ledger)
    spent = [training_seconds(one.ledger) for one in summaries]
    speed = [f"{first / seconds:.2f}x" if seconds else MISSING for seconds in spent]
    sections = [
        _named(runs),
        [(one.name, [one.cell(summary) for summary in summaries]) for one in _accuracies(summaries)],
        [(one.name, [one.cell(summary) for summary in summaries]) for one in _times(summaries)],
    ]
    sections[2].append(("training speed", speed))
    whole = _table(heading, sections, range(len(runs)))
    if width is None or max(map(len, whole.splitlines())) <= width:
        return whole
    rows = [row for section in sections for row in section]
    names = max(len(name) for name, _ in rows) + 2
    cells = [line for cell in heading for line in cell.splitlines()] + [cell for _, row in rows for cell in row]
    each = max(1, (width - names) // min(max(map(len, cells)) + 2, _WIDEST_CELL + 2))
    places = range(len(runs))
    return "\n\n".join(_table(heading, sections, places[at : at + each]) for at in places[::each])


def _named(runs: Sequence[ComparedRun]) -> list[Row]:
    """Return the rows that tell runs apart."""
    summaries = [run.summary for run in runs]
    rows: list[Row] = []
    if any(run.report for run in runs):
        rows.append(("report", [run.report.removeprefix("report/")[:8] for run in runs]))
    if len({(one.seed, one.base_policy) for one in summaries}) > len({one.seed for one in summaries}):
        rows.append(("base policy", [one.base_policy[:8] for one in summaries]))
    return [*rows, *differing(runs).items()]


def _table(heading: Sequence[str], sections: Sequence[Sequence[Row]], places: Sequence[int]) -> str:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    for place in places:
        table.add_column(heading[place], justify="right", max_width=_WIDEST_CELL, overflow="fold")
    for section in sections:
        for name, cells in section:
            table.add_row(name, *(cells[place] for place in places))
        table.add_section()
    return render(table, _WIDEST)


def differing(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """Return the settings in which runs differ, without the seed, by their full name, with the value of every run.

    Where runs cannot be told apart by them, as those of another version of the code, the time at which they ended is
    one more.
    """
    stages = [len(run.summary.rows) - 1 for run in runs]
    known = [{**run.settings, **({"stages": at} if run.settings else {})} for run, at in zip(runs, stages, strict=True)]
    names = dict.fromkeys(name for one in known for name in one if name != "seed")
    found = {
        name: [written(one[name]) if name in one else MISSING for one in known]
        for name in names
        if len({json.dumps(one.get(name)) for one in known}) > 1
    }
    told = {
        (run.summary.name, run.summary.seed, run.summary.base_policy, *(values[place] for values in found.values()))
        for place, run in enumerate(runs)
    }
    if len(told) < len(runs) and any(run.finished for run in runs):
        found["finished"] = [moment(run.finished) for run in runs]
    return found


def comparison_markdown(groups: Mapping[str, Sequence[RunSummary]]) -> str:
    """Return a markdown table with a column per group of runs that differ in their seed: mean and range over seeds.

    Args:
        groups: runs by the heading of their column.

    Raises:
        DataError: there is no group, one is empty, or one has two runs of a seed.
    """
    if not groups or not all(groups.values()):
        raise DataError("comparison: every group must have at least one run.")
    for name, group in groups.items():
        seeds = [summary.seed for summary in group]
        if twice := {seed for seed in seeds if seeds.count(seed) > 1}:
            raise DataError(
                f"comparison: {name} has {seeds.count(min(twice))} runs of seed {min(twice)}, which began with "
                "different policies; allowed: one run of a seed. Keep runs of each model in a store of their own."
            )
    everything = [summary for group in groups.values() for summary in group]
    lines = [
        f"| | {' | '.join(name.replace('|', '/') for name in groups)} |",
        f"|---|{'---:|' * len(groups)}",
        f"| seeds | {' | '.join(', '.join(str(one.seed) for one in group) for group in groups.values())} |",
    ]
    for one in (*_accuracies(everything), *_times(everything)):
        lines.append(f"| {one.name} | {' | '.join(_mean_and_range(one, group) for group in groups.values())} |")
    return "\n".join(lines) + "\n"


def _mean_and_range(measure: _Measure, group: Sequence[RunSummary]) -> str:
    known = [value for value in map(measure.of, group) if value is not None]
    if not known:
        return MISSING
    mean = measure.write(sum(known) / len(known))
    if len(known) < len(group):
        return f"{mean} ({len(known)} of {len(group)} seeds)"
    return mean if len(known) == 1 else f"{mean} ({measure.write(min(known))} to {measure.write(max(known))})"


def _accuracies(summaries: Sequence[RunSummary]) -> list[_Measure]:
    """Return accuracies at equal numbers of updates, whatever the stages are; other problems are other measures."""
    by_set: dict[tuple[_Benchmark, ...], list[RunSummary]] = {}
    for summary in summaries:
        by_set.setdefault(_measured_on(summary), []).append(summary)
    names = _short_names(dict.fromkeys(one for benchmarks in by_set for one in benchmarks))
    found = []
    for benchmarks, group in by_set.items():
        name = group[0].headline
        if len(by_set) > 1:
            name = f"{' + '.join(names[one] for one in benchmarks)}, {'mean' if len(benchmarks) > 1 else name}"
        for updates in sorted({row.updates for summary in group for row in summary.rows}):
            point = f"{updates} updates" if updates else "base"
            found.append(_Measure(f"{name}, {point}", partial(_accuracy, benchmarks, updates), percent))
    for one, name in names.items():
        if any(one in benchmarks and len(benchmarks) > 1 for benchmarks in by_set):
            found.append(_Measure(f"{name}, at the end", partial(_at_the_end, one), percent))
    return found


def _measured_on(summary: RunSummary) -> tuple[_Benchmark, ...]:
    return tuple(map(_benchmark, summary.rows[-1].benchmarks))


def _benchmark(row: BenchmarkRow) -> _Benchmark:
    return row.name, f"avg@{row.samples_per_problem}", f"of {row.problems}", row.digest[:6]


def _short_names(benchmarks: Mapping[_Benchmark, None]) -> dict[_Benchmark, str]:
    """Return names of the benchmarks that tell them apart."""
    found = {}
    for one in benchmarks:
        lengths = (length for length in (1, 2, 3) if [other[:length] for other in benchmarks].count(one[:length]) == 1)
        found[one] = " ".join(one[: next(lengths, 4)])
    return found


def _accuracy(benchmarks: tuple[_Benchmark, ...], updates: int, summary: RunSummary) -> float | None:
    rows = summary.rows if _measured_on(summary) == benchmarks else []
    return next((row.accuracy for row in rows if row.updates == updates), None)


def _at_the_end(benchmark: _Benchmark, summary: RunSummary) -> float | None:
    return next((one.accuracy for one in summary.rows[-1].benchmarks if _benchmark(one) == benchmark), None)


def _times(summaries: Sequence[RunSummary]) -> list[_Measure]:
    found = dict.fromkeys(row for summary in summaries for row in summary.ledger)
    rows = [row for row in ROWS if row in found and row != "rest"] + [row for row in found if row not in ROWS]
    return [
        _Measure("wall-clock", lambda summary: summary.wall_clock, duration),
        *(_Measure(label(row), partial(_seconds, row), duration) for row in [*rows, "rest"]),
        _Measure("training", lambda summary: training_seconds(summary.ledger), duration),
    ]


def _seconds(row: str, summary: RunSummary) -> float | None:
    return summary.ledger.get(row)
