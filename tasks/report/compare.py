"""Runs side by side: in the terminal, and over seeds as a table for the documentation."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rich import box
from rich.table import Table

from tasks.errors import DataError
from tasks.report.formats import MISSING, duration, label, percent
from tasks.report.ledger import ROWS, training_seconds
from tasks.report.summary import RunSummary
from tasks.report.tables import COLUMNS, render

Measure = Callable[[RunSummary], float | None]
Write = Callable[[float], str]


def compare(summaries: Sequence[RunSummary]) -> str:
    """A table with a column per run: accuracy at equal numbers of updates, wall-clock, and what it was spent on.

    Raises:
        DataError: fewer than two runs.
    """
    if len(summaries) < 2:
        raise DataError(f"compare: {len(summaries)} run given; allowed: two or more.")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("")
    for summary in summaries:
        table.add_column(f"{summary.name}\nseed {summary.seed}", justify="right", no_wrap=True)
    if len({(summary.seed, summary.base_policy) for summary in summaries}) > len({one.seed for one in summaries}):
        table.add_row("base policy", *(summary.base_policy[:8] for summary in summaries))
        table.add_section()
    for name, measure in _accuracies(summaries).items():
        table.add_row(name, *(_cell(measure(summary), percent) for summary in summaries))
    table.add_section()
    for name, measure in _times(summaries).items():
        table.add_row(name, *(_cell(measure(summary), duration) for summary in summaries))
    first = training_seconds(summaries[0].ledger)
    relative = [first / training_seconds(summary.ledger) for summary in summaries]
    table.add_row("training speed", *(f"{speed:.2f}x" for speed in relative))
    return render(table, max(COLUMNS, 24 + 28 * len(summaries)))


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
    measures: list[tuple[str, Measure, Write]] = [
        (name, measure, percent) for name, measure in _accuracies(everything).items()
    ]
    measures += [(name, measure, duration) for name, measure in _times(everything).items()]
    for name, measure, write in measures:
        cells = [_mean_and_range([measure(summary) for summary in group], write) for group in groups.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracies(summaries: Sequence[RunSummary]) -> dict[str, Measure]:
    """Runs meet at equal numbers of updates, whatever their stages are."""
    updates = sorted({row.updates for summary in summaries for row in summary.rows})
    headlines = {summary.headline for summary in summaries}
    name = headlines.pop() if len(headlines) == 1 else "accuracy"
    found: dict[str, Measure] = {f"{name}, {_point(at)}": partial(_accuracy, updates=at) for at in updates}
    benchmarks = [{one.name for one in summary.rows[-1].benchmarks} for summary in summaries]
    for one in summaries[0].rows[-1].benchmarks:
        if len(benchmarks[0]) > 1 and all(one.name in names for names in benchmarks):
            found[f"{one.name}, at the end"] = partial(_at_the_end, benchmark=one.name)
    return found


def _point(updates: int) -> str:
    return f"{updates} updates" if updates else "base"


def _accuracy(summary: RunSummary, updates: int) -> float | None:
    return next((row.accuracy for row in summary.rows if row.updates == updates), None)


def _at_the_end(summary: RunSummary, benchmark: str) -> float | None:
    return next((one.accuracy for one in summary.rows[-1].benchmarks if one.name == benchmark), None)


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
