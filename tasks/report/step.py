"""The report as an artifact."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tasks.report.figures import make_figures
from tasks.report.history import History, load_history
from tasks.report.ledger import make_ledger
from tasks.report.page import render_page
from tasks.report.summary import RunSummary, make_summary
from tasks.settings import RunSettings
from tasks.settings.base import flat
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PAGE_FILE, SETTINGS_FILE, SUMMARY_FILE


def write_report(
    store: Store,
    evaluations: Sequence[ArtifactRef],
    seed: int,
    settings: RunSettings | Mapping[str, Any] = MappingProxyType({}),
    trained_from: int = 0,
) -> ArtifactRef:
    """Write the report of a run: ``report.html``, ``summary.json``, and every figure beside a table of its numbers.

    Args:
        store: where the run's artifacts are, and where the report goes.
        evaluations: one per evaluated policy; an unfinished run has fewer, and its report shows what is there.
        seed: the run's seed.
        settings: the settings of the whole run. They are a file of the report, so that runs that differ in them have a
            report each, also where they gave the same.
        trained_from: the stage, from 0, that these settings begin with; those before it are another run's.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
        DataError: the evaluations are not those of one run.
    """
    own = settings.determining() if isinstance(settings, RunSettings) else dict(settings)
    history = load_history(store, evaluations, seed=seed, settings=own, trained_from=trained_from)
    ledger, figures = make_ledger(history), make_figures(history)
    page, summary = render_page(store, history, ledger, figures), make_summary(history, ledger)
    plain = summary.model_dump(mode="json", exclude={"execution", "report", "next_commands"})
    files = {PAGE_FILE: page, SUMMARY_FILE: json.dumps(plain, indent=1), SETTINGS_FILE: json.dumps(own, indent=1)}
    for name, figure in figures.items():
        files |= {f"figures/{name}.svg": figure.svg, f"figures/{name}.csv": figure.csv()}
    with store.write("report", settings=own, parents={"evaluations": list(evaluations)}, seed=seed) as draft:
        (draft.path / "figures").mkdir()
        for file, text in files.items():
            (draft.path / file).write_text(text, encoding="utf-8")
        draft.facts.update(algorithm=history.algorithm, accuracy=[row.accuracy for row in summary.rows])
        draft.facts.update(trained_from=trained_from, other_settings=_other_settings(history, trained_from))
    return draft.ref


def _other_settings(history: History, trained_from: int) -> dict[str, dict[str, Any]]:
    """Return how the optimizer's settings of stages before those that a run trained again differ from the run's."""
    own = flat(history.settings.get("optimize") or {})
    found = {}
    for stage in history.stages[:trained_from]:
        trained = flat(stage.policy.settings)
        changed = {name: trained[name] for name in own if name in trained and trained[name] != own[name]}
        if {"preset", "modifier"} & changed.keys():  # which the rest of the objective follows from
            changed = {name: value for name, value in changed.items() if not name.startswith("objective.")}
        if changed:
            found[f"stage {stage.number}"] = changed
    return found


def draw_page(store: Store, history: History) -> tuple[str, RunSummary]:
    """Return the page of a run, finished or not, and its summary. Nothing is written.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
    """
    ledger = make_ledger(history)
    return render_page(store, history, ledger, make_figures(history)), make_summary(history, ledger)
