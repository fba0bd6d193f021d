"""Workflows task by task from their registered command lines, on S3, beside the same commands on this machine."""

import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from tasks.store import Store
from tests.platform import own
from tests.platform.four_stages import CHANGES, drive, has_saved_a_part, inputs, run_here, same_artifacts, signal_for
from tests.platform.propeller import Attempt, Propeller
from tools import ROOT
from tools.forked import Program, Runner
from tools.s3 import S3
from tools.serialised import function_of, serialise
from workflows.mu_grpo import mu_grpo
from workflows.retrain import retrain


class Pods:
    """Attempts as processes of this machine, and the bucket that they share."""

    def __init__(self, s3: S3, folder: Path) -> None:
        self.s3, self.bucket, self.folder = s3, s3.bucket(), folder
        self.environment = s3.environment(folder / "cache")
        self._numbers = count()

    def start(self, attempt: Attempt) -> str:
        place = self.folder / f"pod-{next(self._numbers)}"
        place.mkdir(parents=True)
        own = {"PATH": os.environ["PATH"], "HOME": str(place), "TMPDIR": str(place), "OMP_NUM_THREADS": "1"}
        pod = Program(attempt.arguments, {**own, **self.environment, **attempt.environment}, together=True)
        how = signal_for(attempt)
        while how and pod.returncode is None:
            if has_saved_a_part(self.s3, self.bucket):
                pod.send(how)
                break
            time.sleep(0.02)
        return pod.end().stdout


@pytest.fixture(scope="module")
def pods(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    made = Pods(s3, tmp_path_factory.mktemp("cluster"))
    with patch.dict("os.environ", made.environment):
        yield made


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return run_here(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def driven(pods: Pods, here: Runner) -> Propeller:
    """Four stages, of which two trainings are stopped, with the resources and secrets of a cluster with GPUs."""
    found = serialise(pods.folder, ROOT / "configs/deployments/gpu-4.yaml")
    return drive(found, pods.s3, pods.bucket, pods.start, here)


def test_four_stages_make_the_same_artifacts_as_the_command(driven: Propeller) -> None:
    pods = {function_of(attempt.task) for attempt in driven.attempts}
    assert {"open_run", "prepare_policy", "generate", "verify", "optimize", "evaluate", "close_run"} <= pods


def test_a_second_execution_finds_every_step_in_the_cache(driven: Propeller, pods: Pods) -> None:
    before = len(driven.attempts)
    driven.run(mu_grpo.name, inputs(mu_grpo, pods.bucket, f"{CHANGES} operation.updates_per_checkpoint=3"))
    assert [attempt.task for attempt in driven.attempts[before:]] == ["open_run", "close_run"]


def test_an_unrolled_part_makes_the_same_artifacts_as_the_command(driven: Propeller, pods: Pods, here: Runner) -> None:
    """The last stage of the stored run, trained anew with another objective."""
    changes = f"{CHANGES} optimize.preset=reinforce"
    here.made("retrain", "--from_stage", "4", "--overrides", changes)
    before = len(driven.attempts)
    driven.run(retrain.name, inputs(retrain, pods.bucket, changes, from_stage=4))
    pods_of = {function_of(attempt.task) for attempt in driven.attempts[before:]}
    assert {"stages_from", "optimize", "evaluate"} <= pods_of
    assert not {"generate", "prepare_policy"} & pods_of
    same_artifacts(pods.bucket, here)


def test_a_foreign_workflow_can_use_the_tasks(driven: Propeller, pods: Pods, tmp_path: Path) -> None:
    deployment = tmp_path / "deployment.yaml"
    deployment.write_text("{}")
    propeller = Propeller(serialise(tmp_path, deployment, own.__name__), pods.s3, pods.bucket, pods.start)
    given = inputs(own.measured, pods.bucket, f"{CHANGES} evaluate.problems=7")
    value = propeller.run(own.measured.name, given)["o0"].scalar.primitive.float_value
    assert "evaluate" in {function_of(attempt.task) for attempt in propeller.attempts}
    averages = Store.open(f"s3://{pods.bucket}/store").manifests("average")
    assert value == max(averages, key=lambda one: one.timings.started).facts["accuracy"]
