"""The comparison of the runs of a reproduction as an artifact: accuracies, paired tests, times, figures and a page.

Legend of shapes: S seeds, P problems of a benchmark, N pairs.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.errors import DataError
from tasks.evaluate import statistics
from tasks.evaluate.statistics import DIFFERENCES, Benchmarks, Values
from tasks.experiments.page import write_page
from tasks.experiments.result import ALL, LEVEL, MEAN, Cell, LaboratoryResult, PairedTest, ReproductionResult
from tasks.experiments.runs import SystemRun, by_system, load_run, pairs_by_baseline
from tasks.experiments.speedup import speeds_of, split_causes, times_of
from tasks.settings.experiment import ExperimentSettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import ACCURACY_FILE


def compare_runs(
    store: Store, experiment: ExperimentSettings, reports: Sequence[ArtifactRef], laboratory: Sequence[ArtifactRef]
) -> ArtifactRef:
    """Compare all runs of a reproduction.

    Args:
        store: the store with all artifacts.
        experiment: settings of the reproduction.
        reports: a report per planned run, in the order of the plan.
        laboratory: results of parts of the laboratory.

    Returns:
        An artifact with result.json, report.html, and every figure as SVG and CSV.

    Raises:
        ArtifactError: an artifact is missing or corrupted.
        DataError: the runs were not evaluated on the same problems.
    """
    parents = {"reports": list(reports), "laboratory": list(laboratory)}
    with store.write("reproduction", settings=experiment.result_values(), parents=parents, seed=0) as draft:
        runs = [load_run(store, run, report) for run, report in zip(experiment.named_runs, reports, strict=True)]
        result = compare_finished(store, experiment, runs)
        result.save(draft.path)
        write_page(draft.path, result, runs, [LaboratoryResult.load(store, ref) for ref in laboratory])
        draft.facts.update(runs=len(runs), models=result.models, systems=result.systems, seeds=result.seeds)
    return draft.ref


def compare_finished(store: Store, experiment: ExperimentSettings, runs: Sequence[SystemRun]) -> ReproductionResult:
    """Compare the finished runs of an experiment, and name the missing ones.

    Raises:
        ArtifactError: an evaluation is missing or corrupted.
        DataError: there is no run, or the runs were not evaluated on the same problems.
    """
    planned = experiment.named_runs
    if not runs:
        raise DataError(
            f"{store.ref.uri}: none of the {len(planned)} runs is there. To fix it, start them or name another store."
        )
    check_problems(runs)
    reference = experiment.reference
    baselines = [system for system in experiment.systems if system != reference]
    accuracies = {run.name: _by_problem(store, run) for run in runs}
    return ReproductionResult(
        models=list(experiment.models),
        systems=list(experiment.systems),
        seeds=experiment.seeds,
        reference=reference,
        margin=experiment.margin,
        missing=[one.name for one in planned if one.name not in accuracies],
        cells=accuracy_cells(runs, accuracies),
        tests=paired_tests(runs, accuracies, reference, baselines, experiment.margin),
        times=times_of(runs),
        speeds=speeds_of(runs, reference, baselines),
        causes=split_causes(runs, reference, baselines),
    )


def check_problems(runs: Sequence[SystemRun]) -> None:
    """Check that the runs of a model have the same prompts, which paired tests need, and all models as many problems.

    The prompts of two models may differ in their template and chat.

    Raises:
        DataError: two runs have different problems of a benchmark.
    """
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for run in runs:
        for evaluation in run.history.evaluated[-1].evaluations:
            benchmark = evaluation.benchmark
            for model, problems in ((run.model, str(evaluation.prompts)), ("", f"{evaluation.problems} problems")):
                expected, name = first.setdefault((model, benchmark), (problems, run.name))
                if expected != problems:
                    raise DataError(
                        f"reproduction: benchmark {benchmark!r} has other problems in {run.name} ({problems}) than in "
                        f"{name} ({expected}); allowed: the same in every run. To fix it, pin the revision of the "
                        "benchmark, or give both runs the same settings."
                    )


ProblemAccuracies = Mapping[str, Mapping[str, Values]]
"""Accuracies of all problems after the last update, [P], by run and benchmark."""


def _by_problem(store: Store, run: SystemRun) -> dict[str, Values]:
    accuracies = {}
    for one in run.history.evaluated[-1].evaluations:
        metrics = json.loads(store.file(run.history.manifests[one.evaluation], ACCURACY_FILE).read_text())
        accuracies[one.benchmark] = np.array(metrics["by_problem"]["accuracy"])
    return accuracies


def accuracy_cells(runs: Sequence[SystemRun], accuracies: ProblemAccuracies) -> list[Cell]:
    """Return the accuracy with its interval of every model and system, on every benchmark and on their mean."""
    cells = []
    for (model, system), seeds in by_system(runs).items():
        base = [{one.benchmark: one for one in run.history.evaluated[0].evaluations} for run in seeds]
        benchmarks = list(accuracies[seeds[0].name])
        for name in [*benchmarks, *([MEAN] if len(benchmarks) > 1 else [])]:
            chosen = benchmarks if name == MEAN else [name]
            measured = {each: np.stack([accuracies[run.name][each] for run in seeds]) for each in chosen}
            cells.append(
                Cell(
                    model=model,
                    system=system,
                    benchmark=name,
                    accuracy=statistics.interval([measured]),
                    by_seed=statistics.run_means([measured]).tolist(),
                    base=float(np.mean([run[each].accuracy.value for run in base for each in chosen])),
                )
            )
    return cells


def paired_tests(
    runs: Sequence[SystemRun], accuracies: ProblemAccuracies, reference: str, baselines: Sequence[str], margin: float
) -> list[PairedTest]:
    """Test the reference against every baseline over their common seeds.

    The first tests are on the mean of the benchmarks, for every model and for all models together. The others are on
    single benchmarks.
    """
    by_baseline: dict[str, dict[str, Benchmarks]] = {baseline: {} for baseline in baselines}
    for model, baseline, pairs in pairs_by_baseline(runs, reference, baselines):
        both = [(accuracies[ours.name], accuracies[theirs.name]) for ours, theirs in pairs]
        by_baseline[baseline][model] = {
            name: np.stack([one[name] - other[name] for one, other in both]) for name in both[0][0]
        }
    means, single = [], []
    for baseline, differences in by_baseline.items():
        means += [_paired_test(model, baseline, MEAN, [one], margin) for model, one in differences.items()]
        if len(differences) > 1:
            means.append(_paired_test(ALL, baseline, MEAN, list(differences.values()), margin))
        single += [
            _paired_test(model, baseline, name, [{name: difference_SP}], margin)
            for model, benchmarks in differences.items()
            if len(benchmarks) > 1
            for name, difference_SP in benchmarks.items()
        ]
    return [*_adjust_p_values(means), *_adjust_p_values(single)]


def _paired_test(
    model: str, baseline: str, benchmark: str, differences: Sequence[Benchmarks], margin: float
) -> PairedTest:
    """Return a test with unadjusted p-values."""
    drawn = statistics.draws(differences, DIFFERENCES)
    pairs_N = statistics.run_means(differences)
    return PairedTest(
        model=model,
        baseline=baseline,
        benchmark=benchmark,
        difference=drawn.interval(),
        p_bootstrap=statistics.bootstrap_p(drawn),
        p_wilcoxon=statistics.signed_rank_p(pairs_N),
        cohen_dz=statistics.cohen_dz(pairs_N),
        rank_biserial=statistics.rank_biserial(pairs_N),
        p_equivalence=statistics.equivalence_p(drawn, margin),
        equivalent=False,
    )


def _adjust_p_values(tests: list[PairedTest]) -> list[PairedTest]:
    """Return the tests with p-values adjusted by Holm, separately for each kind of p-value."""
    adjusted: list[dict[str, Any]] = [{} for _ in tests]
    for name in ("p_bootstrap", "p_wilcoxon", "p_equivalence"):
        known = [(index, getattr(test, name)) for index, test in enumerate(tests) if getattr(test, name) is not None]
        for (index, _), p in zip(known, statistics.holm([p for _, p in known]), strict=True):
            adjusted[index][name] = p
    return [
        test.model_copy(update={**changes, "equivalent": changes["p_equivalence"] < LEVEL})
        for test, changes in zip(tests, adjusted, strict=True)
    ]
