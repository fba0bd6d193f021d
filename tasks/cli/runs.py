"""The commands ``report`` and ``compare``: the page and the summary of a run, and all finished runs of a store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.errors import DataError
from tasks.report.compare import ComparedRun
from tasks.report.history import load_finished
from tasks.report.step import draw_page, write_report
from tasks.report.summary import RunSummary, summarise
from tasks.settings.base import flat
from tasks.settings.run import chosen_settings
from tasks.store import Store
from tasks.store.records import Manifest
from tasks.stored.runs import find_reports, run_key
from tasks.stored.unfinished import UnfinishedRun, latest_run

PAGE = Path("report.html")
"""Default file for the page of an unfinished run."""


@contextmanager
def explain_write_errors(page: Path) -> Iterator[None]:
    """Replace an OSError in the block by a DataError that names the option, the file and the fix."""
    try:
        yield
    except OSError as error:
        raise DataError(f"--page: {page} cannot be written ({error.strerror}). Name another file.") from error


def report_of(store: Store, seed: int | None, algorithm: str | None, page: Path | None) -> RunSummary:
    """Write the page of the latest run of a seed and an algorithm, finished or not, and return its summary.

    Without ``page``, the page of a finished run is written into the store, and that of an unfinished run to PAGE.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
        DataError: the store has no such run, or the page cannot be written.
    """
    run = latest_run(store, seed, algorithm, "evaluation of the base policy", lambda run: run if run.averages else None)
    if isinstance(run, UnfinishedRun):
        history, page = run.history(store), page or PAGE
    elif page is None:
        report = write_report(
            store, run.parents["evaluations"], run.seed, run.settings, run.facts.get("trained_from", 0)
        )
        return summarise(store, report, [])
    else:
        history = load_finished(store, run)
    text, summary = draw_page(store, history)
    with explain_write_errors(page):
        page.write_text(text, encoding="utf-8")
    return summary.model_copy(update={"report": str(page.absolute())})


def all_runs(store: Store, seed: int | None = None) -> list[ComparedRun]:
    """Return every finished run once, even if its report was rendered several times."""
    by_run: dict[str, list[Manifest]] = {}
    for report in find_reports(store, seed):
        by_run.setdefault(run_key(report), []).append(report)
    store.paths([latest.ref for latest, *_ in by_run.values()])  # On S3, all are fetched in parallel.
    runs = []
    for reports in by_run.values():
        latest, first = reports[0], reports[-1]
        settings = chosen_settings(latest.settings) | flat(latest.facts.get("other_settings") or {})
        summary = summarise(store, latest.ref, [])
        runs.append(ComparedRun(summary, settings, str(latest.ref), first.timings.finished))
    return sorted(
        runs, key=lambda run: (run.summary.algorithm != "mu_grpo", -run.summary.updates_per_rollout, run.finished)
    )
