"""The runs that a store holds, found by their reports."""

from tasks.artifacts import Store
from tasks.report.compare import comparison_markdown
from tasks.report.step import summarise
from tasks.report.summary import RunSummary
from tasks.stored.reports import find_reports


def latest_runs(store: Store, seed: int | None = None) -> list[RunSummary]:
    """The latest run of every algorithm, mu and seed."""
    latest: dict[tuple[int, str], RunSummary] = {}
    for manifest in find_reports(store, seed):
        summary = summarise(store, manifest.ref, [])
        latest.setdefault((summary.seed, summary.name), summary)
    return sorted(latest.values(), key=lambda run: (run.algorithm != "mu_grpo", -run.updates_per_rollout, run.seed))


def results_page(runs: list[RunSummary]) -> str:
    """docs/results.md: a column per algorithm, mean and range over seeds."""
    groups: dict[str, list[RunSummary]] = {}
    for run in runs:
        groups.setdefault(run.name, []).append(run)
    first = runs[0]
    return (
        "# Results of the tiny run\n\n"
        "Written by `make results` on two CPU cores.\n\n"
        "## Accuracy and time\n\n"
        "Both workflows on every seed; mean over seeds, and their range. One seed: `make compare`.\n\n"
        f"{first.headline} over {first.problems} held-out problems; times in one process, step after "
        "step. What reinforcement learning does here is to select the strategy of showing the working, which the warm "
        "start planted beside guessing; it teaches little arithmetic.\n\n" + comparison_markdown(groups)
    )
