"""Faults of a cluster, and the finding of a preflight for each."""

from collections.abc import Callable
from typing import NamedTuple

from tasks.settings.deployment import Role
from tests.preflight.api_server import NAMESPACE, Object, Objects
from tests.preflight.conftest import Findings

ACCELERATOR = "k8s.amazonaws.com/accelerator"
GPU = "nvidia.com/gpu"
_VIOLATES = 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "task" must set'
POOLS = {"rollout": ("gpu-rollout-1", "gpu-rollout-2"), "train": ("gpu-train-1",)}
GPU_NODES = [*POOLS["rollout"], *POOLS["train"]]
Spoil = Callable[[Objects], None]


class Wrong(NamedTuple):
    """A fault that stops a run."""

    spoil: Spoil
    row: str
    """The check that fails."""
    found: str
    """A part of the finding."""
    fix: str
    """A part of the fix."""


WRONG: dict[str, Wrong] = {}
REFUSED: dict[str, Wrong] = {}
"""Faults for which the API server refuses a pod, with the messages of Kubernetes 1.34.4."""


def _fails(row: str, found: str, fix: str, table: dict[str, Wrong] = WRONG) -> Callable[[Spoil], Spoil]:
    def add(spoil: Spoil) -> Spoil:
        table[f"{spoil.__name__}: {row}"] = Wrong(spoil, row, found, fix)
        return spoil

    return add


def _is_refused(role: Role, message: str) -> Callable[[Spoil], Spoil]:
    fix = f"Change pods.{role} of the deployment, the pod template mu-grpo-{role}, or what it names: kubectl apply -k"
    return _fails(f"pod of {role}", message, fix, REFUSED)


def nodes(cluster: Objects, *names: str) -> list[Object]:
    return [one for one in cluster.all("Node") if not names or one["metadata"]["name"] in names]


def taint(cluster: Objects, key: str, **more: str) -> None:
    """Add a taint to the node for training."""
    nodes(cluster, "gpu-train-1")[0]["spec"]["taints"].append({"key": key, "effect": "NoSchedule", **more})


@_fails(
    "nodes for rollout",
    f"it fits no node. gpu-rollout-1, gpu-rollout-2: asks 1 {GPU}, has 0 {GPU}",
    "Request less in pods.rollout of the deployment, or add larger nodes to its pool; GPUs are offered by NVIDIA's",
)
def without_gpus(cluster: Objects) -> None:
    for node in nodes(cluster):
        node["status"]["allocatable"].pop(GPU, None)


@_fails(
    "nodes for train",
    "gpu-train-1: taint dedicated=research:NoSchedule",
    "Add a toleration for dedicated=research:NoSchedule to mu-grpo-train",
)
def tainted(cluster: Objects) -> None:
    taint(cluster, "dedicated", value="research")


@_fails("nodes for rollout", "no label mu-grpo/pool=rollout", "kubectl label node <name> mu-grpo/pool=rollout")
def without_pool(cluster: Objects) -> None:
    for node in nodes(cluster, *POOLS["rollout"]):
        del node["metadata"]["labels"]["mu-grpo/pool"]


@_fails(
    "nodes for evaluate",
    f"it fits no node. gpu-rollout-1, gpu-rollout-2: no label {ACCELERATOR}=nvidia-h200; ",
    "or change accelerator of evaluate, accelerator_label or spot_label",
)
def another_accelerator(cluster: Objects) -> None:
    for node in nodes(cluster, *POOLS["rollout"]):
        node["metadata"]["labels"][ACCELERATOR] = "nvidia-l40s"


@_fails("nodes for train", "gpu-train-1: cordoned", "kubectl uncordon gpu-train-1")
def cordoned(cluster: Objects) -> None:
    nodes(cluster, "gpu-train-1")[0]["spec"]["unschedulable"] = True
    taint(cluster, "node.kubernetes.io/unschedulable")


@_fails("nodes for train", "gpu-train-1: disk-pressure", "kubectl describe node gpu-train-1")
def short_of_disk(cluster: Objects) -> None:
    taint(cluster, "node.kubernetes.io/disk-pressure")


@_fails("nodes for train", "gpu-train-1: asks 960Gi memory, has 959.87Gi memory", "pods.train of the deployment")
def little_memory_because_of_daemons(cluster: Objects) -> None:
    nodes(cluster, "gpu-train-1")[0]["status"]["allocatable"]["memory"] = "960Gi"


