"""A preflight names every fault of a cluster with its object and its fix, and finds none where there is none."""

import copy

import pytest
import yaml

from tests.preflight import spoiled
from tests.preflight.api_server import SECRET, ApiServer
from tests.preflight.clusters import right
from tests.preflight.conftest import Ask
from tests.preflight.services import ALTERNATING, Flyte
from tests.preflight.spoiled import ACCELERATOR, GPU, GPU_NODES, Wrong, nodes, rows_not_ok
from tools import ROOT

DEEPSPEED = "optimize.backend.kind=deepspeed optimize.backend.deepspeed=configs/deepspeed/zero2.json"


def test_the_development_cluster_passes(ask: Ask) -> None:
    """It has one node without GPUs. The store of the run is a folder."""
    with right("development") as server:
        found = ask(server, "development")
    assert {name: one.state for name, one in found.items() if one.state in ("warning", "failed")} == {"store": "failed"}
    assert found["secrets"].found == "none is required"
    assert not [one for one in server.asked if "secrets" in one.path and one.method == "GET"]
    assert "on 1 of 1 nodes" in found["image mu-grpo-cpu"].found


def test_several_nodes_that_train_need_the_training_operator(gpu_pool: ApiServer, ask: Ask) -> None:
    found = ask(gpu_pool, changes={"train_nodes": 2})
    assert found["PyTorchJob"].found == "optimize.backend.kind is torch, and train_nodes is 2"
    found = ask(gpu_pool, overrides=DEEPSPEED, changes={"train_nodes": 2})
    assert found["PyTorchJob"].state == "failed"
    assert "kubeflow.org/v1 has no pytorchjobs here, and train_nodes is 2" in found["PyTorchJob"].found
    assert "training operator v1" in found["PyTorchJob"].fix
    gpu_pool.apis["kubeflow.org/v1"] = ["pytorchjobs", "pytorchjobs/status"]
    found = ask(gpu_pool, overrides=DEEPSPEED, changes={"train_nodes": 2})
    assert found["PyTorchJob"].state == "ok"
    assert found["nodes for train"].state == "ok"
    too_many = ask(gpu_pool, overrides=DEEPSPEED, changes={"train_nodes": 3})["nodes for train"]
    assert too_many.state == "failed"
    assert too_many.found == "fits 1 of 5 nodes, which hold 2 of the 3 that must run at once"


def test_a_pod_with_fewer_gpus_than_its_step_uses_is_named(gpu_pool: ApiServer, ask: Ask) -> None:
    found = ask(gpu_pool, overrides=f"{DEEPSPEED} optimize.backend.processes=8")["pod of train"]
    assert (found.state, found.found) == ("failed", "it has 4 GPUs, and optimize.backend.processes is 8")


def test_an_alternating_run_needs_no_pool_for_generation(gpu_pool: ApiServer, ask: Ask, flyte: Flyte) -> None:
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
    assert [name for name, one in found.items() if one.state == "failed"] == ["store", *unregistered]
    assert found["workflow"].found == "workflows.grpo.grpo, latest version v2"


@pytest.mark.parametrize("case", spoiled.WRONG.values(), ids=spoiled.WRONG)
def test_what_is_wrong_is_named_with_its_fix(case: Wrong, gpu_pool: ApiServer, ask: Ask) -> None:
    case.spoil(gpu_pool)
    told = ask(gpu_pool)
    assert SECRET not in str(told)
    assert told[case.row].state == "failed"
    assert case.found in told[case.row].found
    assert case.fix in told[case.row].fix


