"""The report of a run as an artifact: one self-contained HTML page, its figures, and a summary."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from tasks.formats import label, points
from tasks.report.drawing import Picture, write_pictures
from tasks.report.examples import pick_examples, pick_groups
from tasks.report.figures import all_figures, make_figures
from tasks.report.history import History, load_history, resolved_settings
from tasks.report.ledger import ROWS, Ledger, make_ledger, seconds_at_work, steps_of
from tasks.report.summary import RunSummary, make_summary
from tasks.report.theme import render
from tasks.settings import RunSettings
from tasks.settings.base import flat, names_that_differ
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PAGE_FILE, SETTINGS_FILE, SUMMARY_FILE
from tasks.verify.verdicts import Outcome

_LEVELS_SHOWN = 6


def write_report(
    store: Store,
    evaluations: Sequence[ArtifactRef],
    seed: int,
    settings: RunSettings | Mapping[str, Any] = MappingProxyType({}),
    trained_from: int = 0,
) -> ArtifactRef:
    """Write the report of a run: ``report.html``, ``summary.json``, and every figure with a table of its numbers.

    Args:
        store: the store with the artifacts of the run, which also gets the report.
        evaluations: one per evaluated policy.
        seed: the run's seed.
        settings: settings of the whole run. They are a file of the report, so runs with different settings have
            different reports, even if all their other artifacts are the same.
        trained_from: the first stage of this run, from 0; earlier stages belong to another run and keep its settings.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
        DataError: the evaluations do not belong to one run.
    """
    values = settings.result_values() if isinstance(settings, RunSettings) else dict(settings)
    history = load_history(store, evaluations, seed=seed, settings=values, trained_from=trained_from)
    ledger, figures = make_ledger(history), make_figures(history)
    page, summary = _render_page(store, history, ledger, figures), make_summary(history, ledger)
    numbers = summary.model_dump_json(indent=1, exclude={"later_updates", "execution", "report", "next_commands"})
    files = {PAGE_FILE: page, SUMMARY_FILE: numbers, SETTINGS_FILE: json.dumps(values, indent=1)}
    with store.write("report", settings=values, parents={"evaluations": list(evaluations)}, seed=seed) as draft:
        write_pictures(draft.path, figures)
        for file, text in files.items():
            (draft.path / file).write_text(text, encoding="utf-8")
        draft.facts.update(algorithm=history.algorithm, accuracy=[one.accuracy.value for one in summary.evaluated])
        draft.facts.update(trained_from=trained_from, other_settings=_other_settings(history, trained_from))
    return draft.ref


def _other_settings(history: History, trained_from: int) -> dict[str, dict[str, Any]]:
    """Return, by stage of another run, the optimizer's settings that differ from the settings of this run."""
    settings = flat(history.settings.get("optimize") or {})
    differences = {}
    for stage in history.stages[:trained_from]:
        trained = flat(stage.policy.settings)
        known = settings.keys() & trained.keys()
        changed = {name: trained[name] for name in names_that_differ([settings, trained]) if name in known}
        if {"preset", "modifier"} & changed.keys():  # The other settings of the objective follow from these two.
            changed = {name: value for name, value in changed.items() if not name.startswith("objective.")}
        if changed:
            differences[f"stage {stage.number}"] = changed
    return differences


def draw_page(store: Store, history: History) -> tuple[str, RunSummary]:
    """Return the page and the summary of a run, finished or not, without writing a report.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
    """
    ledger = make_ledger(history)
    return _render_page(store, history, ledger, make_figures(history)), make_summary(history, ledger)


def _render_page(store: Store, history: History, ledger: Ledger, figures: Mapping[str, Picture]) -> str:
    """Return a self-contained page without scripts: figures are inline, and texts are escaped."""
    base, final = history.evaluated[0], history.evaluated[-1]
    counted = _outcomes(history)
    shown = {Outcome.CORRECT, Outcome.WRONG, *(name for counts in counted.values() for name in +counts)}
    levels = sorted({level for one in history.evaluated for level in one.by_level}, key=lambda one: (len(one), one))
    manifests = list(history.manifests.values())
    packages: dict[str, set[str]] = {}
    for name, version in (item for one in manifests for item in one.packages.items()):
        packages.setdefault(name, set()).add(version)
    return render(
        "report/page.html.j2",
        history=history,
        base=base,
        final=final,
        gain=points(final.accuracy.value - base.accuracy.value) if final is not base else None,
        levels=levels if 1 < len(levels) <= _LEVELS_SHOWN else [],
        training={stage.number: stage.policy.facts | stage.verdicts.facts for stage in history.stages},
        counted=counted,
        outcomes=[outcome for outcome in Outcome if outcome in shown],
        warnings=_warnings(history),
        ledger=ledger,
        steps=steps_of(history),
        seconds_at_work=seconds_at_work,
        ledger_words=ROWS,
        figures=figures,
        over_staleness=[name for name, one in all_figures().items() if one.over == "staleness" and name in figures],
        examples=pick_examples(store, history),
        groups=pick_groups(store, history),
        parameters=resolved_settings(history),
        packages={name: ", ".join(sorted(versions)) for name, versions in sorted(packages.items())},
        code=", ".join(sorted({one.commit for one in manifests if one.commit})) or "not a checkout",
        started=datetime.fromtimestamp(min(one.timings.started for one in manifests), UTC).strftime(
            "%Y-%m-%d %H:%M UTC"
        ),
    )


def _outcomes(history: History) -> dict[str, Counter[str]]:
    """Count the outcomes of responses, by evaluation and by stage."""
    counted = {
        f"{label(one.benchmark)}, {policy.label}": Counter(one.outcomes)
        for policy in history.evaluated
        for one in policy.evaluations
    }
    verdicts = {stage.number: stage.verdicts for stage in history.stages}
    verdicts |= {len(verdicts) + 1: one for one in history.unfinished("verdicts")}
    counted |= {f"training, stage {number}": Counter(one.facts["outcomes"]) for number, one in verdicts.items()}
    return {name: counts for name, counts in counted.items() if counts.total()}


def _warnings(history: History) -> list[str]:
    """Return for every benchmark the warning of the last policy that has one, and for every stage that of a shard."""
    by_policy = [[history.manifests[one.evaluation] for one in policy.evaluations] for policy in history.evaluated]
    rollouts = [*(stage.rollouts for stage in history.stages), history.unfinished("rollouts")]
    groups = [*zip(*reversed(by_policy), strict=True), *rollouts]
    warnings = [[one.facts["warning"] for one in manifests if "warning" in one.facts] for manifests in groups]
    return [texts[0] for texts in warnings if texts]
