"""The page docs/results.md: a comparison of the tiny runs of a store over their seeds.

python -m tools.docs.results STORE      writes the page (make results)
"""

import sys
from collections.abc import Callable, Mapping, Sequence

from tasks.cli.runs import all_runs
from tasks.errors import DataError
from tasks.formats import DASH
from tasks.report.compare import ComparedRun, different_settings, sections
from tasks.report.summary import RunSummary
from tasks.store import ArtifactRef, Store
from tools.docs import DOCS

_NOT_IN_HEADING = ("optimize.preset", "updates_per_rollout", "finished")
"""Settings that are not in a heading: the name of the run states the first two, and only the latest run is shown."""


def results_page(runs: list[ComparedRun]) -> str:
    """Return the page, whose table has a column per algorithm and settings, with mean and range over seeds."""
    different = different_settings(runs)
    groups: dict[tuple[str, str], dict[tuple[int, ArtifactRef], RunSummary]] = {}
    for index, run in enumerate(runs):
        values = {name: column[index] for name, column in different.items() if name not in _NOT_IN_HEADING}
        settings = ", ".join(f"{name} {value}" for name, value in values.items() if value != DASH)
        # Of runs with the same seed and settings, the latest one replaces the others.
        group = groups.setdefault((run.summary.name, settings), {})
        group[run.summary.seed, run.summary.base_policy] = run.summary
    names = [name for name, _ in groups]
    summaries = {
        name if names.count(name) == 1 else f"{name}, {settings}": sorted(group.values(), key=lambda one: one.seed)
        for (name, settings), group in groups.items()
    }
    first = runs[0].summary.last
    return (
        "# Results of the tiny run\n\n"
        "Which accuracy do both workflows reach on the tiny policy, and in which time? `make results` wrote this page "
        "on two CPU cores.\n\n"
        "## Accuracy and time\n\n"
        "The table has the mean over seeds, and the range in parentheses. `make compare` runs one seed.\n\n"
        "![Accuracy over updates, and seconds of training by phase, of both workflows](results.svg)\n\n"
        f"Accuracies are {first.headline} over {first.problems} held-out problems. One process executes all steps, one "
        "after the other. The warm start teaches the policy to guess and to show its working. Training here selects "
        "the second strategy, and teaches little arithmetic: most held-out problems are training problems with factors "
        "exchanged. Starts depend on the processes before; the row training leaves them out.\n\n"
        + comparison_markdown(summaries)
    )


def comparison_markdown(groups: Mapping[str, Sequence[RunSummary]]) -> str:
    """Return a Markdown table of means and ranges over seeds, with a column per group.

    Args:
        groups: by the heading of its column, the runs of a group, which differ in their seed.

    Raises:
        DataError: a group has two runs of one seed.
    """
    for name, group in groups.items():
        seeds = [summary.seed for summary in group]
        if twice := {seed for seed in seeds if seeds.count(seed) > 1}:
            raise DataError(
                f"comparison: {name} has {seeds.count(min(twice))} runs of seed {min(twice)}, which began with "
                "different policies; allowed: one run per seed. To fix it, keep the runs of each model in a separate "
                "store."
            )
    summaries = [summary for group in groups.values() for summary in group]
    rows = [["seeds", *(", ".join(str(summary.seed) for summary in group) for group in groups.values())]]
    for values, write in sections(summaries):
        for name, row in values.items():
            cells = iter(row)
            rows.append([name, *(_mean([next(cells) for _ in group], write) for group in groups.values())])
    heading = f"| | {' | '.join(name.replace('|', '/') for name in groups)} |\n|---|{'---:|' * len(groups)}\n"
    return heading + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _mean(values: Sequence[float | None], write: Callable[[float], str]) -> str:
    """Return the mean and the range of the values that are not None, as text."""
    known = [value for value in values if value is not None]
    if not known:
        return DASH
    mean = write(sum(known) / len(known))
    if len(known) < len(values):
        return f"{mean} ({len(known)} of {len(values)} seeds)"
    return mean if len(known) == 1 else f"{mean} ({write(min(known))} to {write(max(known))})"


if __name__ == "__main__":
    runs = all_runs(Store.open(sys.argv[1], create=False))
    (DOCS / "results.md").write_text(results_page(runs), encoding="utf-8")
