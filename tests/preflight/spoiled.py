"""A cluster on which all is well, spoiled in one way or another."""

from tests.preflight.api_server import ApiServer, Object
from tests.preflight.clusters import NAMESPACE
from tests.preflight.conftest import Findings

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


def an_affinity(server: ApiServer, template: str = "mu-grpo-rollout") -> None:
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-west-1a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    server.find("PodTemplate", template)["template"]["spec"]["affinity"] = {"nodeAffinity": required}


def an_affinity_and_no_pool(server: ApiServer) -> None:
    an_affinity(server)
    without_pool(server)


def no_node(server: ApiServer) -> None:
    for node in nodes(server):
        server.objects.remove(node)


def small_quota(server: ApiServer) -> None:
    server.find("ResourceQuota", "mu-grpo")["spec"]["hard"]["requests.nvidia.com/gpu"] = "2"


def small_limit(server: ApiServer) -> None:
    server.find("LimitRange", "mu-grpo")["spec"]["limits"].append({"type": "Pod", "max": {"memory": "512Gi"}})


def large_least(server: ApiServer) -> None:
    server.find("LimitRange", "mu-grpo")["spec"]["limits"] = [{"type": "Container", "min": {"cpu": "3"}}]


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


def occupied(server: ApiServer, node: str, gpus: int, **requests: str) -> None:
    """Another team's pod takes GPUs, and more, of a node."""
    own = {GPU: str(gpus)}
    container = {"name": "main", "image": "busy:1", "resources": {"requests": {**own, **requests}, "limits": own}}
    server.objects.append(
        {
            "kind": "Pod",
            "metadata": {"name": f"busy-{node}", "namespace": "other-team"},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running"},
        }
    )


def wrong_rows(found: Findings) -> dict[str, str]:
    """Without what these tests leave wrong or out: the store, images, Flyte."""
    left_out = ("store", "image", "Flyte", "workflow")
    return {name: one.state for name, one in found.items() if one.state != "ok" and not name.startswith(left_out)}
