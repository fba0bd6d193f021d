"""One self-contained HTML page about a reproduction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyarrow.csv import write_csv

from tasks.experiments.compare import LEVEL
from tasks.experiments.figures import CaptionedFigure, make_figures
from tasks.experiments.result import ALL, MEAN, Cause, Cell, LaboratoryResult, PairedTest, ReproductionResult, Speed
from tasks.experiments.runs import SystemRun
from tasks.experiments.tables import how_to_read, p_value
from tasks.report.formats import MISSING, percent, percent_range, points, saved
from tasks.report.history import History
from tasks.report.ledger import ROWS
from tasks.report.look import render
from tasks.report.parameters import resolved_settings

PAGE = "report.html"


@dataclass(frozen=True)
class Difference:
    """A setting whose value differs between systems."""

    step: str
    name: str
    values: dict[str, str]
    """By system."""


@dataclass(frozen=True)
class Settings:
    """The settings of a model's runs."""

    different: list[Difference]
    shared: list[tuple[str, str, str]]
    """Step, name, value."""


def write_page(
    folder: Path,
    result: ReproductionResult,
    runs: Sequence[SystemRun],
    laboratory: Sequence[LaboratoryResult],
    reports: Mapping[str, str],
) -> None:
    """Write ``report.html``, and every figure into ``figures/`` as SVG and CSV; for arguments see ``render_page``."""
    figures = make_figures(result, runs, laboratory)
    (folder / PAGE).write_text(render_page(result, runs, laboratory, reports, figures), encoding="utf-8")
    (folder / "figures").mkdir()
    for name, one in figures.items():
        (folder / f"figures/{name}.svg").write_text(one.svg, encoding="utf-8")
        write_csv(one.data, folder / f"figures/{name}.csv")


def render_page(
    result: ReproductionResult,
    runs: Sequence[SystemRun],
    laboratory: Sequence[LaboratoryResult],
    reports: Mapping[str, str],
    figures: Mapping[str, CaptionedFigure] | None = None,
) -> str:
    """Return the page: figures are inline, nothing is loaded from elsewhere, and there is no script.

    Args:
        result: the tables.
        runs: the runs that they are made from.
        laboratory: parts a and b of the laboratory, as far as they are there.
        reports: where the report of a run is, by the run's name.
        figures: what ``make_figures`` gives for the same; drawn here without them.
    """
    drawn = make_figures(result, runs, laboratory) if figures is None else figures
    return render(
        "experiments/page.html.j2",
        result=result,
        runs=runs,
        reports=reports,
        figures=partial(_named, drawn),
        baselines=[system for system in result.systems if system != result.reference],
        sentences=[_sentence(result, test) for test in result.tests if test.benchmark == MEAN],
        cells=_cells(result),
        gpus=any(one.gpu_seconds for one in result.times),
        ledger_rows=[row for row in ROWS if any(row in one.ledger for one in result.times)],
        causes=_causes(result),
        speeds=_speeds(result),
        saved=saved,
        settings={model: compare_settings(_histories(runs, model, result.systems)) for model in result.models},
        all_models=ALL,
        mean=MEAN,
        points=points,
        p_value=p_value,
        how_to_read=how_to_read(result),
        ratio=ratio,
        over_seeds=over_seeds,
    )


def ratio(value: float | None) -> str:
    """Write a speed: ``1.82x``."""
    return MISSING if value is None else f"{value:.2f}x"


def over_seeds(speed: Speed) -> str:
    """Write the range of a speed, ``1.71 to 1.92``; empty for one seed."""
    known = [one for one in speed.by_seed if one is not None]
    return f"{min(known):.2f} to {max(known):.2f}" if len(known) > 1 else ""


