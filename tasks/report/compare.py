"""Runs side by side: in the terminal, and over seeds as a table for the documentation."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.errors import DataError
from tasks.formats import MISSING, duration, label, moment, percent
from tasks.report.ledger import ROWS, training_seconds
from tasks.report.parameters import format_value
from tasks.report.summary import BenchmarkRow, RunSummary
from tasks.report.tables import text_table

_Benchmark = tuple[str, str, str, str]
"""Name, samples per problem, number of problems, digest: runs that share all of them stand side by side."""
_Rows = dict[str, list[float | None]]
"""A value for each run by the name of the row; None where a run has none."""


@dataclass(frozen=True)
class ComparedRun:
    """A finished run among others."""

    summary: RunSummary
    settings: Mapping[str, Any]
    """The settings that ``chosen`` returns; empty where they are not known."""
    report: str = ""
    """The report's artifact, such as ``report/0123abcd``."""
    finished: float = 0.0


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
    rows = [[name, *cells] for name, cells in {**_names(runs), **different_settings(runs)}.items()]
    for values, write in _sections(summaries):
        rows += [[], *([name, *(_mean([one], write) for one in each)] for name, each in values.items())]
    first, *_ = spent = [training_seconds(one.ledger) for one in summaries]
    rows.append(["training speed", *(f"{first / seconds:.2f}x" if seconds else MISSING for seconds in spent)])
    headings = ["", *(f"{one.name}\nseed {one.seed}" for one in summaries)]

    def tables(each: int) -> list[str]:
        cuts = [slice(at, at + each) for at in range(1, len(headings), each)]
        return [text_table(["", *headings[cut]], [row and [row[0], *row[cut]] for row in rows]) for cut in cuts]

    for each in range(len(runs), 0, -1):
        found = tables(each)
        if width is None or max(len(line) for table in found for line in table.splitlines()) <= width:
            break
    return "\n\n".join(found)


def _names(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """Return names that tell runs apart, as far as they are needed."""
    found = {}
    if any(run.report for run in runs):
        found["report"] = [run.report.removeprefix("report/")[:8] for run in runs]
    bases = [(run.summary.seed, run.summary.base_policy) for run in runs]
    if len(set(bases)) > len({seed for seed, _ in bases}):
        found["base policy"] = [base[:8] for _, base in bases]
    return found


def different_settings(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """Return the settings in which runs differ, without the seed, by their full name, with the value of every run.

    Where runs cannot be told apart by them, as those of another version of the code, the time at which they ended is
    one more.
    """
    known = [{**run.settings, "stages": len(run.summary.rows) - 1} if run.settings else {} for run in runs]
    names = dict.fromkeys(name for one in known for name in one if name != "seed")
    found = {
        name: [format_value(one[name]) if name in one else MISSING for one in known]
        for name in names
        if len({json.dumps(one.get(name)) for one in known}) > 1
    }
    apart = {
        (run.summary.name, run.summary.seed, run.summary.base_policy, *(values[place] for values in found.values()))
        for place, run in enumerate(runs)
    }
    if len(apart) < len(runs) and any(run.finished for run in runs):
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
    summaries = [summary for group in groups.values() for summary in group]
    rows = [["seeds", *(", ".join(str(one.seed) for one in group) for group in groups.values())]]
    for values, write in _sections(summaries):
        for name, each in values.items():
            left = iter(each)
            rows.append([name, *(_mean([next(left) for _ in group], write) for group in groups.values())])
    heading = f"| | {' | '.join(name.replace('|', '/') for name in groups)} |\n|---|{'---:|' * len(groups)}\n"
    return heading + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _sections(summaries: Sequence[RunSummary]) -> list[tuple[_Rows, Callable[[float], str]]]:
    return [(_accuracies(summaries), percent), (_seconds(summaries), duration)]


def _mean(values: Sequence[float | None], write: Callable[[float], str]) -> str:
    """Return the mean of what is known as text, and its range."""
    known = [one for one in values if one is not None]
    if not known:
        return MISSING
    mean = write(sum(known) / len(known))
    if len(known) < len(values):
        return f"{mean} ({len(known)} of {len(values)} seeds)"
    return mean if len(known) == 1 else f"{mean} ({write(min(known))} to {write(max(known))})"


def _accuracies(summaries: Sequence[RunSummary]) -> _Rows:
    """Return accuracies at numbers of updates, whatever the stages are; those on other problems are in other rows."""
    sets = [[_benchmark(row) for row in one.rows[-1].benchmarks] for one in summaries]
    names = _shortest_names([one for benchmarks in sets for one in benchmarks])
    averaged = {one for benchmarks in sets if len(benchmarks) > 1 for one in benchmarks}
    found: dict[tuple[int, int, str], list[float | None]] = {}

    def note(run: int, accuracy: float, *row: Any) -> None:
        found.setdefault(row, [None] * len(summaries))[run] = accuracy

    for run, (summary, benchmarks) in enumerate(zip(summaries, sets, strict=True)):
        name = summary.headline
        if any(other != benchmarks for other in sets):
            name = f"{' + '.join(names[one] for one in benchmarks)}, {'mean' if len(benchmarks) > 1 else name}"
        for row in summary.rows:
            at = f"{row.updates} updates" if row.updates else "base"
            note(run, row.accuracy, sets.index(benchmarks), row.updates, f"{name}, {at}")
        for one in summary.rows[-1].benchmarks:
            if (known := _benchmark(one)) in averaged:
                note(run, one.accuracy, len(sets), list(names).index(known), f"{names[known]}, at the end")
    return {name: values for (_, _, name), values in sorted(found.items())}


def _seconds(summaries: Sequence[RunSummary]) -> _Rows:
    spent = {name for one in summaries for name in one.ledger}
    names = [name for name in (*ROWS, *sorted(spent - ROWS.keys())) if name in spent]
    return {
        "wall-clock": [one.wall_clock for one in summaries],
        **{label(name): [one.ledger.get(name) for one in summaries] for name in names},
        "training": [training_seconds(one.ledger) for one in summaries],
    }


def _benchmark(row: BenchmarkRow) -> _Benchmark:
    return row.name, f"avg@{row.samples_per_problem}", f"of {row.problems}", row.digest[:6]


def _shortest_names(benchmarks: Sequence[_Benchmark]) -> dict[_Benchmark, str]:
    found = {}
    for one in benchmarks:
        alike = [len({other for other in benchmarks if other[:length] == one[:length]}) for length in (1, 2, 3)]
        found[one] = " ".join(one[: alike.index(1) + 1 if 1 in alike else 4])
    return found
