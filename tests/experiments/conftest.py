from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.experiments.compare import compare_finished
from tasks.experiments.figures import make_figures
from tasks.experiments.laboratory import compare_arms
from tasks.experiments.page import render_page
from tasks.experiments.questions import QUESTIONS
from tasks.experiments.result import LaboratoryResult, ReproductionResult
from tasks.experiments.runs import SystemRun
from tasks.report.drawing import Picture
from tasks.report.history import load_history
from tasks.report.ledger import make_ledger
from tasks.settings import ExperimentSettings
from tasks.store import Store
from tests.experiments.planted import call, study
from tests.report.synthetic import SyntheticRun, make_run

MODELS, SYSTEMS, SEEDS = ["tiny", "<b>7B</b>"], ["mu_grpo", "grpo", "<b>m2po</b>"], [0, 1]
BASELINES = {"grpo": "grpo", "<b>m2po</b>": "b-m2po-b"}
"""The name of each baseline in those of figures."""


class Better(SyntheticRun):
    """Learns more than others from the same base policy."""

    def _skill(self, stage: float) -> float:
        return super()._skill(stage) + 0.02 * stage


@pytest.fixture(scope="session")
def runs_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("systems"))


@pytest.fixture(scope="session")
def system_runs(runs_store: Store) -> list[SystemRun]:
    """Two models, three systems, two seeds; with the first model, one seed of the last system is missing."""
    made = [_run(runs_store.root, system, seed) for system in SYSTEMS for seed in SEEDS]
    runs = [replace(run, model=model) for model in MODELS for run in made]
    return [run for run in runs if (run.model, run.system, run.seed) != ("tiny", SYSTEMS[2], 1)]


def _run(root: Path, system: str, seed: int) -> SystemRun:
    mu = 4 if system == "grpo" else 32
    preset, kind = ("m2po", Better) if system == SYSTEMS[2] else (system, SyntheticRun)
    made = make_run(root, 4, kind, preset=preset, updates_per_rollout=mu, seed=seed)
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
def result(runs_store: Store, system_runs: list[SystemRun]) -> ReproductionResult:
    """The comparison of the runs, as if those of the second model had seen GPUs."""
    models, systems = ({name: {} for name in names} for names in (MODELS, SYSTEMS))
    experiment = ExperimentSettings(models=models, systems=systems, seeds=SEEDS)
    made = compare_finished(runs_store, experiment, system_runs)
    gpus = ({}, {"generate": 4.0, "optimize": 9.0})
    times = [one.model_copy(update={"gpu_seconds": gpus[MODELS.index(one.model)]}) for one in made.times]
    return made.model_copy(update={"times": times})


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> list[LaboratoryResult]:
    """A part that is a figure of the paper, and one that is not."""
    store = Store.open(tmp_path_factory.mktemp("laboratory"))
    studies = [study(store, seed, [0.0, 0.5, 1.0] * 20) for seed in SEEDS]
    parts = [compare_arms(store, part, studies * len(QUESTIONS[part].arms)) for part in ("a", "c")]
    return [LaboratoryResult.load(store, part) for part in parts]


@pytest.fixture(scope="session")
def drawn(result, system_runs, laboratory) -> dict[str, Picture]:
    return make_figures(result, system_runs, laboratory)


@pytest.fixture(scope="session")
def page(result, system_runs, laboratory, drawn) -> str:
    return render_page(result, system_runs, laboratory, drawn)
