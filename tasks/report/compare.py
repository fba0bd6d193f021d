"""Comparison of runs, as a table for the terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.formats import DASH, duration, label, moment, number, percent
from tasks.report.history import Accuracies, Evaluation, format_values
from tasks.report.ledger import ROWS
from tasks.report.summary import RunSummary
from tasks.report.tables import text_table
from tasks.settings.base import names_that_differ

_Benchmark = tuple[str, str, str, str]
"""Name, samples per problem, number of problems, digest. Accuracies share a row only if all four are equal."""
_Rows = dict[str, list[float | None]]
"""Values by the name of the row, one per run; None where the run has no value."""
_NARROWEST = len("seed 0 ")
"""Fewest characters of the column of a run."""


@dataclass(frozen=True)
class ComparedRun:
    """A finished run that is compared with others."""

    summary: RunSummary
    settings: Mapping[str, Any]
    """The settings that ``chosen_settings`` returns."""
    report: str
    """The artifact of the report, such as ``report/0123abcd``."""
    finished: float
    """Unix seconds."""


def compare(runs: Sequence[ComparedRun], width: int | None = None) -> str:
    """Return a table with a column per run: the settings that differ, accuracy at equal numbers of updates, and times.

    Args:
        runs: the runs.
        width: largest number of characters in a line. Runs that do not fit go into further tables. None means one
            table for all runs.
    """
    summaries = [run.summary for run in runs]
    rows = [[name, *cells] for name, cells in {**_names(runs), **different_settings(runs)}.items()]
    for values, write in sections(summaries):
        rows.append([])
        for name, row in values.items():
            rows.append([name, *(DASH if value is None else write(value) for value in row)])
    rows.append(["training speed", *_speeds(summaries)])
    headings = ["", *(f"{summary.name}\nseed {summary.seed}" for summary in summaries)]

    def split(columns: int) -> list[str]:
        slices = [slice(start, start + columns) for start in range(1, len(headings), columns)]
        return [text_table(["", *headings[some]], [row and [row[0], *row[some]] for row in rows]) for some in slices]

    most = len(runs) if width is None else min(len(runs), max(1, width // _NARROWEST))
    for columns in range(most, 0, -1):
        tables = split(columns)
        if width is None or max(len(line) for table in tables for line in table.splitlines()) <= width:
            break
    return "\n\n".join(tables)


def _names(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """Return the rows that identify the runs: their reports, and their base policies if a seed has several."""
    rows = {"report": [run.report.removeprefix("report/")[:8] for run in runs]}
    bases = [(run.summary.seed, run.summary.base_policy) for run in runs]
    if len(set(bases)) > len({seed for seed, _ in bases}):
        rows["base policy"] = [base.digest[:8] for _, base in bases]
    return rows


def different_settings(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """Return the settings in which runs differ, except the seed: a list of one value per run, by full name.

    Two runs can have the same settings, for example if the code changed between them. Then the row ``finished`` is
    added, with the time at which each run ended.
    """
    settings = [{**run.settings, "stages": len(run.summary.evaluated) - 1} for run in runs]
    rows = {name: format_values(settings, name) for name in names_that_differ(settings) if name != "seed"}
    identities = {
        (run.summary.name, run.summary.seed, run.summary.base_policy, *(values[index] for values in rows.values()))
        for index, run in enumerate(runs)
    }
    if len(identities) < len(runs):
        rows["finished"] = [moment(run.finished) for run in runs]
    return rows


def sections(summaries: Sequence[RunSummary]) -> list[tuple[_Rows, Callable[[float], str]]]:
    """Return the rows with accuracies, rewards and seconds, each with the function that formats a value."""
    written: list[tuple[_Rows, Callable[[float], str]]] = [
        (_measured(summaries, lambda one: one.accuracy.value), percent),
        (_measured(summaries, lambda one: one.reward, "reward"), lambda reward: number(reward, 3)),
        (_seconds(summaries), duration),
    ]
    return [(rows, write) for rows, write in written if rows]


def _measured(summaries: Sequence[RunSummary], measure: Callable[[Accuracies], float | None], title: str = "") -> _Rows:
    """Return values by number of updates, so that runs with other stages share rows; without values, no rows.

    Values on different problems are in different rows. An empty title stands for that of the accuracies.
    """
    by_run = [[_benchmark(one) for one in summary.last.evaluations] for summary in summaries]
    names = _shortest_names([benchmark for benchmarks in by_run for benchmark in benchmarks])
    averaged = {benchmark for benchmarks in by_run if len(benchmarks) > 1 for benchmark in benchmarks}
    at_the_end = f"{title} at the end".strip()
    rows: dict[tuple[int, int, str], list[float | None]] = {}

    def enter(run: int, accuracies: Accuracies, *key: Any) -> None:
        if (value := measure(accuracies)) is not None:
            rows.setdefault(key, [None] * len(summaries))[run] = value

    for run, (summary, benchmarks) in enumerate(zip(summaries, by_run, strict=True)):
        name = title or summary.last.headline
        if any(other != benchmarks for other in by_run):
            joined = " + ".join(names[each] for each in benchmarks)
            name = f"mean {title}".strip() if len(benchmarks) > 1 else name
            name = joined if name in joined.split() else f"{joined}, {name}"
        for policy in summary.evaluated:
            at = f"{policy.updates} updates" if policy.updates else "base"
            enter(run, policy, by_run.index(benchmarks), policy.updates, f"{name}, {at}")
        for one, benchmark in zip(summary.last.evaluations, benchmarks, strict=True):
            if benchmark in averaged:
                order = list(names).index(benchmark)
                enter(run, one, len(by_run), order, f"{names[benchmark]}, {at_the_end}")
    return {name: values for (_, _, name), values in sorted(rows.items())}


def _seconds(summaries: Sequence[RunSummary]) -> _Rows:
    spent = {name for summary in summaries for name in summary.ledger}
    return {
        "wall-clock": [summary.wall_clock for summary in summaries],
        **{label(name): [summary.ledger.get(name) for summary in summaries] for name in ROWS if name in spent},
        "training": [summary.training for summary in summaries],
    }


def _speeds(summaries: Sequence[RunSummary]) -> list[str]:
    """Return how many times as fast as the first run each run trained, if it made as many updates."""
    first, updates = summaries[0].training, summaries[0].last.updates
    return [
        f"{first / one.training:.2f}x" if first and one.training and one.last.updates == updates else DASH
        for one in summaries
    ]


def _benchmark(one: Evaluation) -> _Benchmark:
    return one.benchmark, f"avg@{one.samples_per_problem}", f"of {one.problems}", one.prompts.digest[:6]


def _shortest_names(benchmarks: Sequence[_Benchmark]) -> dict[_Benchmark, str]:
    """Return the shortest text by which each benchmark differs from the others."""
    names = {}
    for benchmark in benchmarks:
        alike = [len({other for other in benchmarks if other[:length] == benchmark[:length]}) for length in (1, 2, 3)]
        names[benchmark] = " ".join(benchmark[: alike.index(1) + 1 if 1 in alike else 4])
    return names
