"""The pod of a role as Flyte makes it, and its match with nodes."""

from typing import Any

import pytest

from tasks.cluster.nodes import LABEL, SIZE, TAINT, match_node, requests, required_terms, role_pod
from tasks.settings.deployment import DeploymentSettings
from tests.preflight.api_server import Object

LABEL_OF_GKE = "cloud.google.com/gke-accelerator"


def test_the_deployments_sizes_lie_over_the_templates_containers() -> None:
    spec = {
        "serviceAccountName": "someone",
        "nodeSelector": {"pool": "a"},
        "initContainers": [{"name": "default-init", "resources": {"requests": {"cpu": "64"}}}],
        "containers": [
            {"name": "default", "securityContext": {"runAsUser": 7}, "volumeMounts": [{"name": "scratch"}]},
            {"name": "primary", "securityContext": {"runAsUser": 8}},
            {"name": "sidecar", "resources": {"requests": {"cpu": "64"}}},
        ],
    }
    sizes = {"cpu": "4", "memory": "8Gi", "ephemeral_storage": "2Gi", "gpus": 2, "accelerator": "nvidia-h200"}
    pods = {"train": {"template": "mu-grpo-train", **sizes}}
    deployment = DeploymentSettings.parse({"pods": pods, "accelerator_label": LABEL_OF_GKE})
    made = role_pod("train", deployment, {"template": {"spec": spec}})["spec"]
    # Flyte uses neither other containers of the template nor its init containers.
    wanted = {"cpu": 4, "memory": 8 * 2**30, "ephemeral-storage": 2 * 2**30, "nvidia.com/gpu": 2, "pods": 1}
    assert requests(made) == wanted
    (own,) = made["containers"]
    assert own["resources"]["limits"] == own["resources"]["requests"]
    assert (own["securityContext"], own["volumeMounts"]) == ({"runAsUser": 8}, [{"name": "scratch"}])
    assert (made["serviceAccountName"], made["nodeSelector"]) == ("someone", {"pool": "a"})
    equal = {"key": LABEL_OF_GKE, "operator": "Equal", "value": "nvidia-h200", "effect": "NoSchedule"}
    assert made["tolerations"] == [equal]
    spot = {"key": "mu-grpo/pool", "operator": "NotIn", "values": ["rollout"]}
    accelerator = {"key": LABEL_OF_GKE, "operator": "In", "values": ["nvidia-h200"]}
    assert required_terms(made) == [{"matchExpressions": [spot, accelerator]}]
    assert "initContainers" in spec  # The template itself is unchanged.


def node(labels: Object | None = None, taints: list[Object] | None = None) -> Object:
    return {
        "metadata": {"name": "n", "labels": labels or {}},
        "spec": {"taints": taints or []},
        "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "10"}},
    }


def asks(cpu: str, **more: Any) -> Object:
    return {"containers": [{"resources": {"requests": {"cpu": cpu}}}], **more}


def affinity(*expressions: Object) -> Object:
    terms = [{"matchExpressions": [one]} for one in expressions]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def condition(operator: str, *values: str, key: str = "size") -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


TAINTED = node(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])


@pytest.mark.parametrize(
    ("spec", "one", "kind", "what"),
    [
        ({"nodeSelector": {"pool": "a"}}, node({"pool": "b"}), LABEL, "pool=a"),
        (affinity(condition("In", "2", "3")), node({"size": "3"}), None, ""),
        (affinity(condition("NotIn", "2")), node({"size": "2"}), LABEL, "size NotIn 2"),
        (affinity(condition("NotIn", "2")), node(), None, ""),
        (affinity(condition("Exists")), node(), LABEL, "size Exists"),
        (affinity(condition("DoesNotExist")), node({"size": "1"}), LABEL, "size DoesNotExist"),
        (affinity(condition("Exists"), condition("Exists", key="b")), node({"b": ""}), None, ""),
        (affinity(condition("Exists"), condition("In", "1", key="b")), node(), LABEL, "size Exists or b=1"),
        ({"tolerations": [{"operator": "Exists"}]}, TAINTED, None, ""),
        ({"tolerations": [{"key": "team", "value": "a"}]}, TAINTED, None, ""),
        ({"tolerations": [{"key": "team", "value": "b"}]}, TAINTED, TAINT, "team=a:NoSchedule"),
        ({"tolerations": [{"key": "other"}]}, TAINTED, TAINT, "team=a:NoSchedule"),
        ({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, TAINTED, TAINT, "team=a:NoSchedule"),
        (asks("4001m"), node(), SIZE, "asks 4 cores, has 4 cores"),
    ],
)
def test_what_keeps_a_pod_off_a_node(spec: Object, one: Object, kind: int | None, what: str) -> None:
    found = match_node(one, {**asks("1"), **spec}, [])
    assert (found.obstacle.kind, found.obstacle.what) == (kind, what) if found.obstacle else kind is None
    assert bool(found.if_empty) == (kind is None)


def test_as_many_fit_as_the_scarcest_resource_allows_beside_others() -> None:
    """Pods of daemon sets always run on a node."""

    def pod(cpu: str, owner: str = "ReplicaSet", on: str = "n") -> Object:
        return {"metadata": {"ownerReferences": [{"kind": owner}]}, "spec": asks(cpu, nodeName=on)}

    found = match_node(node(), asks("1500m"), [pod("1"), pod("1", on="another"), pod("500m", "DaemonSet")])
    assert (found.if_empty, found.free_now, found.obstacle) == (2, 1, None)
    full = match_node(node(), asks("1500m"), [pod("3")])
    assert (full.if_empty, full.free_now, full.obstacle.what) == (2, 0, "asks 1.5 cores, has 1 cores")
    many = [pod("0") for _ in range(10)]
    assert match_node(node(), asks("1"), many).free_now == 0  # The node allows no further pod.
    assert match_node(node(), asks("0.1"), []).if_empty == 10
