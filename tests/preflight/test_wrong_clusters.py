"""Everything that stops a run is named with the object and the mend, and what depends on it is not tried."""

import copy
from collections.abc import Callable

import pytest

from tests.preflight.api_server import SECRET, ApiServer, Object
from tests.preflight.clusters import NAMESPACE
from tests.preflight.conftest import Ask, Findings

ACCELERATOR = "k8s.amazonaws.com/accelerator"
GPU = "nvidia.com/gpu"
POOLS = {"rollout": ("gpu-rollout-1", "gpu-rollout-2"), "train": ("gpu-train-1",)}
GPU_NODES = [*POOLS["rollout"], *POOLS["train"]]


def nodes(server: ApiServer, *names: str) -> list[Object]:
    return [one for one in server.all("Node") if not names or one["metadata"]["name"] in names]


def without_gpus(server: ApiServer) -> None:
    for node in nodes(server):
        node["status"]["allocatable"].pop(GPU, None)


def too_few_gpus(server: ApiServer) -> None:
    nodes(server, "gpu-train-1")[0]["status"]["allocatable"][GPU] = "2"


def tainted(server: ApiServer) -> None:
    taint = {"key": "dedicated", "value": "research", "effect": "NoSchedule"}
    nodes(server, "gpu-train-1")[0]["spec"]["taints"].append(taint)


def without_pool(server: ApiServer) -> None:
    for node in nodes(server, *POOLS["rollout"]):
        del node["metadata"]["labels"]["mu-grpo/pool"]


def another_accelerator(server: ApiServer) -> None:
    for node in nodes(server, *POOLS["rollout"]):
        node["metadata"]["labels"][ACCELERATOR] = "nvidia-l40s"


def no_accelerator_label(server: ApiServer) -> None:
    for node in nodes(server):
        node["metadata"]["labels"].pop(ACCELERATOR, None)


def cordoned(server: ApiServer) -> None:
    spec = nodes(server, "gpu-train-1")[0]["spec"]
    spec["unschedulable"] = True
    spec["taints"].append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})


