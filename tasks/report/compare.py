"""Runs side by side: in the terminal, and over seeds as a table for the documentation."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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


class _Benchmark(NamedTuple):
    """Problems, and the number of samples of each: equal for what can stand side by side."""

    name: str
    k: int
    problems: int
    digest: str


_Set = tuple[_Benchmark, ...]
Measure = Callable[[RunSummary], float | None]
Write = Callable[[float], str]


@dataclass(frozen=True)
class ComparedRun:
    """A finished run among others."""

    summary: RunSummary
    settings: Mapping[str, Any]
    """As ``chosen`` gives them; empty where they are not known."""
    report: str = ""
    """The report's artifact, as ``report/0123abcd``."""
    finished: float = 0.0
    """Unix seconds."""


def compare(runs: Sequence[ComparedRun], width: int | None = None) -> str:
    """A table with a column per run: the settings that differ, accuracy at equal numbers of updates, and times.

    Args:
        runs: to be compared.
        width: columns that a line may have: more runs than that are in several tables; all are in one when None.

    Raises:
        DataError: fewer than two runs.
    """
    if len(runs) < 2:
        raise DataError(f"compare: {len(runs)} run given; allowed: two or more.")
    rows = _rows(runs)
    whole = render(_table(rows, range(len(runs))), _WIDEST)
    if width is None or max(map(len, whole.splitlines())) <= width:
        return whole
    first = max(len(name) for name, _ in filter(None, rows)) + 2
    widest = max(max(map(len, cells)) for _, cells in filter(None, rows[1:])) + 2
    widest = max(widest, *(len(line) + 2 for cell in rows[0][1] for line in cell.splitlines()))  # type: ignore[index]
    each = max(1, (width - first) // min(widest, _WIDEST_CELL + 2))
    places = range(len(runs))
    return "\n\n".join(render(_table(rows, places[at : at + each]), _WIDEST) for at in places[::each])


Row = tuple[str, list[str]]


def _rows(runs: Sequence[ComparedRun]) -> list[Row | None]:
    """Names, with a cell for every run; None between sections."""
    summaries = [run.summary for run in runs]
    rows: list[Row | None] = [("", [f"{one.name}\nseed {one.seed}" for one in summaries])]
    if any(run.report for run in runs):
        rows.append(("report", [run.report.removeprefix("report/")[:8] for run in runs]))
    if len({(one.seed, one.base_policy) for one in summaries}) > len({one.seed for one in summaries}):
        rows.append(("base policy", [one.base_policy[:8] for one in summaries]))
    rows += differing(runs).items()
    rows.append(None)
    rows += [(name, [_cell(measure(one), percent) for one in summaries]) for name, measure in _accuracies(summaries)]
    rows.append(None)
    rows += [
        (name, [_cell(measure(one), duration) for one in summaries]) for name, measure in _times(summaries).items()
    ]
    first = training_seconds(summaries[0].ledger)
    spent = [training_seconds(one.ledger) for one in summaries]
    rows.append(("training speed", [f"{first / seconds:.2f}x" if seconds else MISSING for seconds in spent]))
    return rows


def _table(rows: Sequence[Row | None], places: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    heading, *others = rows
    assert heading is not None
    table.add_column(heading[0], no_wrap=True)
    for place in places:
        table.add_column(heading[1][place], justify="right", max_width=_WIDEST_CELL, overflow="fold")
    for row in others:
        if row is None:
            table.add_section()
        else:
            table.add_row(row[0], *(row[1][place] for place in places))
    return table


def differing(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """The settings in which runs differ, without the seed: by their full name, and for every run.

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
    columns = list(zip(*found.values(), strict=True)) if found else [()] * len(runs)
    told = {
        (run.summary.name, run.summary.seed, run.summary.base_policy, *column)
        for run, column in zip(runs, columns, strict=True)
    }
    if len(told) < len(runs) and any(run.finished for run in runs):
        found["finished"] = [moment(run.finished) for run in runs]
    return found


def comparison_markdown(groups: Mapping[str, Sequence[RunSummary]]) -> str:
    """A markdown table with a column per group of runs that differ in their seed: mean, and range over the seeds.

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
        f"| seeds | {' | '.join(_seeds(group) for group in groups.values())} |",
    ]
    measures: list[tuple[str, Measure, Write]] = [(name, measure, percent) for name, measure in _accuracies(everything)]
    measures += [(name, measure, duration) for name, measure in _times(everything).items()]
    for name, measure, write in measures:
        cells = [_mean_and_range([measure(summary) for summary in group], write) for group in groups.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracies(summaries: Sequence[RunSummary]) -> list[tuple[str, Measure]]:
    """Runs meet at equal numbers of updates, whatever their stages are; other problems are other rows."""
    by_set: dict[_Set, list[RunSummary]] = {}
    for summary in summaries:
        by_set.setdefault(_set(summary), []).append(summary)
    names = _benchmark_names(by_set)
    found: list[tuple[str, Measure]] = []
    for benchmarks, group in by_set.items():
        name = group[0].headline
        if len(by_set) > 1:
            name = f"{' + '.join(names[one] for one in benchmarks)}, {'mean' if len(benchmarks) > 1 else name}"
        for updates in sorted({row.updates for summary in group for row in summary.rows}):
            found.append((f"{name}, {_point(updates)}", partial(_accuracy, benchmarks=benchmarks, updates=updates)))
    for one, name in names.items():
        sets = [benchmarks for benchmarks in by_set if one in benchmarks]
        if any(len(benchmarks) > 1 for benchmarks in sets):
            found.append((f"{name}, at the end", partial(_at_the_end, benchmark=one)))
    return found


def _set(summary: RunSummary) -> _Set:
    """What a run was measured on."""
    return tuple(_benchmark(one) for one in summary.rows[-1].benchmarks)


def _benchmark(row: BenchmarkRow) -> _Benchmark:
    return _Benchmark(row.name, row.samples_per_problem, row.problems, row.digest)


def _benchmark_names(sets: Iterable[_Set]) -> dict[_Benchmark, str]:
    """The benchmarks by names that tell them apart."""
    benchmarks = list(dict.fromkeys(one for benchmarks in sets for one in benchmarks))
    shorts = (
        lambda one: one.name,
        lambda one: f"{one.name} avg@{one.k}",
        lambda one: f"{one.name} avg@{one.k} of {one.problems}",
        lambda one: f"{one.name} avg@{one.k} of {one.problems} {one.digest[:6]}",
    )
    found = {}
    for one in benchmarks:
        unique = (short(one) for short in shorts if [short(other) for other in benchmarks].count(short(one)) == 1)
        found[one] = next(unique)
    return found


def _point(updates: int) -> str:
    return f"{updates} updates" if updates else "base"


def _accuracy(summary: RunSummary, benchmarks: _Set, updates: int) -> float | None:
    if _set(summary) != benchmarks:
        return None
    return next((row.accuracy for row in summary.rows if row.updates == updates), None)


def _at_the_end(summary: RunSummary, benchmark: _Benchmark) -> float | None:
    return next((one.accuracy for one in summary.rows[-1].benchmarks if _benchmark(one) == benchmark), None)


def _times(summaries: Sequence[RunSummary]) -> dict[str, Measure]:
    found = dict.fromkeys(row for summary in summaries for row in summary.ledger)
    rows = [row for row in ROWS if row in found and row != "rest"] + [row for row in found if row not in ROWS]
    times: dict[str, Measure] = {"wall-clock": lambda summary: summary.wall_clock}
    for row in [*rows, "rest"]:
        times[label(row)] = partial(_seconds, row=row)
    times["training"] = lambda summary: training_seconds(summary.ledger)
    return times


def _seconds(summary: RunSummary, row: str) -> float | None:
    return summary.ledger.get(row)


def _cell(value: float | None, write: Write) -> str:
    return MISSING if value is None else write(value)


def _seeds(group: Sequence[RunSummary]) -> str:
    return ", ".join(str(summary.seed) for summary in group)


def _mean_and_range(values: Sequence[float | None], write: Write) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    mean = write(sum(known) / len(known))
    if len(known) < len(values):
        return f"{mean} ({len(known)} of {len(values)} seeds)"
    return mean if len(known) == 1 else f"{mean} ({write(min(known))} to {write(max(known))})"
