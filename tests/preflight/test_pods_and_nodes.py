"""A role's pod as Flyte merges it, and nodes that it may run on; tests/cluster compares both with real ones."""

from decimal import Decimal
from typing import Any

import pytest

from tasks.cluster.nodes import Kind, Taken, obstacle, place, requests, shown, taken
from tasks.cluster.pods import required_terms, role_pod
from tasks.settings.deployment import DeploymentSettings
from tests.preflight.api_server import Object

LABEL = "k8s.amazonaws.com/accelerator"


def container(name: str, **values: Any) -> Object:
    return {"name": name, "image": "x", **values}


def train(spec: Object, **pod: Any) -> Object:
    deployment = DeploymentSettings.parse({"pods": {"train": {"template": "mu-grpo-train", **pod}}})
    made: Object = role_pod("train", deployment, {"template": {"spec": spec}})["spec"]
    return made


def test_the_deployments_sizes_lie_over_the_templates_containers() -> None:
    spec = {
        "serviceAccountName": "someone",
        "nodeSelector": {"pool": "a"},
        "overhead": {"cpu": "250m"},
        "initContainers": [container("default-init", resources={"requests": {"cpu": "64"}})],
        "containers": [
            container(
                "default",
                resources={"requests": {"cpu": "1", "hugepages-2Mi": "1Gi"}, "limits": {"example.com/nic": "2"}},
                securityContext={"allowPrivilegeEscalation": False, "runAsUser": 7},
            ),
            container("primary", securityContext={"runAsUser": 8}),
            container("sidecar", resources={"requests": {"cpu": "64"}}),
        ],
    }
    sizes = {"cpu": "4", "memory": "8Gi", "ephemeral_storage": "2Gi", "gpus": 2, "accelerator": "nvidia-h200"}
    made = train(spec, **sizes)
    # Flyte takes neither the template's other containers nor its init containers.
    assert requests(made) == {
        "cpu": Decimal("4.25"),
        "memory": 8 * 2**30,
        "ephemeral-storage": 2 * 2**30,
        "nvidia.com/gpu": 2,
        "hugepages-2Mi": 2**30,
        "example.com/nic": 2,
        "pods": 1,
    }
    (own,) = made["containers"]
    assert own["securityContext"] == {"allowPrivilegeEscalation": False, "runAsUser": 8}
    assert (made["serviceAccountName"], made["nodeSelector"]) == ("someone", {"pool": "a"})
    assert made["tolerations"] == [{"key": LABEL, "operator": "Equal", "value": "nvidia-h200", "effect": "NoSchedule"}]
    spot = {"key": "mu-grpo/pool", "operator": "NotIn", "values": ["rollout"]}
    accelerator = {"key": LABEL, "operator": "In", "values": ["nvidia-h200"]}
    assert required_terms(made) == [{"matchExpressions": [spot, accelerator]}]
    assert "initContainers" in spec  # the template is left as it is


def test_a_pod_takes_its_containers_or_its_largest_init_container() -> None:
    def asks(cpu: str, **more: str) -> Object:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    assert requests({"containers": [asks("1"), asks("2")]})["cpu"] == 3
    assert requests({"containers": [asks("1")], "initContainers": [asks("5"), asks("4")]})["cpu"] == 5
    sidecar = asks("2", restartPolicy="Always")
    assert requests({"containers": [asks("1")], "initContainers": [sidecar]})["cpu"] == 3
    assert requests({"containers": [{"resources": {"limits": {"cpu": "500m"}}}]})["cpu"] == Decimal("0.5")
    assert requests({"containers": [asks("9")], "resources": {"requests": {"cpu": "1"}}})["cpu"] == 1


def test_pods_that_belong_to_a_node_are_there_whatever_goes() -> None:
    def pod(phase: str, owner: str = "ReplicaSet", node: str = "n") -> Object:
        spec = {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]}
        return {"metadata": {"ownerReferences": [{"kind": owner}]}, "spec": spec, "status": {"phase": phase}}

    used = taken([pod("Running"), pod("Running", "DaemonSet"), pod("Succeeded"), pod("Pending", node="")])
    assert (used.all["n"]["cpu"], used.residents["n"]["cpu"]) == (2, 1)


def node(labels: Object | None = None, taints: list[Object] | None = None, **spec: Any) -> Object:
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": "n", "labels": labels or {}},
        "spec": {"taints": taints or [], **spec},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": conditions},
    }


def affinity(*expressions: Object) -> Object:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def condition(operator: str, *values: str) -> Object:
    return affinity({"key": "size", "operator": operator, **({"values": list(values)} if values else {})})


NO_SCHEDULE = {"key": "team", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "one", "kind", "what"),
    [
        ({}, node(), None, ""),
        ({"nodeSelector": {"pool": "a"}}, node({"pool": "b"}), Kind.LABEL, "pool=a"),
        (condition("In", "2", "3"), node({"size": "3"}), None, ""),
        (condition("NotIn", "2"), node(), None, ""),
        (condition("Exists"), node(), Kind.LABEL, "size Exists"),
        (condition("DoesNotExist"), node({"size": "1"}), Kind.LABEL, "size DoesNotExist"),
        (condition("Gt", "2"), node({"size": "10"}), None, ""),
        (condition("Lt", "2"), node({"size": "ten"}), Kind.LABEL, "size Lt 2"),
        (affinity(), node(), Kind.LABEL, "a term without conditions"),
        ({}, node(taints=[NO_SCHEDULE]), Kind.TAINT, "team=a:NoSchedule"),
        ({}, node(taints=[{**NO_SCHEDULE, "effect": "PreferNoSchedule"}]), None, ""),
        ({"tolerations": [{"operator": "Exists"}]}, node(taints=[NO_SCHEDULE]), None, ""),
        ({"tolerations": [{"key": "team", "value": "a"}]}, node(taints=[NO_SCHEDULE]), None, ""),
        ({"tolerations": [{"key": "team", "value": "b"}]}, node(taints=[NO_SCHEDULE]), Kind.TAINT, "team=a:NoSchedule"),
        ({}, node(unschedulable=True), Kind.STATE, "cordoned"),
        (
            {"containers": [{"resources": {"requests": {"cpu": "4001m"}}}]},
            node(),
            Kind.SIZE,
            "asks 4 cores, has 4 cores",
        ),
    ],
)
def test_what_keeps_a_pod_off_a_node(spec: Object, one: Object, kind: Kind | None, what: str) -> None:
    placed = place(spec, [one], Taken({}, {}))
    found = placed.obstacles.get("n")
    assert (found.kind if found else None, found.what if found else "") == (kind, what)
    assert bool(placed.ever) == (kind is None)


def test_as_many_fit_as_the_scarcest_resource_allows() -> None:
    spec = {"containers": [{"resources": {"requests": {"cpu": "1500m"}}}]}
    used = taken([{"metadata": {}, "spec": {"nodeName": "n", **spec}}])
    placed = place(spec, [node()], used)
    assert (placed.ever, placed.now) == ({"n": 2}, {"n": 1})
    assert obstacle(spec, node(), {"cpu": Decimal(9)}) is not None  # no room for one more pod


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", "3.925", "3.92 cores"),
        ("memory", str(160 * 2**30), "160Gi memory"),
        ("memory", str(2**29), "512Mi memory"),
        ("nvidia.com/gpu", "4", "4 nvidia.com/gpu"),
        ("cpu", "-1", "0 cores"),
    ],
)
def test_amounts_are_never_shown_larger_than_they_are(resource: str, amount: str, text: str) -> None:
    assert shown(resource, Decimal(amount)) == text
