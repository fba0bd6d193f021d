"""The report as an artifact."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tasks.artifacts import ArtifactRef, Store
from tasks.report.closeups import pick_groups
from tasks.report.figures import make_figures
from tasks.report.history import History, load_history, of_run
from tasks.report.ledger import make_ledger
from tasks.report.page import render_page
from tasks.report.summary import PAGE, SUMMARY, RunSummary, make_summary
from tasks.settings import RunSettings
from tasks.settings.effects import flat

SETTINGS = "settings.json"


def write_report(
    store: Store,
    evaluations: Sequence[ArtifactRef],
    seed: int,
    settings: RunSettings | Mapping[str, Any] = MappingProxyType({}),
    trained_from: int = 0,
) -> ArtifactRef:
    """Writes the report of a run: ``report.html``, ``summary.json``, and every figure beside a table of its numbers.

    Args:
        store: where the run's artifacts are, and where the report goes.
        evaluations: one per evaluated policy; an unfinished run has fewer, and its report shows what is there.
        seed: the run's.
        settings: of the whole run, which are a file of the report: runs that differ in them have a report each, also
            where they gave the same.
        trained_from: the stage, from 0, that these settings begin with; those before it are another run's.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
        DataError: the evaluations are not those of one run.
    """
    own = settings.determining() if isinstance(settings, RunSettings) else dict(settings)
    history = of_run(load_history(store, evaluations), seed, own, trained_from)
    ledger = make_ledger(history)
    figures = make_figures(history, ledger)
    summary = make_summary(history, ledger)
    groups = pick_groups(store, history)
    with store.write("report", settings=own, parents={"evaluations": list(evaluations)}, seed=seed) as draft:
        (draft.path / PAGE).write_text(render_page(history, ledger, figures, groups), encoding="utf-8")
        plain = summary.model_dump(mode="json", exclude={"execution", "report", "next_commands"})
        (draft.path / SUMMARY).write_text(json.dumps(plain, indent=1), encoding="utf-8")
        (draft.path / SETTINGS).write_text(json.dumps(own, indent=1), encoding="utf-8")
        folder = draft.path / "figures"
        folder.mkdir()
        for name, figure in figures.items():
            (folder / f"{name}.svg").write_text(figure.svg, encoding="utf-8")
            (folder / f"{name}.csv").write_text(figure.csv, encoding="utf-8")
        draft.facts.update(algorithm=history.algorithm, accuracy=[row.accuracy for row in summary.rows])
        draft.facts.update(trained_from=trained_from, other_settings=_other_settings(history, trained_from))
    return draft.ref


def _other_settings(history: History, trained_from: int) -> dict[str, dict[str, Any]]:
    """By stage, the optimizer's settings that are not the run's: stages before those that a run trained again."""
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
    """The page of a run, finished or not, and its summary; nothing is written.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
    """
    ledger = make_ledger(history)
    page = render_page(history, ledger, make_figures(history, ledger), pick_groups(store, history))
    return page, make_summary(history, ledger)
