"""The four stages, small, driven from their registered form while two trainings are stopped, beside the run here."""

import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine

from tasks.artifacts import Store
from tasks.settings import RunSettings
from tests.platform.propeller import Attempt, Propeller
from tools import ROOT
from tools.runs import CONFIG, Runner
from tools.s3 import S3
from tools.serialised import Serialised, serialise
from workflows.mu_grpo import mu_grpo

CHANGES = (
    "policy.tiny.warm_start.working_updates=40 policy.tiny.warm_start.guessing_updates=20 prompts.prompts_per_stage=32 "
    "prompts.prompts_per_shard=16 rollout.responses_per_prompt=4 optimize.responses_per_update=16 evaluate.problems=10 "
    "evaluate.samples_per_problem=2 operation.updates_per_checkpoint=1"
)
STOPPED: Mapping[tuple[str, int], signal.Signals] = {("optimize", 1): signal.SIGKILL, ("optimize", 2): signal.SIGTERM}
"""Which signal the first attempt of a task in a stage gets once it has saved something."""


def stop(attempt: Attempt) -> signal.Signals | None:
    """The signal that an attempt gets once it has saved something."""
    return STOPPED.get((attempt.task, attempt.stage or 0)) if attempt.number == 0 else None


def saved(s3: S3, bucket: str) -> bool:
    """Whether unfinished work has saved a part."""
    return any("/progress/" in key and key.endswith("/manifest.json") for key in s3.keys(bucket))


def run_here(folder: Path) -> Path:
    """The store of the run on this machine, by the command that a user types."""
    folder.mkdir()
    runner = Runner(folder)
    done = runner.run("mu_grpo", "--overrides", CHANGES)
    assert done.returncode == 0, done.stdout + done.stderr
    return runner.store


def register(image: str, folder: Path, base: Path | None = None) -> Serialised:
    """What is registered for a deployment whose images are ``localhost/<name>-<role>:<tag>``."""
    name, _, tag = image.removeprefix("localhost/").partition(":")
    text = f"images: localhost/{name.removesuffix('-cpu')}\ntag: {tag}\n"
    if base is not None:
        lines = base.read_text().splitlines(keepends=True)
        text += "".join(line for line in lines if not line.startswith(("images:", "tag:")))
    deployment = folder / "deployment.yaml"
    deployment.write_text(text)
    return serialise(folder, deployment)


def drive(found: Serialised, s3: S3, bucket: str, start: Callable[[Attempt], str], here: Path) -> None:
    """Runs the four stages in pods; they make what the run here made, the stopped ones in a second attempt."""
    propeller = Propeller(found, s3, bucket, start)
    settings = RunSettings.read(CONFIG, CHANGES)
    types = mu_grpo.python_interface.inputs
    given = {field: getattr(settings, field) for field in types if hasattr(settings, field)}
    given["store"] = f"s3://{bucket}/store"
    literals = TypeEngine.dict_to_literal_map(FlyteContextManager.current_context(), given, types)
    propeller.run("workflows.mu_grpo.mu_grpo", dict(literals.to_flyte_idl().literals))

    there = Store.open(f"s3://{bucket}/store")
    for kind in ("prompts", "policy", "rollouts", "verdicts", "evaluation"):
        made = {manifest.ref for manifest in there.manifests(kind)}
        assert made == {manifest.ref for manifest in Store.open(here).manifests(kind)}, kind
        assert made
    assert sorted(Path(key).suffix for key in s3.keys(bucket) if "/runs/" in key) == [".json"]
    again = [attempt for attempt in propeller.attempts if attempt.number]
    assert {(attempt.task, attempt.stage) for attempt in again} == STOPPED.keys()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {one.commit.removesuffix("+") for one in there.manifests("policy")} == {head.stdout.strip()}
