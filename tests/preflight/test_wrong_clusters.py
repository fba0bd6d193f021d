"""Everything that stops a run is named with the object and the fix, and what depends on it is not tried."""

import copy
from collections.abc import Callable

import pytest

from tasks.settings.deployment import Role
from tests.preflight.api_server import NAMESPACE, SECRET, ApiServer
from tests.preflight.conftest import Ask
from tests.preflight.spoiled import (
    ACCELERATOR,
    GPU,
    GPU_NODES,
    an_affinity,
    an_affinity_and_no_pool,
    another_accelerator,
    being_deleted,
    cordoned,
    insecure_template,
    large_least,
    little_memory_because_of_daemons,
    no_accelerator_label,
    no_account,
    no_default_container,
    no_key,
    no_node,
    no_priority,
    no_secret,
    no_template,
    nodes,
    not_ready,
    occupied,
    old,
    short_of_disk,
    small_limit,
    small_quota,
    tainted,
    too_few_gpus,
    without_gpus,
    without_pool,
    wrong_rows,
)

WRONG: dict[str, tuple[Callable[[ApiServer], None], str, str, str]] = {
    "no GPUs": (without_gpus, "GPUs", f"no node of 5 offers {GPU}", "NVIDIA's GPU operator or device plugin"),
    "no GPUs, role": (
        without_gpus,
        "nodes for rollout",
        f"it fits no node. gpu-rollout-1, gpu-rollout-2: asks 1 {GPU}, has 0 {GPU}",
        "pods.rollout of the deployment",
    ),
    "too few GPUs": (
        too_few_gpus,
        "nodes for train",
        f"gpu-train-1: asks 4 {GPU}, has 2 {GPU}",
        "Ask for less in pods.train of the deployment, or add larger nodes",
    ),
    "a taint": (
        tainted,
        "nodes for train",
        "gpu-train-1: taint dedicated=research:NoSchedule",
        "Add a toleration for dedicated=research:NoSchedule to mu-grpo-train",
    ),
    "no pool": (
        without_pool,
        "nodes for rollout",
        "no label mu-grpo/pool=rollout",
        "kubectl label node <name> mu-grpo/pool=rollout",
    ),
    "another accelerator": (
        another_accelerator,
        "nodes for evaluate",
        f"it fits no node. gpu-rollout-1, gpu-rollout-2: no label {ACCELERATOR}=nvidia-h200; ",
        "or change accelerator of evaluate, accelerator_label or spot_label",
    ),
    "no accelerator's label": (
        no_accelerator_label,
        "nodes for train",
        f"it fits no node. gpu-train-1: no label {ACCELERATOR}=nvidia-h200; ",
        f"kubectl label node <name> {ACCELERATOR}=nvidia-h200",
    ),
    "cordoned": (cordoned, "nodes for train", "gpu-train-1: cordoned", "kubectl uncordon gpu-train-1"),
    "not ready": (not_ready, "nodes for train", "gpu-train-1: unreachable", "kubectl describe node gpu-train-1"),
    "short of disk": (
        short_of_disk,
        "nodes for train",
        "gpu-train-1: disk-pressure",
        "kubectl describe node gpu-train-1",
    ),
    "being deleted": (being_deleted, "namespace", f"{NAMESPACE} is being deleted", "make it again: kubectl apply -k"),
    "daemons leave too little": (
        little_memory_because_of_daemons,
        "nodes for train",
        "gpu-train-1: asks 960Gi memory, has 959.87Gi memory",
        "pods.train of the deployment",
    ),
    "an affinity": (
        an_affinity_and_no_pool,
        "nodes for rollout",
        "no label topology.kubernetes.io/zone=eu-west-1a or mu-grpo/pool=rollout",
        "nodeSelector and affinity of mu-grpo-rollout",
    ),
    "no node": (no_node, "nodes for cpu", "the cluster has no node", "Add nodes"),
    "secret": (
        no_secret,
        "secrets",
        f"mu-grpo does not exist in {NAMESPACE}",
        f"kubectl create secret generic mu-grpo -n {NAMESPACE} --from-file=hub-token=... --from-file=wandb-api-key=...",
    ),
    "key of a secret": (
        no_key,
        "secrets",
        "mu-grpo has no key wandb-api-key; it has hub-token",
        "Add the key to the secret, or name another in the deployment's secrets: wandb-api-key",
    ),
    "version": (old, "API server", "Kubernetes v1.25.16-eks-b2c9c8d", "Upgrade the cluster to 1.28 or newer"),
    "pod template": (
        no_template,
        "pod of train",
        f"the pod template mu-grpo-train does not exist in {NAMESPACE}; it has mu-grpo-cpu, mu-grpo-prefetch, ",
        "or name another in the deployment's pods",
    ),
}
"""What is done to a right cluster, the row that tells it, and parts of what is found and of the fix."""
IN_OVERLAY = "Change it in k8s/overlays/<yours>, or change pods.{} of the deployment"
_VIOLATES = 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "task" must set'
_QUOTA = "exceeded quota: mu-grpo, requested: requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=0, limited: "
REFUSED: dict[str, tuple[Callable[[ApiServer], None], Role, str, str]] = {
    "quota": (small_quota, "train", f"{_QUOTA}requests.nvidia.com/gpu=2", IN_OVERLAY.format("train")),
    "limit range, most": (
        small_limit,
        "train",
        "maximum memory usage per Pod is 512Gi, but limit is 960Gi",
        IN_OVERLAY.format("train"),
    ),
    "limit range, least": (
        large_least,
        "cpu",
        "minimum cpu usage per Container is 3, but request is 2",
        IN_OVERLAY.format("cpu"),
    ),
    "service account": (
        no_account,
        "prefetch",
        f'error looking up service account {NAMESPACE}/mu-grpo-prefetch: serviceaccount "mu-grpo-prefetch" not found',
        "Make it: kubectl apply -k k8s/overlays/<yours>",
    ),
    "priority class": (
        no_priority,
        "train",
        "no PriorityClass with name mu-grpo-train was found",
        "Make it: kubectl apply -k k8s/overlays/<yours>",
    ),
    "Pod Security": (insecure_template, "train", _VIOLATES, "Change the pod template mu-grpo-train"),
    "Pod Security, no default container": (
        no_default_container,
        "cpu",
        _VIOLATES,
        "Change the pod template mu-grpo-cpu",
    ),
}
"""What is done to a right cluster, the role whose pod it then refuses, its words (Kubernetes 1.34.4), and the fix."""


