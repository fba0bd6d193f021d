"""The report as an artifact."""

import json
from collections.abc import Sequence
from dataclasses import replace

from tasks.artifacts import ArtifactRef, Store
from tasks.report.closeups import pick_groups
from tasks.report.figures import make_figures
from tasks.report.history import History, load_history
from tasks.report.ledger import make_ledger
from tasks.report.page import render_page
from tasks.report.summary import PAGE, SUMMARY, RunSummary, make_summary


def write_report(store: Store, evaluations: Sequence[ArtifactRef], seed: int) -> ArtifactRef:
    """Writes the report of a run: ``report.html``, ``summary.json``, and every figure beside a table of its numbers.

    Args:
        store: where the run's artifacts are, and where the report goes.
        evaluations: one per evaluated policy; an unfinished run has fewer, and its report shows what is there.
        seed: the run's.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
        DataError: the evaluations are not those of one run.
    """
    history = replace(load_history(store, evaluations), seed=seed)
    ledger = make_ledger(history)
    figures = make_figures(history, ledger)
    summary = make_summary(history, ledger)
    groups = pick_groups(store, history)
    with store.write("report", settings={}, parents={"evaluations": list(evaluations)}, seed=seed) as draft:
        (draft.path / PAGE).write_text(render_page(history, ledger, figures, groups), encoding="utf-8")
        plain = summary.model_dump(mode="json", exclude={"execution", "report", "next_commands"})
        (draft.path / SUMMARY).write_text(json.dumps(plain, indent=1), encoding="utf-8")
        folder = draft.path / "figures"
        folder.mkdir()
        for name, figure in figures.items():
            (folder / f"{name}.svg").write_text(figure.svg, encoding="utf-8")
            (folder / f"{name}.csv").write_text(figure.csv, encoding="utf-8")
        draft.facts.update(algorithm=history.algorithm, accuracy=[row.accuracy for row in summary.rows])
    return draft.ref


def draw_page(store: Store, history: History) -> tuple[str, RunSummary]:
    """The page of a run, finished or not, and its summary; nothing is written.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
    """
    ledger = make_ledger(history)
    page = render_page(history, ledger, make_figures(history, ledger), pick_groups(store, history))
    return page, make_summary(history, ledger)