def not_ready(server: ApiServer) -> None:
    node = nodes(server, "gpu-train-1")[0]
    node["status"]["conditions"][-1]["status"] = "Unknown"
    node["spec"]["taints"].append({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"})


def short_of_disk(server: ApiServer) -> None:
    taint = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
    nodes(server, "gpu-train-1")[0]["spec"]["taints"].append(taint)


def being_deleted(server: ApiServer) -> None:
    server.find("Namespace", NAMESPACE)["status"] = {"phase": "Terminating"}


def little_memory_because_of_daemons(server: ApiServer) -> None:
    nodes(server, "gpu-train-1")[0]["status"]["allocatable"]["memory"] = "960Gi"


def an_affinity(server: ApiServer) -> None:
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-west-1a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    template = server.find("PodTemplate", "mu-grpo-verify")
    template["template"]["spec"]["affinity"] = {"nodeAffinity": required}


def no_node(server: ApiServer) -> None:
    for node in nodes(server):
        server.objects.remove(node)


def small_quota(server: ApiServer) -> None:
    server.find("ResourceQuota", "mu-grpo")["spec"]["hard"]["requests.nvidia.com/gpu"] = "2"


def small_limit(server: ApiServer) -> None:
    server.find("LimitRange", "mu-grpo")["spec"]["limits"].append({"type": "Pod", "max": {"memory": "512Gi"}})


def large_least(server: ApiServer) -> None:
    server.find("LimitRange", "mu-grpo")["spec"]["limits"].append({"type": "Container", "min": {"cpu": "3"}})


def no_secret(server: ApiServer) -> None:
    server.remove("Secret", "mu-grpo")


def no_key(server: ApiServer) -> None:
    del server.find("Secret", "mu-grpo")["data"]["wandb-api-key"]


def old(server: ApiServer) -> None:
    server.version |= {"minor": "25+", "gitVersion": "v1.25.16-eks-b2c9c8d"}


def no_account(server: ApiServer) -> None:
    server.remove("ServiceAccount", "mu-grpo-prefetch")


def no_priority(server: ApiServer) -> None:
    server.remove("PriorityClass", "mu-grpo-train")


def no_template(server: ApiServer) -> None:
    server.remove("PodTemplate", "mu-grpo-train")


def insecure_template(server: ApiServer) -> None:
    context = server.find("PodTemplate", "mu-grpo-train")["template"]["spec"]["containers"][0]["securityContext"]
    context |= {"allowPrivilegeEscalation": True, "capabilities": {}}


def no_default_container(server: ApiServer) -> None:
    """Flyte takes nothing from a container of another name."""
    server.find("PodTemplate", "mu-grpo-cpu")["template"]["spec"]["containers"][0]["name"] = "main"


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
        an_affinity,
        "pod of verify",
        "what the node affinity of mu-grpo-verify asks for is on no node: (topology.kubernetes.io/zone=eu-west-1a)",
        "change the affinity of mu-grpo-verify",
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


def wrong_rows(found: Findings) -> dict[str, str]:
    """Without what these tests leave wrong or out: the store, images, Flyte."""
    left_out = ("store", "image", "create pods", "Flyte", "workflow")
    return {name: one.state for name, one in found.items() if one.state != "ok" and not name.startswith(left_out)}


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


def occupied(server: ApiServer, node: str, gpus: int, **requests: str) -> None:
    container = {"name": "main", "resources": {"requests": {GPU: str(gpus), **requests}}}
    server.objects.append(
        {
            "kind": "Pod",
            "metadata": {"name": f"busy-{node}", "namespace": "other-team"},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running"},
        }
    )


def test_no_room_now_is_a_warning_that_names_what_is_short(gpu_pool: ApiServer, ask: Ask) -> None:
    occupied(gpu_pool, "gpu-train-1", 5)
    found = ask(gpu_pool)
    assert wrong_rows(found) == {"pod of train": "warning"}
    expected = f"fits 1 of 5 nodes, and waits: asks 4 {GPU}, gpu-train-1 has 3 {GPU} free"
    assert found["pod of train"].found == expected
    assert "Wait for what runs there, or add nodes" in found["pod of train"].mend


def test_shards_that_do_not_all_fit_at_once(gpu_pool: ApiServer, ask: Ask) -> None:
    four = "prompts.prompts_per_shard=128"
    assert ask(gpu_pool, overrides=four)["shards"].found.startswith("4 a stage, 4 at once")
    occupied(gpu_pool, "gpu-rollout-1", 6)
    occupied(gpu_pool, "gpu-rollout-2", 5)
    found = ask(gpu_pool, overrides=four)["shards"]
    assert found.state == "warning"
    assert "the nodes have room for 3 now: 2 rounds" in found.found
    assert "prompts.prompts_per_shard" in found.mend
    quota = gpu_pool.find("ResourceQuota", "mu-grpo")
    quota["status"]["used"]["requests.nvidia.com/gpu"] = "18"
    assert "the quota has room for 2 now: 2 rounds" in ask(gpu_pool, overrides=four)["shards"].found


def test_a_quota_that_is_used_up_is_a_warning(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.find("ResourceQuota", "mu-grpo")["status"]["used"]["requests.memory"] = "5400Gi"
    found = ask(gpu_pool)["quota"]
    assert found.state == "warning"
    assert found.found == "mu-grpo has 744Gi memory left, and 960Gi memory of train wait"


def test_a_quota_for_other_pods_does_not_count(gpu_pool: ApiServer, ask: Ask) -> None:
    small_quota(gpu_pool)
    spec = gpu_pool.find("ResourceQuota", "mu-grpo")["spec"]
    of_class = {"scopeName": "PriorityClass", "operator": "In", "values": ["batch"]}
    spec["scopeSelector"] = {"matchExpressions": [of_class]}
    assert ask(gpu_pool)["quota"].state == "ok"
    of_class["values"] = ["mu-grpo-rollout"]
    assert ask(gpu_pool)["quota"].state == "ok"  # 1 GPU of its 2
    of_class["values"] = ["mu-grpo-train"]
    assert ask(gpu_pool)["quota"].state == "failed"
    spec.pop("scopeSelector")
    spec["scopes"] = ["BestEffort"]
    assert ask(gpu_pool)["quota"].state == "ok"
    spec["scopes"] = ["Terminating"]
    assert ask(gpu_pool)["quota"].found == "mu-grpo is of a scope that is not judged here"


def test_train_nodes_share_the_quota(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.find("ResourceQuota", "mu-grpo")["spec"]["hard"]["requests.nvidia.com/gpu"] = "7"
    assert ask(gpu_pool)["quota"].state == "ok"
    assert f"8 {GPU} of train exceed" in ask(gpu_pool, changes={"train_nodes": 2})["quota"].found