GROUPS = (
    ("no GPUs", "secret", "being deleted"),
    ("no GPUs, role", "key of a secret", "version"),
    ("too few GPUs", "no pool"),
    ("a taint", "another accelerator"),
    ("no accelerator's label",),
    ("cordoned", "an affinity"),
    ("not ready",),
    ("short of disk",),
    ("daemons leave too little",),
    ("no node", "pod template"),
)
"""Cases whose rows do not touch each other."""


def test_every_case_is_in_a_group() -> None:
    assert sorted(case for group in GROUPS for case in group) == sorted(WRONG)


@pytest.mark.parametrize("group", GROUPS, ids=" and ".join)
def test_what_is_wrong_is_named_with_its_fix(group: tuple[str, ...], gpu_pool: ApiServer, ask: Ask) -> None:
    for case in group:
        WRONG[case][0](gpu_pool)
    told = ask(gpu_pool)
    assert SECRET not in str(told)
    for case in group:
        _, row, found, fix = WRONG[case]
        assert told[row].state == "failed", case
        assert found in told[row].found
        assert fix in told[row].fix


@pytest.mark.parametrize("group", [tuple(REFUSED)[:1], tuple(REFUSED)[1:4], tuple(REFUSED)[4:5], tuple(REFUSED)[5:]])
def test_what_the_api_server_refuses_is_told_in_its_own_words(
    group: tuple[str, ...], gpu_pool: ApiServer, ask: Ask
) -> None:
    """tests/cluster has a real API server say them."""
    for case in group:
        gpu_pool.refused[REFUSED[case][1]] = REFUSED[case][2]
    told = ask(gpu_pool)
    assert wrong_rows(told) == {f"pod of {REFUSED[case][1]}": "failed" for case in group}
    for case in group:
        _, role, message, fix = REFUSED[case]
        assert told[f"pod of {role}"].found == f"the API server would refuse it: {message}"
        assert fix in told[f"pod of {role}"].fix


