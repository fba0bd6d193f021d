"""Everything that stops a run is named with the object and the mend, and what depends on it is not tried."""

import copy
from collections.abc import Callable

import pytest

from tests.preflight.api_server import SECRET, ApiServer
from tests.preflight.clusters import NAMESPACE
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
        f"asks 1 {GPU}; the largest, gpu-rollout-2, has 0 {GPU}",
        "pods.rollout of the deployment",
    ),
    "too few GPUs": (
        too_few_gpus,
        "pod of train",
        f"asks 4 {GPU}; the largest, gpu-train-1, has 2 {GPU}",
        "Ask for less in pods.train of the deployment, or add larger nodes",
    ),
    "a taint": (
        tainted,
        "pod of train",
        "the taint dedicated=research:NoSchedule of gpu-train-1 is tolerated by nothing in mu-grpo-train",
        "Add a toleration for dedicated=research:NoSchedule to mu-grpo-train",
    ),
    "no pool": (
        without_pool,
        "pod of rollout",
        "the label mu-grpo/pool=rollout of spot nodes, where Flyte sends rollout, is on no node; there is train on 1",
        "Label and taint the spot nodes mu-grpo/pool=rollout",
    ),
    "another accelerator": (
        another_accelerator,
        "pod of evaluate",
        f"the label {ACCELERATOR}=nvidia-h200, by which Flyte finds the accelerator, is not on gpu-rollout-1, "
        "gpu-rollout-2; there is nvidia-l40s on 2",
        "Change accelerator of evaluate, or accelerator_label",
    ),
    "no accelerator's label": (
        no_accelerator_label,
        "pod of train",
        f"the label {ACCELERATOR}=nvidia-h200, by which Flyte finds the accelerator, is not on gpu-train-1; "
        f"nor is {ACCELERATOR} with another value",
        f"kubectl label node gpu-train-1 {ACCELERATOR}=nvidia-h200",
    ),
    "cordoned": (cordoned, "pod of train", "gpu-train-1: cordoned", "kubectl uncordon gpu-train-1"),
    "not ready": (not_ready, "pod of train", "gpu-train-1: not ready", "kubectl describe node gpu-train-1"),
    "short of disk": (short_of_disk, "pod of train", "gpu-train-1: disk-pressure", "kubectl describe node gpu-train-1"),
    "being deleted": (being_deleted, "namespace", f"{NAMESPACE} is being deleted", "make it again: kubectl apply -k"),
    "daemons leave too little": (
        little_memory_because_of_daemons,
        "pod of train",
        "asks 960Gi memory; the largest, gpu-train-1, has 959.87Gi memory",
        "pods.train of the deployment",
    ),
    "an affinity": (
        an_affinity_and_no_pool,
        "pod of rollout",
        "what the node affinity of mu-grpo-rollout asks for is on no node: (topology.kubernetes.io/zone=eu-west-1a) or "
        "(mu-grpo/pool=rollout)",
        "change the affinity of mu-grpo-rollout",
    ),
    "no node": (no_node, "pod of cpu", "the cluster has no node", "Add nodes"),
    "quota": (
        small_quota,
        "quota",
        f"mu-grpo allows 2 {GPU}, which 4 {GPU} of train exceed",
        "Change it in k8s/overlays/<yours>, or change the deployment's pods",
    ),
    "limit range, most": (
        small_limit,
        "limit range",
        "mu-grpo allows a Pod at most 512Gi memory; train asks 960Gi memory",
        "Change it in k8s/overlays",
    ),
    "limit range, least": (
        large_least,
        "limit range",
        "mu-grpo allows a Container at least 3 cores; cpu asks 2 cores",
        "change the deployment's pods",
    ),
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
    "service account": (
        no_account,
        "service accounts",
        f"mu-grpo-prefetch, which mu-grpo-prefetch names, does not exist in {NAMESPACE}",
        "kubectl apply -k k8s/overlays/<yours>",
    ),
    "priority class": (
        no_priority,
        "priority classes",
        "mu-grpo-train, which mu-grpo-train names, does not exist",
        "kubectl apply -k k8s/overlays/<yours>",
    ),
    "pod template": (
        no_template,
        "pod templates",
        f"mu-grpo-train of train does not exist in {NAMESPACE}; it has mu-grpo-cpu, mu-grpo-prefetch, ",
        "or name another in the deployment's pods",
    ),
    "Pod Security": (
        insecure_template,
        "Pod Security",
        "pod-security.kubernetes.io/enforce=restricted refuses pods of mu-grpo-train: allowPrivilegeEscalation not "
        "false, capabilities.drop without ALL",
        "Mend the pod template mu-grpo-train",
    ),
    "Pod Security, no default container": (
        no_default_container,
        "Pod Security",
        "refuses pods of mu-grpo-cpu: allowPrivilegeEscalation not false",
        "Mend the pod template mu-grpo-cpu",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_its_mend(case: str, gpu_pool: ApiServer, ask: Ask) -> None:
    spoil, row, found, mend = WRONG[case]
    spoil(gpu_pool)
    wrong = ask(gpu_pool)[row]
    assert wrong.state == "failed"
    assert found in wrong.found
    assert mend in wrong.mend
    assert SECRET not in str(wrong)


def test_several_failures_are_all_shown(gpu_pool: ApiServer, ask: Ask) -> None:
    for spoil in (old, no_key, no_priority, small_quota, tainted):
        spoil(gpu_pool)
    found = [name for name, state in wrong_rows(ask(gpu_pool)).items() if state == "failed"]
    assert found == ["API server", "secrets", "priority classes", "pod of train", "quota"]


def test_a_wrong_project_or_domain_names_those_that_are_there(gpu_pool: ApiServer, ask: Ask) -> None:
    for name in ("mu-grpo-production", "another-mu-grpo"):
        gpu_pool.objects.append({"kind": "Namespace", "metadata": {"name": name}})
    for target in ({"domain": "staging"}, {"project": "mu-grp"}):
        found = ask(gpu_pool, **target)
        assert found["namespace"].state == "failed"
        assert found["namespace"].found.endswith("does not exist; there are mu-grpo-development, mu-grpo-production")
        assert "Name another --project or --domain, or make it: kubectl apply -k" in found["namespace"].mend
        for name in ("Pod Security", "service accounts", "secrets", "pod templates", "quota", "limit range"):
            assert found[name].state == "not tried", name
            assert "there is no namespace " in found[name].found
        assert found["pod of train"].state == "not tried"
        assert found["GPUs"].state == "ok"


def test_a_missing_template_stops_the_checks_of_its_roles_alone(gpu_pool: ApiServer, ask: Ask) -> None:
    no_template(gpu_pool)
    found = ask(gpu_pool)
    assert wrong_rows(found) == {"pod templates": "failed", "pod of train": "not tried"}
    assert found["pod of train"].found == "needs the pod template mu-grpo-train"


def test_a_namespace_that_does_not_say_how_strict_it_is(gpu_pool: ApiServer, ask: Ask) -> None:
    del gpu_pool.find("Namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    found = ask(gpu_pool)["Pod Security"]
    assert found.state == "warning"
    assert found.mend == f"kubectl label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=restricted"


def test_a_templates_affinity_is_an_alternative_to_flytes(gpu_pool: ApiServer, ask: Ask) -> None:
    an_affinity(gpu_pool, "mu-grpo-verify")
    found = ask(gpu_pool)
    assert wrong_rows(found) == {"pod templates": "warning"}
    assert "mu-grpo-verify: Flyte joins a template's required node affinity" in found["pod templates"].found
    assert "nodeSelector" in found["pod templates"].mend


def test_a_node_that_is_too_small_is_named_beside_one_that_is_away(gpu_pool: ApiServer, ask: Ask) -> None:
    small = copy.deepcopy(nodes(gpu_pool, "gpu-train-1")[0])
    small["metadata"]["name"] = "gpu-train-2"
    small["status"]["allocatable"][GPU] = "2"
    gpu_pool.objects.append(small)
    cordoned(gpu_pool)
    found = ask(gpu_pool)["pod of train"].found
    assert found == f"asks 4 {GPU}; the largest, gpu-train-2, has 2 {GPU}; gpu-train-1: cordoned"


def test_nodes_of_others_are_farther_than_those_that_are_away(gpu_pool: ApiServer, ask: Ask) -> None:
    for node in nodes(gpu_pool, "cpu-1", "cpu-2"):
        node["spec"]["unschedulable"] = True
    found = ask(gpu_pool)["pod of cpu"]
    assert found.found.startswith("cpu-1, cpu-2: cordoned; gpu-train-1: taint mu-grpo/pool=train:NoSchedule")
    assert found.mend == "kubectl uncordon cpu-1"


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