def an_affinity(cluster: Objects, template: str = "mu-grpo-rollout") -> None:
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-west-1a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    cluster.find("PodTemplate", template)["template"]["spec"]["affinity"] = {"nodeAffinity": required}


@_fails(
    "nodes for rollout",
    "no label topology.kubernetes.io/zone=eu-west-1a or mu-grpo/pool=rollout",
    "nodes so that topology.kubernetes.io/zone=eu-west-1a or mu-grpo/pool=rollout; or change accelerator of rollout",
)
def an_affinity_and_no_pool(cluster: Objects) -> None:
    an_affinity(cluster)
    without_pool(cluster)


@_fails("nodes for cpu", "the cluster has no node", "Add nodes")
def no_node(cluster: Objects) -> None:
    for node in nodes(cluster):
        cluster.objects.remove(node)


@_fails(
    "secrets",
    f"mu-grpo does not exist in {NAMESPACE}",
    f"kubectl create secret generic mu-grpo -n {NAMESPACE} --from-file=hub-token=... --from-file=wandb-api-key=...",
)
def no_secret(cluster: Objects) -> None:
    cluster.remove("Secret", "mu-grpo")


@_fails(
    "secrets",
    "mu-grpo has no key wandb-api-key; it has hub-token",
    "Add the key to the secret, or name another in the deployment's secrets: wandb-api-key",
)
def no_key(cluster: Objects) -> None:
    del cluster.find("Secret", "mu-grpo")["data"]["wandb-api-key"]


@_fails(
    "pod of train",
    f"the pod template mu-grpo-train does not exist in {NAMESPACE}; it has mu-grpo-cpu, mu-grpo-evaluate, ",
    "or name another in the deployment's pods",
)
def no_template(cluster: Objects) -> None:
    cluster.remove("PodTemplate", "mu-grpo-train")


@_is_refused(
    "train",
    "exceeded quota: mu-grpo, requested: requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=0, limited: "
    "requests.nvidia.com/gpu=2",
)
def small_quota(cluster: Objects) -> None:
    cluster.find("ResourceQuota", "mu-grpo")["spec"]["hard"]["requests.nvidia.com/gpu"] = "2"


@_is_refused("train", "maximum memory usage per Pod is 512Gi, but limit is 960Gi")
def small_limit(cluster: Objects) -> None:
    cluster.find("LimitRange", "mu-grpo")["spec"]["limits"].append({"type": "Pod", "max": {"memory": "512Gi"}})


@_is_refused(
    "prefetch",
    f'error looking up service account {NAMESPACE}/mu-grpo-prefetch: serviceaccount "mu-grpo-prefetch" not found',
)
def no_account(cluster: Objects) -> None:
    cluster.remove("ServiceAccount", "mu-grpo-prefetch")


@_is_refused("train", "no PriorityClass with name mu-grpo-train was found")
def no_priority(cluster: Objects) -> None:
    cluster.remove("PriorityClass", "mu-grpo-train")


@_is_refused("train", _VIOLATES)
def insecure_template(cluster: Objects) -> None:
    context = cluster.find("PodTemplate", "mu-grpo-train")["template"]["spec"]["containers"][0]["securityContext"]
    context |= {"allowPrivilegeEscalation": True, "capabilities": {}}


@_is_refused("cpu", _VIOLATES)
def no_default_container(cluster: Objects) -> None:
    """Flyte ignores template containers with another name."""
    cluster.find("PodTemplate", "mu-grpo-cpu")["template"]["spec"]["containers"][0]["name"] = "main"


def occupied(cluster: Objects, node: str, gpus: int) -> None:
    """Add a pod of another team that uses GPUs of a node."""
    own = {GPU: str(gpus)}
    container = {"name": "main", "image": "busy:1", "resources": {"requests": own, "limits": own}}
    metadata, spec = {"name": f"busy-{node}", "namespace": "other-team"}, {"nodeName": node, "containers": [container]}
    cluster.objects.append({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def rows_not_ok(found: Findings) -> dict[str, str]:
    """Return the state of each row that is not ok, without the store, images and Flyte, which these tests leave out."""
    left_out = ("store", "image", "Flyte", "workflow")
    return {name: one.state for name, one in found.items() if one.state != "ok" and not name.startswith(left_out)}