def test_refusals_of_other_kinds(gpu_pool: ApiServer, ask: Ask) -> None:
    """One that is not known is shown too, and a quota that is used up is a warning."""
    message = 'admission webhook "policies.example.org" denied the request: images must be signed'
    gpu_pool.refused["verify"] = message
    used_up = "exceeded quota: mu-grpo, requested: cpu=8,requests.memory=960Gi, used: cpu=8,requests.memory=5400Gi, "
    gpu_pool.refused["train"] = f"{used_up}limited: cpu=512,requests.memory=6Ti"
    tainted(gpu_pool)
    found = ask(gpu_pool)
    told = found["pod of verify"]
    assert (told.state, told.found) == ("failed", f"the API server would refuse it: {message}")
    assert told.fix == "Change pods.verify of the deployment, or the pod template mu-grpo-verify"
    assert found["pod of train"].state == "warning"
    assert found["pod of train"].found.startswith("it waits: exceeded quota: mu-grpo, ")
    assert found["pod of train"].fix == "Wait for what runs in the namespace, or raise the quota"
    assert found["nodes for train"].state == "failed"  # the one does not hide the other


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
    cordoned(gpu_pool)
    found = ask(gpu_pool)["nodes for train"].found
    assert found.startswith(f"it fits no node. gpu-train-2: asks 4 {GPU}, has 2 {GPU}; gpu-train-1: cordoned; ")


def test_what_stops_nothing(gpu_pool: ApiServer, ask: Ask) -> None:
    """A template's affinity, an alternative to Flyte's; a taint that is tolerated, and one that is preferred."""
    an_affinity(gpu_pool, "mu-grpo-verify")
    for node in nodes(gpu_pool, *GPU_NODES):
        device = {"key": ACCELERATOR, "value": "nvidia-h200", "effect": "NoSchedule"}  # Flyte tolerates its own label
        node["spec"]["taints"] += [device, {"key": "spot", "effect": "PreferNoSchedule"}]
    assert not wrong_rows(ask(gpu_pool))


def test_the_deployment_names_the_accelerators_label(gpu_pool: ApiServer, ask: Ask) -> None:
    for node in nodes(gpu_pool, *GPU_NODES):
        del node["metadata"]["labels"][ACCELERATOR]
        node["metadata"]["labels"]["cloud.google.com/gke-accelerator"] = "nvidia-h200"
    found = ask(gpu_pool, changes={"accelerator_label": "cloud.google.com/gke-accelerator"})
    assert found["nodes for train"].state == "ok"


def test_no_room_now_is_a_warning_that_names_what_is_short(gpu_pool: ApiServer, ask: Ask) -> None:
    """For as many shards, too, as may be generated at once."""
    occupied(gpu_pool, "gpu-train-1", 5)
    occupied(gpu_pool, "gpu-rollout-1", 6)
    occupied(gpu_pool, "gpu-rollout-2", 5)
    found = ask(gpu_pool, overrides="prompts.prompts_per_shard=128")
    assert wrong_rows(found) == {"nodes for train": "warning", "nodes for rollout": "warning"}
    expected = f"fits 1 of 5 nodes; room for 0 of 1 at once now; gpu-train-1: asks 4 {GPU}, has 3 {GPU}"
    assert found["nodes for train"].found == expected
    assert "Wait for what runs there, or add nodes" in found["nodes for train"].fix
    assert found["nodes for rollout"].found.startswith("fits 2 of 5 nodes; room for 3 of 4 at once now; ")
