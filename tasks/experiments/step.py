"""The step that compares all runs of a reproduction: tables, figures and a page, as an artifact."""

from collections.abc import Mapping, Sequence

from tasks.artifacts import ArtifactRef, Store
from tasks.errors import DataError
from tasks.experiments.causes import split_causes
from tasks.experiments.compare import cells_of, check_problems, read_accuracies, tests_of
from tasks.experiments.laboratory import load_result as load_laboratory
from tasks.experiments.page import write_page
from tasks.experiments.result import ReproductionResult
from tasks.experiments.runs import SystemRun, load_run, of_system
from tasks.experiments.times import speeds_of, times_of
from tasks.settings.experiment import ExperimentSettings, PlannedRun

RESULT = "result.json"


def compare_runs(
    store: Store, experiment: ExperimentSettings, reports: Sequence[ArtifactRef], laboratory: Sequence[ArtifactRef]
) -> ArtifactRef:
    """Compare all runs of a reproduction.

    Args:
        store: of all artifacts.
        experiment: what was planned.
        reports: of all its runs, in their order.
        laboratory: comparisons of the laboratory's parts, if any were asked for.

    Returns:
        A reproduction artifact with result.json, report.html, and every figure as SVG and CSV.

    Raises:
        ArtifactError: an artifact is missing or corrupted.
        DataError: the runs cannot be compared, and why.
    """
    planned = experiment.runs(store.ref.uri)
    found = dict(zip(planned, reports, strict=True))
    parents = {"reports": list(reports), "laboratory": list(laboratory)}
    with store.write("reproduction", settings=experiment.determining(), parents=parents, seed=0) as draft:
        runs = load_runs(store, found)
        result = result_of(store, experiment, planned, runs)
        (draft.path / RESULT).write_text(result.model_dump_json(indent=1, exclude={"folder"}), encoding="utf-8")
        asked = [load_laboratory(store, ref) for ref in laboratory]
        write_page(draft.path, result, runs, asked, {one.name: str(ref) for one, ref in found.items()})
        draft.facts.update(runs=len(runs), models=result.models, systems=result.systems, seeds=result.seeds)
    return draft.ref


def load_runs(store: Store, reports: Mapping[PlannedRun, ArtifactRef]) -> list[SystemRun]:
    """Read the runs that are there."""
    return [load_run(store, one.model, one.system, one.seed, ref) for one, ref in reports.items()]


def result_of(
    store: Store, experiment: ExperimentSettings, planned: Sequence[PlannedRun], runs: Sequence[SystemRun]
) -> ReproductionResult:
    """Compare the runs that are there.

    Raises:
        ArtifactError: an evaluation is missing or corrupted.
        DataError: there is no run, or they were not evaluated on the same problems.
    """
    if not runs:
        raise DataError(
            f"{store.ref.uri}: none of the {len(planned)} runs is there. Start them, or name another store."
        )
    check_problems(runs)
    there = {(run.model, run.system, run.seed) for run in runs}
    accuracies = {
        (model, system): read_accuracies(store, of_system(runs, model, system))
        for model, system in dict.fromkeys((run.model, run.system) for run in runs)
    }
    reference, baselines = experiment.reference, experiment.baselines
    return ReproductionResult(
        models=list(experiment.models),
        systems=list(experiment.systems),
        seeds=experiment.seeds,
        reference=reference,
        margin=experiment.margin,
        missing=[one.name for one in planned if (one.model, one.system, one.seed) not in there],
        cells=cells_of(accuracies),
        tests=tests_of(runs, accuracies, reference, baselines, experiment.margin),
        times=times_of(runs),
        speeds=speeds_of(runs, reference, baselines),
        causes=split_causes(runs, reference, baselines),
    )


def load_result(store: Store, ref: ArtifactRef) -> ReproductionResult:
    """Read the result of a reproduction, with the folder of its page."""
    folder = store.path(ref)
    result = ReproductionResult.model_validate_json((folder / RESULT).read_text(encoding="utf-8"))
    return result.model_copy(update={"folder": str(folder)})
