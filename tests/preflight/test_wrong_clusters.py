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
        "pod of rollout",
        f"it fits no node. gpu-rollout-1, gpu-rollout-2: asks 1 {GPU}, has 0 {GPU}",
        "pods.rollout of the deployment",
    ),
    "too few GPUs": (
        too_few_gpus,
        "pod of train",
        f"gpu-train-1: asks 4 {GPU}, has 2 {GPU}",
        "Ask for less in pods.train of the deployment, or add larger nodes",
    ),
    "a taint": (
        tainted,
        "pod of train",
        "gpu-train-1: taint dedicated=research:NoSchedule",
        "Add a toleration for dedicated=research:NoSchedule to mu-grpo-train",
    ),
    "no pool": (
        without_pool,
        "pod of rollout",
        "no label mu-grpo/pool=rollout",
        "Label and taint the spot nodes mu-grpo/pool=rollout",
    ),
    "another accelerator": (
        another_accelerator,
        "pod of evaluate",
        f"it fits no node. gpu-rollout-1, gpu-rollout-2: no label {ACCELERATOR}=nvidia-h200; ",
        "Change accelerator of evaluate, or accelerator_label",
    ),
    "no accelerator's label": (
        no_accelerator_label,
        "pod of train",
        f"it fits no node. gpu-train-1: no label {ACCELERATOR}=nvidia-h200; ",
        f"kubectl label node gpu-train-1 {ACCELERATOR}=nvidia-h200",
    ),
    "cordoned": (cordoned, "pod of train", "gpu-train-1: cordoned", "kubectl uncordon gpu-train-1"),
    "not ready": (not_ready, "pod of train", "gpu-train-1: not ready", "kubectl describe node gpu-train-1"),
    "short of disk": (short_of_disk, "pod of train", "gpu-train-1: disk-pressure", "kubectl describe node gpu-train-1"),
    "being deleted": (being_deleted, "namespace", f"{NAMESPACE} is being deleted", "make it again: kubectl apply -k"),
    "daemons leave too little": (
        little_memory_because_of_daemons,
        "pod of train",
        "gpu-train-1: asks 960Gi memory, has 959.87Gi memory",
        "pods.train of the deployment",
    ),
    "an affinity": (
        an_affinity_and_no_pool,
        "pod of rollout",
        "no label topology.kubernetes.io/zone=eu-west-1a or mu-grpo/pool=rollout",
        "nodeSelector and affinity of mu-grpo-rollout",
    ),
    "no node": (no_node, "pod of cpu", "the cluster has no node", "Add nodes"),
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


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_its_fix(case: str, gpu_pool: ApiServer, ask: Ask) -> None:
    spoil, row, found, fix = WRONG[case]
    spoil(gpu_pool)
    wrong = ask(gpu_pool)[row]
    assert wrong.state == "failed"
    assert found in wrong.found
    assert fix in wrong.fix
    assert SECRET not in str(wrong)


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_api_server_refuses_is_told_in_its_own_words(case: str, gpu_pool: ApiServer, ask: Ask) -> None:
    """tests/cluster has a real API server say them."""
    _, role, message, fix = REFUSED[case]
    gpu_pool.refused[role] = message
    found = ask(gpu_pool)
    assert wrong_rows(found) == {f"pod of {role}": "failed"}
    assert found[f"pod of {role}"].found == f"the API server would refuse it: {message}"
    assert fix in found[f"pod of {role}"].fix


def test_a_refusal_that_is_not_known_is_shown_too(gpu_pool: ApiServer, ask: Ask) -> None:
    message = 'admission webhook "policies.example.org" denied the request: images must be signed'
    gpu_pool.refused["verify"] = message
    found = ask(gpu_pool)["pod of verify"]
    assert (found.state, found.found) == ("failed", f"the API server would refuse it: {message}")
    assert found.fix == "Change pods.verify of the deployment, or the pod template mu-grpo-verify"


def test_a_quota_that_is_used_up_is_a_warning(gpu_pool: ApiServer, ask: Ask) -> None:
    message = "exceeded quota: mu-grpo, requested: cpu=8,requests.memory=960Gi, used: cpu=8,requests.memory=5400Gi, "
    gpu_pool.refused["train"] = f"{message}limited: cpu=512,requests.memory=6Ti"
    found = ask(gpu_pool)["pod of train"]
    assert found.state == "warning"
    assert found.found.startswith("it waits: exceeded quota: mu-grpo, ")
    assert found.fix == "Wait for what runs in the namespace, or raise the quota"


