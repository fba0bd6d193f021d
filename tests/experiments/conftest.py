from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.evaluate.statistics import Interval
from tasks.experiments.figures import make_figures
from tasks.experiments.page import render_page
from tasks.experiments.result import MEAN, ArmResult, Cell, LaboratoryResult, PairedTest, ReproductionResult, Speed
from tasks.experiments.runs import SystemRun
from tasks.experiments.speedup import split_causes, times_of
from tasks.report import drawing
from tasks.report.drawing import Chart, Panel, Picture, Series
from tasks.report.history import load_history
from tasks.report.ledger import make_ledger
from tests.experiments.planted import call
from tests.report.synthetic import make_run

MODELS, SYSTEMS, SEEDS = ["tiny", "Qwen2.5-Math-7B"], ["mu_grpo", "grpo", "m2po"], [0, 1]
HOSTILE = "<b>7B</b>"


@pytest.fixture(scope="session")
def system_runs(tmp_path_factory: pytest.TempPathFactory) -> list[SystemRun]:
    """Two models, three systems, two seeds; with the first model, one seed of m2po is missing."""
    made = [_run(tmp_path_factory.mktemp("system"), system, seed) for system in SYSTEMS for seed in SEEDS]
    runs = [replace(run, model=model) for model in MODELS for run in made]
    return [run for run in runs if (run.model, run.system, run.seed) != ("tiny", "m2po", 1)]


def _run(root: Path, system: str, seed: int) -> SystemRun:
    mu = 4 if system == "grpo" else 32
    made = make_run(root, 4, preset="mu_grpo" if system == "mu_grpo" else "grpo", updates_per_rollout=mu, seed=seed)
    history = load_history(made.store, made.evaluations)
    stage = history.stages[0]
    settings = {"optimize": stage.policy.settings, "rollout": stage.rollouts[0].settings, "updates_per_rollout": mu}
    run = SystemRun("", system, seed, replace(history, settings=settings), make_ledger(history))
    size = 16 * mu
    tokens = np.random.default_rng(seed).integers(4, 40, 2048).tolist()
    calls = [call(tokens[start : start + size], 512) for start in range(0, 2048, size)]
    scale = run.ledger.seconds["generate"] / sum(one.seconds for one in calls)
    calls = [replace(one, seconds=scale * one.seconds) for one in calls]
    sequences, report = sum(tokens) + 8 * 2048, f"report/{seed:016x}"
    return replace(run, response_tokens=sum(tokens), sequence_tokens=sequences, calls=calls, report=report)


@pytest.fixture(scope="session")
def result(system_runs: list[SystemRun]) -> ReproductionResult:
    """Numbers that nobody computed, but for the causes."""
    benchmarks = [MEAN, "amc23", "aime25"]
    levels = {system: 0.5 + 0.1 * place for place, system in enumerate(reversed(SYSTEMS))}
    seeds = {"by_seed": [0.5, 0.5], "base": 0.32}
    cells = [
        Cell(model=model, system=system, benchmark=one, accuracy=Interval(at, at - 0.05, at + 0.05), **seeds)
        for model in MODELS
        for system, at in levels.items()
        for one in benchmarks
    ]
    test = PairedTest.model_construct(cohen_dz=1.25, rank_biserial=None, p_equivalence=0.001)
    tests = [
        test.model_copy(
            update={"model": model, "baseline": baseline, "benchmark": benchmark, "equivalent": difference < 0.01}
            | {"difference": Interval(difference, difference - 0.01, difference + 0.01)}
            | {"p_bootstrap": p, "p_wilcoxon": 0.03 if benchmark == MEAN else None}
        )
        for model in MODELS
        for baseline, difference, p in (("grpo", 0.004, 0.4), ("m2po", 0.1, 0.0004))
        for benchmark in benchmarks
    ]
    times = [
        one.model_copy(update={"gpu_seconds": {} if one.model == "tiny" else {"generate": 4.0, "optimize": 9.0}})
        for one in times_of(system_runs)
    ]
    speeds = [
        Speed(model=model, baseline=baseline, name=name, ratio=speed, by_seed=[speed, speed and speed + 0.1])
        for model in MODELS
        for baseline in SYSTEMS[1:]
        for name, speed in (("generation", 1.82), ("end to end", 1.53), ("to the level of the baseline", None))
    ]
    planned = {"models": MODELS, "systems": SYSTEMS, "seeds": SEEDS, "missing": ["tiny, m2po, seed 1"]}
    causes = split_causes(system_runs, "mu_grpo", SYSTEMS[1:])
    asked = {"reference": "mu_grpo", "margin": 0.02, **planned}
    return ReproductionResult(**asked, cells=cells, tests=tests, times=times, speeds=speeds, causes=causes)


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> list[LaboratoryResult]:
    folder = tmp_path_factory.mktemp("laboratory")
    curves = Chart([Series("", HOSTILE, [0, 1, 2], [0.3, 0.4, 0.5])], {"": Panel(HOSTILE)}, "update")
    for part in ("a", "b", "c"):
        (folder / part).mkdir()
        with drawing.style():
            svg = drawing.to_svg(curves.draw(), f"laboratory-{part}", HOSTILE)
        (folder / part / "curves.svg").write_text(svg, encoding="utf-8")
    same = {"by_seed": [0.5] * 3, "best": 0.7, "vetoed": 0.01, "clipped": None}
    means = {"[0.8, 1.2], one stage": 0.5, "[0, 5], one stage": 0.2, f"[0, 5] and {HOSTILE}": 0.7}
    arms = [
        ArmResult.model_construct(
            name=name, accuracy=Interval(mean, mean - 0.05, mean + 0.04), stopped=stopped, difference=None, **same
        )
        for (name, mean), stopped in zip(means.items(), ([], ["a gate"], []), strict=True)
    ]
    asked = {"asks": "Is it so?", "reference": "[0, 5], one stage", "seeds": 3, "updates": 256, "base": 0.3}
    return [
        LaboratoryResult.model_construct(folder=str(folder / part), part=part, title=f"Part {part}", arms=arms, **asked)
        for part in ("a", "b", "c")
    ]


@pytest.fixture(scope="session")
def drawn(result, system_runs, laboratory) -> dict[str, Picture]:
    return make_figures(result, system_runs, laboratory)


@pytest.fixture(scope="session")
def page(result, system_runs, laboratory, drawn) -> str:
    return render_page(result, system_runs, laboratory, drawn)