def test_an_old_server(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.version |= {"minor": "25+", "gitVersion": "v1.25.16-eks-b2c9c8d"}
    told = ask(gpu_pool)["API server"]
    assert (told.state, told.found) == ("failed", "Kubernetes v1.25.16-eks-b2c9c8d")
    assert told.fix == "Upgrade the cluster to 1.28 or newer"


def test_what_the_api_server_refuses_is_told_in_its_own_words(gpu_pool: ApiServer, ask: Ask) -> None:
    """Each role has one refusal here; in tests/cluster a real API server gives all of them."""
    refused = {case.row: case for case in reversed(spoiled.REFUSED.values())}
    for row, case in refused.items():
        gpu_pool.refused[row.removeprefix("pod of ")] = case.found
    found = ask(gpu_pool)
    assert rows_not_ok(found) == dict.fromkeys(refused, "failed")
    for row, case in refused.items():
        assert found[row].found == f"the API server refuses it: {case.found}"
        assert case.fix in found[row].fix


def test_a_quota_that_is_used_up_is_a_warning_and_hides_nothing_wrong_with_nodes(gpu_pool: ApiServer, ask: Ask) -> None:
    used_up = "exceeded quota: mu-grpo, requested: cpu=8,requests.memory=960Gi, used: cpu=8,requests.memory=5400Gi, "
    gpu_pool.refused["train"] = f"{used_up}limited: cpu=512,requests.memory=6Ti"
    spoiled.tainted(gpu_pool)
    found = ask(gpu_pool)
    assert found["pod of train"].state == "warning"
    assert found["pod of train"].found.startswith("it waits: exceeded quota: mu-grpo, ")
    assert found["pod of train"].fix == "Wait until pods of the namespace end, or raise the quota"
    assert found["nodes for train"].state == "failed"


def test_a_wrong_project_or_domain_names_those_that_are_there(gpu_pool: ApiServer, ask: Ask) -> None:
    for name in ("mu-grpo-production", "another-mu-grpo"):
        gpu_pool.objects.append({"kind": "Namespace", "metadata": {"name": name}})
    found = ask(gpu_pool, domain="staging")
    assert found["namespace"].state == "failed"
    assert found["namespace"].found.endswith("does not exist; there are mu-grpo-development, mu-grpo-production")
    assert "Name another --project or --domain, or make it: kubectl apply -k" in found["namespace"].fix


def test_nodes_that_come_nearest_are_named_first(gpu_pool: ApiServer, ask: Ask) -> None:
    small = copy.deepcopy(nodes(gpu_pool, "gpu-train-1")[0])
    small["metadata"]["name"] = "gpu-train-2"
    small["status"]["allocatable"][GPU] = "2"
    gpu_pool.objects.append(small)
    spoiled.cordoned(gpu_pool)
    found = ask(gpu_pool)["nodes for train"].found
    assert found.startswith(f"it fits no node. gpu-train-2: asks 4 {GPU}, has 2 {GPU}; gpu-train-1: cordoned; ")


def test_affinities_and_tolerated_taints_stop_nothing(gpu_pool: ApiServer, ask: Ask) -> None:
    """The taints are tolerated or only preferred; the affinity of the template is an alternative to Flyte's."""
    spoiled.an_affinity(gpu_pool, "mu-grpo-verify")
    for node in nodes(gpu_pool, *GPU_NODES):
        # Flyte tolerates the accelerator's label.
        device = {"key": ACCELERATOR, "value": "nvidia-h200", "effect": "NoSchedule"}
        node["spec"]["taints"] += [device, {"key": "spot", "effect": "PreferNoSchedule"}]
    assert not rows_not_ok(ask(gpu_pool))


def test_no_room_now_is_a_warning_that_names_what_is_short(gpu_pool: ApiServer, ask: Ask) -> None:
    """This also holds for the shards that may be generated at once."""
    spoiled.occupied(gpu_pool, "gpu-train-1", 5)
    spoiled.occupied(gpu_pool, "gpu-rollout-1", 6)
    spoiled.occupied(gpu_pool, "gpu-rollout-2", 5)
    found = ask(gpu_pool, overrides="prompts.prompts_per_shard=128")
    assert rows_not_ok(found) == {"nodes for train": "warning", "nodes for rollout": "warning"}
    expected = f"fits 1 of 5 nodes; room for 0 of 1 at once now; gpu-train-1: asks 4 {GPU}, has 3 {GPU}"
    assert found["nodes for train"].found == expected
    assert "Wait for running pods to end, or add nodes" in found["nodes for train"].fix
    assert found["nodes for rollout"].found.startswith("fits 2 of 5 nodes; room for 3 of 4 at once now; ")