def compare_settings(histories: Mapping[str, History]) -> Settings:
    """Tell settings that differ between systems with one model from those that they share.

    Args:
        histories: a run of each system.
    """
    values: dict[tuple[str, str], dict[str, str]] = {}
    for system, history in histories.items():
        values.setdefault(("schedule", "updates_per_rollout"), {})[system] = str(history.updates_per_rollout or MISSING)
        for step, parameters in resolved_settings(history).items():
            for one in parameters:
                if one.name != "updates_per_rollout":
                    values.setdefault((step, one.name), {})[system] = one.value
    different, shared = [], []
    for (step, name), by_system in values.items():
        if len(by_system) == len(histories) and len(set(by_system.values())) == 1:
            shared.append((step, name, next(iter(by_system.values()))))
        else:
            everywhere = {system: by_system.get(system, MISSING) for system in histories}
            different.append(Difference(step, name, everywhere))
    return Settings(different, shared)


def _named(figures: Mapping[str, CaptionedFigure], kind: str, model: str = "") -> dict[str, CaptionedFigure]:
    """Return the figures of a kind, such as ``accuracy``, of one model."""
    return {name: one for name, one in figures.items() if name.split("-")[0] == kind and one.model == model}


def _sentence(result: ReproductionResult, test: PairedTest) -> str:
    """Tell in one sentence how the reference stands to a baseline."""
    if test.equivalent:
        verdict = "matches"
    elif test.p_bootstrap < LEVEL:
        verdict = "exceeds" if test.difference > 0 else "falls below"
    else:
        verdict = "is not told apart from"
    ours, theirs = (_cell(result, test, system) for system in (result.reference, test.baseline))
    levels = f"{_level(ours)} against {_level(theirs)}, " if ours and theirs else ""
    difference = (
        f"{points(test.difference)} points ({points(test.low)} to {points(test.high)}; p {p_value(test.p_bootstrap)})"
    )
    own = [one for one in result.speeds if (one.model, one.baseline) == (test.model, test.baseline)]
    speeds = ", ".join(_speed(one) for one in own)
    where = "Over all models" if test.model == ALL else f"With {test.model}"
    faster = f"; speed: {speeds}" if speeds else ""
    return f"{where}, {result.reference} {verdict} {test.baseline}: {levels}{difference}{faster}."


def _cell(result: ReproductionResult, test: PairedTest, system: str) -> Cell | None:
    wanted = (test.model, test.benchmark, system)
    return next((one for one in result.cells if (one.model, one.benchmark, one.system) == wanted), None)


def _level(cell: Cell) -> str:
    return f"{percent(cell.accuracy)} ({percent_range(cell.low, cell.high)})"


def _speed(speed: Speed) -> str:
    if speed.ratio is None:
        return f"{speed.name} not on every seed"
    spread = over_seeds(speed)
    return f"{speed.name} {ratio(speed.ratio)}{f' ({spread} over seeds)' if spread else ''}"


def _cells(result: ReproductionResult) -> dict[tuple[str, str], dict[str, Cell]]:
    """Return cells by model and benchmark, then by system; the mean comes first."""
    found: dict[tuple[str, str], dict[str, Cell]] = {}
    for one in sorted(result.cells, key=lambda cell: cell.benchmark != MEAN):
        found.setdefault((one.model, one.benchmark), {})[one.system] = one
    order = [*result.models, ALL]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0][0])))


def _speeds(result: ReproductionResult) -> dict[tuple[str, str], dict[str, Speed]]:
    """Return speeds by model and baseline, then by name."""
    found: dict[tuple[str, str], dict[str, Speed]] = {}
    for one in result.speeds:
        found.setdefault((one.model, one.baseline), {})[one.name] = one
    return found


def _causes(result: ReproductionResult) -> dict[tuple[str, str], tuple[list[Cause], float]]:
    """Return causes and their sum, by model and baseline."""
    found: dict[tuple[str, str], list[Cause]] = {}
    for one in result.causes:
        found.setdefault((one.model, one.baseline), []).append(one)
    return {key: (causes, sum(one.seconds for one in causes)) for key, causes in found.items()}


def _histories(runs: Sequence[SystemRun], model: str, systems: Sequence[str]) -> dict[str, History]:
    """Return the history of a run of every system with a model."""
    first = {run.system: run.history for run in reversed(runs) if run.model == model}
    return {system: first[system] for system in systems if system in first}