def test_a_refusal_and_a_node_that_does_not_fit_are_both_shown(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.refused["train"] = REFUSED["quota"][2]
    tainted(gpu_pool)
    found = ask(gpu_pool)["pod of train"]
    assert "exceeded quota" in found.found
    assert "taint dedicated=research:NoSchedule" in found.found
    assert "Add a toleration" in found.fix


def test_several_failures_are_all_shown(gpu_pool: ApiServer, ask: Ask) -> None:
    for spoil in (old, no_key, tainted):
        spoil(gpu_pool)
    gpu_pool.refused["cpu"] = REFUSED["priority class"][2]
    found = [name for name, state in wrong_rows(ask(gpu_pool)).items() if state == "failed"]
    assert found == ["API server", "secrets", "pod of cpu", "pod of train"]


def test_a_wrong_project_or_domain_names_those_that_are_there(gpu_pool: ApiServer, ask: Ask) -> None:
    for name in ("mu-grpo-production", "another-mu-grpo"):
        gpu_pool.objects.append({"kind": "Namespace", "metadata": {"name": name}})
    for target in ({"domain": "staging"}, {"project": "mu-grp"}):
        found = ask(gpu_pool, **target)
        assert found["namespace"].state == "failed"
        assert found["namespace"].found.endswith("does not exist; there are mu-grpo-development, mu-grpo-production")
        assert "Name another --project or --domain, or make it: kubectl apply -k" in found["namespace"].fix
        assert found["GPUs"].state == "ok"


def test_a_namespace_that_does_not_say_how_strict_it_is(gpu_pool: ApiServer, ask: Ask) -> None:
    del gpu_pool.find("Namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    found = ask(gpu_pool)["namespace"]
    assert found.state == "warning"
    assert found.fix == f"kubectl label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=restricted"


def test_a_templates_affinity_is_an_alternative_to_flytes(gpu_pool: ApiServer, ask: Ask) -> None:
    an_affinity(gpu_pool, "mu-grpo-verify")
    assert not wrong_rows(ask(gpu_pool))


def test_nodes_that_come_nearest_are_named_first(gpu_pool: ApiServer, ask: Ask) -> None:
    small = copy.deepcopy(nodes(gpu_pool, "gpu-train-1")[0])
    small["metadata"]["name"] = "gpu-train-2"
    small["status"]["allocatable"][GPU] = "2"
    gpu_pool.objects.append(small)
    cordoned(gpu_pool)
    found = ask(gpu_pool)["pod of train"].found
    assert found.startswith(f"it fits no node. gpu-train-2: asks 4 {GPU}, has 2 {GPU}; gpu-train-1: cordoned; ")


def test_gpus_that_one_node_does_not_offer(gpu_pool: ApiServer, ask: Ask) -> None:
    nodes(gpu_pool, "gpu-rollout-2")[0]["status"]["allocatable"][GPU] = "0"
    found = ask(gpu_pool)["GPUs"]
    assert found.state == "warning"
    assert found.found == f"16 {GPU} on 2 of 5 nodes; none on gpu-rollout-2, labelled as GPU nodes"


def test_a_tolerated_and_a_preferred_taint_stop_nothing(gpu_pool: ApiServer, ask: Ask) -> None:
    for node in nodes(gpu_pool, *GPU_NODES):
        device = {"key": ACCELERATOR, "value": "nvidia-h200", "effect": "NoSchedule"}  # Flyte tolerates its own label
        node["spec"]["taints"] += [device, {"key": "spot", "effect": "PreferNoSchedule"}]
    assert not wrong_rows(ask(gpu_pool))


def test_the_deployment_names_the_accelerators_label(gpu_pool: ApiServer, ask: Ask) -> None:
    for node in nodes(gpu_pool, *GPU_NODES):
        del node["metadata"]["labels"][ACCELERATOR]
        node["metadata"]["labels"]["cloud.google.com/gke-accelerator"] = "nvidia-h200"
    assert ask(gpu_pool)["pod of train"].state == "failed"
    found = ask(gpu_pool, changes={"accelerator_label": "cloud.google.com/gke-accelerator"})
    assert found["pod of train"].state == "ok"
