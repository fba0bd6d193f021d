"""Training on several nodes: two pods as the training operator starts them, from the task's registered command line."""

import os
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tasks.flyte.inputs import OptimizeInputs
from tasks.flyte.tasks import optimize
from tasks.settings import BackendSettings, OperationSettings
from tasks.train.stage import optimize_stage
from tests.platform.propeller import Attempt, Propeller, literals
from tests.prepared import OPTIMIZE, Small, prepare_verdicts
from tests.train.small import zero
from tests.train.together import largest_difference
from tests.workflows.test_retry import training_values
from tools.forked import Program
from tools.s3 import S3, free_port
from tools.serialised import serialise

pytest.importorskip("deepspeed")
NODES = 2


@pytest.mark.long
def test_two_nodes_make_the_policy_of_one(learner: Small, s3: S3, bucket: str, tmp_path: Path) -> None:
    store, policy = learner
    rollouts, verdicts = prepare_verdicts(store, policy)
    alone = optimize_stage(store, OPTIMIZE, policy, policy, rollouts, verdicts, 0, 0)
    deployment = tmp_path / "deployment.yaml"
    deployment.write_text(f"{{train_nodes: {NODES}, pods: {{train: {{retries: 0}}}}}}")
    found = serialise(tmp_path, deployment)
    template = found.tasks[optimize.name].template
    assert template.type == "pytorch"
    assert template.custom["elasticConfig"]["minReplicas"] == template.custom["workerReplicas"]["replicas"] == NODES
    assert template.custom["runPolicy"]["cleanPodPolicy"] == "CLEANPOD_POLICY_RUNNING"
    endpoint = f"127.0.0.1:{free_port()}"

    def start(attempt: Attempt) -> str:
        operators = {"PET_NNODES": f"{NODES}:{NODES}", "PET_RDZV_ENDPOINT": endpoint}
        own = {**operators, "MU_GRPO_DEPLOYMENT": str(deployment), "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **attempt.environment, **s3.environment(tmp_path / "cache"), **own}
        pods = [Program(attempt.arguments, environment, together=True) for _ in range(NODES)]
        return "\n".join(pod.end(240).stdout for pod in pods)

    settings = OPTIMIZE.model_copy(update={"backend": BackendSettings.parse(zero("2", processes=1))})
    inputs = OptimizeInputs(store=store.ref, seed=0, settings=settings, operation=OperationSettings())
    given = training_values(inputs, policy, rollouts, verdicts)
    propeller = Propeller(found, s3, bucket.removeprefix("s3://"), start)
    propeller.task(optimize.name, literals(optimize, given), "optimize")
    (together,) = (one.ref for one in store.manifests("policy") if one.ref not in (policy, alone))
    ours, theirs = (load_file(store.path(one) / "model.safetensors") for one in (together, alone))
    assert largest_difference(ours, theirs) < 1e-4
    assert store.manifest(together).facts["processes"] == NODES
