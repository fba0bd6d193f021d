"""Helpers of tests: other interpreters, folders that are made once per session, and the inputs of a small stage."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from tasks.data import training
from tasks.data.benchmarks import prepare_benchmark
from tasks.data.sources import with_commits
from tasks.models.step import prepare_policy
from tasks.rollout.step import generate_shard
from tasks.settings import (
    ArithmeticSettings,
    EvaluateSettings,
    EvaluationSettings,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    VerifySettings,
)
from tasks.settings.evaluate import measurements
from tasks.store import ArtifactRef, Store
from tasks.verify.step import verify_rollouts
from tools import ROOT

PROMPTS = PromptsSettings(prompts_per_stage=16, prompts_per_shard=8, arithmetic=ArithmeticSettings(levels=[1]))
ROLLOUT = RolloutSettings(responses_per_prompt=4, max_new_tokens=12)
IN_PARTS = ROLLOUT.model_copy(update={"responses_per_part": 8})
VERIFY = VerifySettings(workers=1)
EVALUATE = EvaluationSettings(samples_per_problem=2, max_new_tokens=12, responses_per_part=8)
OPTIMIZE = OptimizeSettings.parse({"preset": "mu_grpo", "responses_per_update": 16, "learning_rate": 1e-4})
"""A stage of 4 updates, for the policy ``learner``."""
Small = tuple[Store, ArtifactRef]
"""A store, and a policy in it."""


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in another interpreter, in the project's folder."""
    command, own = [sys.executable, "-c", code, *arguments], {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False, timeout=600)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> tuple[Path, Path]:
    """Return a folder that one process of a test session makes, and a copy that the caller may change."""
    session = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    made = session / name
    with FileLock(session / f"{name}.lock"):
        if not (made / "done").exists():
            made.mkdir()
            make(made)
            (made / "done").touch()
    copy = factory.mktemp(f"{name}-copy")
    shutil.copytree(made, copy, dirs_exist_ok=True)
    return made, copy


def take_policy(store: Store, folder: Path | str, chat: bool = False) -> ArtifactRef:
    """Take the policy of a model folder."""
    return prepare_policy(store, PolicySettings(path=str(folder)), ArithmeticSettings(), "", 0, chat)


def prepare_measured(store: Store, prompts: PromptsSettings, mirror: str | None = None, **given: object) -> ArtifactRef:
    """Prepare the only benchmark of a run."""
    asked = EvaluateSettings.parse({"max_new_tokens": 1, **given})
    (measurement,) = measurements(with_commits(asked, mirror), prompts, VERIFY, None)
    return prepare_benchmark(store, measurement.benchmark, measurement.verify, "", OperationSettings(mirror=mirror))


def prepare_held_out(store: Store, prompts: PromptsSettings, problems: int) -> ArtifactRef:
    return prepare_measured(store, prompts, problems=problems)


def prepare_training(store: Store, prompts: PromptsSettings, *benchmarks: ArtifactRef) -> ArtifactRef:
    """Prepare a training set without the problems of benchmarks."""
    return training.prepare_training_set(store, prompts.training_set, VERIFY, "", benchmarks)


def prepare_prompts(store: Store, prompts: PromptsSettings, stage: int, seed: int) -> list[ArtifactRef]:
    """Prepare the shards of a stage, of a run without benchmarks."""
    return training.prepare_prompts(store, prompts, prepare_training(store, prompts), stage, seed)


def prepare_verdicts(
    store: Store,
    policy: ArtifactRef,
    prompts: PromptsSettings = PROMPTS,
    rollout: RolloutSettings = ROLLOUT,
    stage: int = 0,
) -> tuple[list[ArtifactRef], ArtifactRef]:
    """Make the rollouts of a stage and their verdicts."""
    shards = prepare_prompts(store, prompts, stage, 0)
    rollouts = [generate_shard(store, rollout, policy, shard, stage, 0) for shard in shards]
    return rollouts, verify_rollouts(store, VERIFY, rollouts, stage, 0)
