"""The runs that a store holds, found by their reports, and the one that has none yet."""

from dataclasses import replace
from pathlib import Path

from tasks.artifacts import ArtifactRef, Store
from tasks.cli.pages import write_page
from tasks.errors import DataError
from tasks.report.compare import comparison_markdown
from tasks.report.history import load_history
from tasks.report.step import draw_page, write_report
from tasks.report.summary import RunSummary, summarise
from tasks.stored.reports import find_reports
from tasks.stored.unfinished import find_unfinished

PAGE = Path("report.html")


def report_of(store: Store, seed: int | None, algorithm: str | None, page: Path | None) -> RunSummary:
    """Writes the page of the latest run, finished or not, and gives its summary.

    Args:
        store: that the run wrote to.
        seed: the run's; any when None.
        algorithm: the run's; any when None.
        page: the file to write, and nothing in the store; without it a finished run's is written into the store, an
            unfinished run's at PAGE.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
        DataError: there is no run, or the page cannot be written.
    """
    unfinished = find_unfinished(store, seed, algorithm)
    try:
        finished = find_reports(store, seed, algorithm)[0]
    except DataError:
        if unfinished is None:
            raise
        finished = None
    if unfinished and (finished is None or finished.timings.finished < unfinished.latest):
        text, summary = draw_page(store, unfinished.history(store))
        return summary.model_copy(update={"report": _saved(text, page or PAGE)})
    assert finished is not None
    evaluations, of_seed = finished.parents["evaluations"], finished.seed
    if page is None:
        return summarise(store, write_report(store, evaluations, of_seed), [])
    text, summary = draw_page(store, replace(load_history(store, evaluations), seed=of_seed))
    return summary.model_copy(update={"report": _saved(text, page)})


def _saved(text: str, page: Path) -> str:
    write_page(page, text, "--page")
    return str(page.absolute())


def latest_runs(store: Store, seed: int | None = None) -> list[RunSummary]:
    """The latest run of every base policy, algorithm, mu and seed."""
    latest: dict[tuple[str, int, str], RunSummary] = {}
    seen: set[tuple[ArtifactRef, ...]] = set()
    for manifest in find_reports(store, seed):
        evaluations = tuple(manifest.parents.get("evaluations", ()))
        if evaluations in seen:  # a report that was rendered again
            continue
        seen.update({evaluations} if evaluations else ())
        summary = summarise(store, manifest.ref, [])
        latest.setdefault((summary.base_policy, summary.seed, summary.name), summary)
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
