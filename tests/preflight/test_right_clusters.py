"""A preflight finds no fault in the clusters of the manifests, and changes nothing."""

import yaml

from tests.preflight.api_server import ApiServer
from tests.preflight.conftest import Ask, Findings
from tests.preflight.services import ALTERNATING, Flyte
from tools import ROOT


def rows(found: Findings, state: str) -> list[str]:
    return [name for name, one in found.items() if one.state == state]


def test_the_development_cluster_passes(one_machine: ApiServer, ask: Ask) -> None:
    found = ask(one_machine, "development")
    assert rows(found, "warning") == []
    assert rows(found, "failed") == ["store"]  # The store is a folder.
    assert found["secrets"].found == "none is required"
    assert not [one for one in one_machine.asked if "secrets" in one.path and one.method == "GET"]
    assert "on 1 of 1 nodes" in found["image mu-grpo-cpu"].found


def test_several_nodes_that_train_need_the_training_operator(gpu_pool: ApiServer, ask: Ask) -> None:
    found = ask(gpu_pool, changes={"train_nodes": 2})
    assert found["PyTorchJob"].state == "failed"
    assert "kubeflow.org/v1 has no pytorchjobs here, and train_nodes is 2" in found["PyTorchJob"].found
    assert "training operator v1" in found["PyTorchJob"].fix
    gpu_pool.apis["kubeflow.org/v1"] = ["pytorchjobs", "pytorchjobs/status"]
    found = ask(gpu_pool, changes={"train_nodes": 2})
    assert found["PyTorchJob"].state == "ok"
    assert found["nodes for train"].state == "ok"
    too_many = ask(gpu_pool, changes={"train_nodes": 3})["nodes for train"]
    assert too_many.state == "failed"
    assert too_many.found == "fits 1 of 5 nodes, which hold 2 of the 3 that must run at once"


def test_a_run_that_takes_turns_needs_no_pool_for_generation(gpu_pool: ApiServer, ask: Ask, flyte: Flyte) -> None:
    pods = yaml.safe_load((ROOT / "configs/deployments/gpu-4.yaml").read_text())["pods"]
    changes: dict[str, object] = {"pods": {**pods, "rollout": pods["rollout"] | {"template": "mu-grpo-elsewhere"}}}
    gpu_pool.objects.remove(gpu_pool.find("PodTemplate", "mu-grpo-verify"))
    staged = ask(gpu_pool, flyte=flyte.url, changes=changes)
    assert "the pod template mu-grpo-elsewhere does not exist" in staged["pod of rollout"].found
    assert "the pod template mu-grpo-verify does not exist" in staged["pod of verify"].found
    flyte.workflows = {ALTERNATING}
    found = ask(gpu_pool, overrides="updates_per_rollout=4", flyte=flyte.url, changes=changes)
    assert not {"pod of rollout", "nodes for rollout", "pod of verify"} & found.keys()
    unregistered = [name for name in found if name.startswith("image ")]
    assert unregistered == ["image mu-grpo-cpu", "image mu-grpo-rollout", "image mu-grpo-alternate"]
    assert rows(found, "failed") == ["store", *unregistered]
    assert found["workflow"].found == "workflows.grpo.grpo, latest version v2"
