"""A small run of Mu-GRPO in pods, two trainings of which are stopped, compared with the same run on this machine."""

import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.settings import RunSettings
from tasks.store import Store
from tests.platform.propeller import Attempt, Literals, Propeller, literals
from tools import ROOT
from tools.forked import Runner
from tools.runs import CONFIG
from tools.s3 import S3
from tools.serialised import Serialised
from workflows.mu_grpo import mu_grpo, mu_grpo_1

CHANGES = (
    "policy.tiny.warm_start.working_updates=40 policy.tiny.warm_start.guessing_updates=20 prompts.prompts_per_stage=32 "
    "prompts.prompts_per_shard=16 rollout.responses_per_prompt=4 optimize.responses_per_update=16 evaluate.problems=10 "
    "evaluate.samples_per_problem=2 operation.updates_per_checkpoint=1"
)
STOPPED: Mapping[tuple[str, int], signal.Signals] = {("optimize", 0): signal.SIGKILL, ("optimize", 2): signal.SIGTERM}
"""Which signal the first attempt of a task in a stage gets once it has saved something; stages count from 0."""
KINDS = ("prompts", "policy", "rollouts", "verdicts", "evaluation", "average")


def signal_for(attempt: Attempt) -> signal.Signals | None:
    return STOPPED.get((attempt.task, attempt.stage or 0)) if attempt.number == 0 else None


def has_saved_a_part(s3: S3, bucket: str) -> bool:
    return any("/progress/" in key and key.endswith("/manifest.json") for key in s3.keys(bucket))


def run_here(folder: Path, workflow: str = "mu_grpo") -> Runner:
    """The run on this machine, by the command that a user types."""
    folder.mkdir(exist_ok=True)
    runner = Runner(folder)
    runner.made(workflow, "--overrides", CHANGES)
    return runner


def inputs(graph: PythonFunctionWorkflow, bucket: str, changes: str = CHANGES, **given: Any) -> Literals:
    """The inputs of an execution, with its store on S3."""
    read = RunSettings.read(CONFIG, changes)
    values = {name: getattr(read, name) for name in graph.python_interface.inputs if hasattr(read, name)}
    return literals(graph, {**values, **given, "store": f"s3://{bucket}/store"})


def same_artifacts(bucket: str, here: Runner) -> None:
    there, ours = Store.open(f"s3://{bucket}/store", create=False), Store.open(here.store)
    for kind in KINDS:
        made = {manifest.ref for manifest in there.manifests(kind)}
        assert made == {manifest.ref for manifest in ours.manifests(kind)}, kind
        assert made


def drive(
    found: Serialised, s3: S3, bucket: str, start: Callable[[Attempt], str], here: Runner, stages: int = 4
) -> Propeller:
    """Run four stages, or one, in pods: they make what the run here made, the stopped ones in a second attempt."""
    graph = {1: mu_grpo_1, 4: mu_grpo}[stages]
    propeller = Propeller(found, s3, bucket, start)
    propeller.run(graph.name, inputs(graph, bucket))
    same_artifacts(bucket, here)
    assert sorted(Path(key).suffix for key in s3.keys(bucket) if "/runs/" in key) == [".json"]
    again = {(attempt.task, attempt.stage) for attempt in propeller.attempts if attempt.number}
    assert again == {(task, stage) for task, stage in STOPPED if stage < stages}
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    policies = Store.open(f"s3://{bucket}/store").manifests("policy")
    assert {one.commit.removesuffix("+") for one in policies} == {head.stdout.strip()}
    return propeller
