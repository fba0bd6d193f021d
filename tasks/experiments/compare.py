"""Accuracies and paired tests of a comparison. Legend of shapes: S seeds, P problems of a benchmark, N pairs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.artifacts import Store
from tasks.errors import DataError
from tasks.evaluate.metrics import METRICS
from tasks.experiments.result import ALL, MEAN, Cell, PairedTest
from tasks.experiments.runs import SystemRun, of_system
from tasks.report.evaluated import EvaluatedPolicy
from tasks.statistics import (
    DIFFERENCES,
    Benchmarks,
    Values,
    bootstrap_p,
    cohen_dz,
    draws,
    equivalence_p,
    holm,
    interval_of,
    mean,
    rank_biserial,
    run_means,
    signed_rank_p,
)

LEVEL = 0.05


@dataclass(frozen=True)
class Accuracies:
    """The accuracies of a system with a model after its last update, [S, P] by benchmark."""

    by_benchmark: dict[str, Values]
    base: dict[str, float]
    """Before training, mean over seeds and problems."""


def read_accuracies(store: Store, runs: Sequence[SystemRun]) -> Accuracies:
    """Read the accuracies that the runs of a system with a model reached, seed by seed.

    Raises:
        ArtifactError: an evaluation is missing or corrupted.
        DataError: the runs were not evaluated on the same problems.
    """
    last = [_by_problem(store, run, run.history.evaluated[-1]) for run in runs]
    first = [_by_problem(store, run, run.history.evaluated[0]) for run in runs]
    return Accuracies(
        by_benchmark={name: np.stack([one[name] for one in last]) for name in last[0]},
        base={name: float(np.mean([one[name] for one in first])) for name in first[0]},
    )


def _by_problem(store: Store, run: SystemRun, policy: EvaluatedPolicy) -> dict[str, Values]:
    """Read the accuracy of every problem, [P] by benchmark."""
    found = {}
    for one in policy.evaluations:
        manifest = run.history.manifests[one.evaluation]
        metrics: Mapping[str, Any] = json.loads(store.file(manifest, METRICS).read_text())
        found[one.benchmark] = np.array(metrics["by_problem"]["accuracy"])
    return found


def check_problems(runs: Sequence[SystemRun]) -> None:
    """Check that every run was evaluated on the same problems, without which nothing is paired.

    Raises:
        DataError: two runs differ, and where.
    """
    seen: dict[str, tuple[str, str]] = {}
    for run in runs:
        for one in run.history.evaluated[-1].evaluations:
            (problems,) = run.history.manifests[one.evaluation].parents["prompts"]
            before, where = seen.setdefault(one.benchmark, (problems.digest, run.name))
            if before != problems.digest:
                raise DataError(
                    f"reproduction: benchmark {one.benchmark!r} has other problems in {run.name} ({problems}) than in "
                    f"{where}; allowed: the same in every run. Pin its revision, or give both the same settings."
                )


def cells_of(accuracies: Mapping[tuple[str, str], Accuracies]) -> list[Cell]:
    """Return the accuracy, with its interval, of every model and system on every benchmark and their mean."""
    cells = []
    for (model, system), found in accuracies.items():
        benchmarks = list(found.by_benchmark)
        for name in [*benchmarks, *([MEAN] if len(benchmarks) > 1 else [])]:
            chosen = benchmarks if name == MEAN else [name]
            measured = {one: found.by_benchmark[one] for one in chosen}
            about = interval_of([measured])
            cells.append(
                Cell(
                    model=model,
                    system=system,
                    benchmark=name,
                    accuracy=about.value,
                    low=about.low,
                    high=about.high,
                    by_seed=[float(one) for one in run_means([measured])],
                    base=float(np.mean([found.base[one] for one in chosen])),
                )
            )
    return cells


def tests_of(
    runs: Sequence[SystemRun],
    accuracies: Mapping[tuple[str, str], Accuracies],
    reference: str,
    baselines: Sequence[str],
    margin: float,
) -> list[PairedTest]:
    """Test the reference against every baseline, over the seeds that both have.

    On the mean of the benchmarks, model by model and over all of them, then on every benchmark.
    """
    paired: dict[tuple[str, str], dict[str, Values]] = {}
    for baseline in baselines:
        for model in dict.fromkeys(model for model, _ in accuracies):
            found = _differences(runs, accuracies, model, reference, baseline)
            if found:
                paired[model, baseline] = found
    means = [_tested(model, baseline, MEAN, [found], margin) for (model, baseline), found in paired.items()]
    for baseline in baselines:
        of_models = [found for (_, other), found in paired.items() if other == baseline]
        if len(of_models) > 1:
            means.append(_tested(ALL, baseline, MEAN, of_models, margin))
    single = [
        _tested(model, baseline, name, [{name: difference_SP}], margin)
        for (model, baseline), found in paired.items()
        if len(found) > 1
        for name, difference_SP in found.items()
    ]
    return [*_adjusted(means), *_adjusted(single)]


def _differences(
    runs: Sequence[SystemRun],
    accuracies: Mapping[tuple[str, str], Accuracies],
    model: str,
    reference: str,
    baseline: str,
) -> dict[str, Values]:
    """Return the reference minus the baseline, [S, P] by benchmark, over the seeds of both; empty without any."""
    one, other = accuracies.get((model, reference)), accuracies.get((model, baseline))
    if one is None or other is None:
        return {}
    seeds = [[run.seed for run in of_system(runs, model, system)] for system in (reference, baseline)]
    both = [seed for seed in seeds[0] if seed in seeds[1]]
    rows = [[each.index(seed) for seed in both] for each in seeds]
    if not both:
        return {}
    return {
        name: one.by_benchmark[name][rows[0]] - other.by_benchmark[name][rows[1]]
        for name in one.by_benchmark
        if name in other.by_benchmark
    }


def _tested(model: str, baseline: str, benchmark: str, differences: Sequence[Benchmarks], margin: float) -> PairedTest:
    """Return a test whose p-values are not adjusted."""
    drawn = draws(differences, DIFFERENCES)
    pairs_N = run_means(differences)
    low, high = drawn.interval()
    return PairedTest(
        model=model,
        baseline=baseline,
        benchmark=benchmark,
        difference=mean(differences),
        low=low,
        high=high,
        p_bootstrap=bootstrap_p(drawn),
        p_wilcoxon=signed_rank_p(pairs_N),
        cohen_dz=cohen_dz(pairs_N),
        rank_biserial=rank_biserial(pairs_N),
        p_equivalence=equivalence_p(drawn, margin),
        equivalent=False,
    )


def _adjusted(tests: list[PairedTest]) -> list[PairedTest]:
    """Return the tests with p-values adjusted for their number, each sort of p for itself."""
    adjusted: list[dict[str, Any]] = [{} for _ in tests]
    for name in ("p_bootstrap", "p_wilcoxon", "p_equivalence"):
        known = [(place, getattr(test, name)) for place, test in enumerate(tests) if getattr(test, name) is not None]
        for (place, _), p in zip(known, holm([p for _, p in known]), strict=True):
            adjusted[place][name] = p
    return [
        test.model_copy(update={**changes, "equivalent": changes["p_equivalence"] < LEVEL})
        for test, changes in zip(tests, adjusted, strict=True)
    ]
