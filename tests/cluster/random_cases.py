"""Pairs of a pod and a node at random, small enough for conditions to meet and to miss each other often."""

from dataclasses import dataclass
from random import Random

from tests.cluster.api import Object

_KEYS, _VALUES = ("a", "b"), ("1", "2", "x")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_GPU = "nvidia.com/gpu"
_AMOUNTS = {"cpu": ("500m", "1", "2"), "memory": ("512Mi", "1Gi", "3Gi"), _GPU: ("1", "2")}
_CASE = "case"
"""The label by which a pod stays with its own node."""


@dataclass(frozen=True)
class Case:
    """A pod that can go to one node or to none."""

    node: Object
    others: list[Object]
    """Pods that are on the node."""
    pod: Object


def cases(draw: Random, count: int) -> list[Case]:
    """So many, each with a node of its own."""
    return [_case(draw, f"c{number:03d}") for number in range(count)]


def _case(draw: Random, name: str) -> Case:
    allocatable = {"cpu": "4", "memory": "4Gi", "ephemeral-storage": "8Gi", "pods": draw.choice(("2", "110"))}
    if draw.random() < 0.6:
        allocatable[_GPU] = draw.choice(("1", "2", "4"))
    labels = {key: draw.choice(_VALUES) for key in _KEYS if draw.random() < 0.7}
    spec: Object = {"taints": _taints(draw)}
    if draw.random() < 0.05:
        spec["unschedulable"] = True
    node = {
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, _CASE: name}},
        "spec": spec,
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    others = [
        {
            "kind": "Pod",
            "metadata": {"name": f"{name}-other-{number}", "namespace": "default"},
            "spec": {"nodeName": name, "containers": _containers(draw, "other", 1, _GPU in allocatable)},
            "status": {"phase": draw.choice(("Pending", "Running", "Succeeded"))},
        }
        for number in range(draw.choice((0, 0, 1, 2)))
    ]
    return Case(node, others, _pod(draw, name))


def _pod(draw: Random, name: str) -> Object:
    spec: Object = {
        "nodeSelector": {_CASE: name, **{key: draw.choice(_VALUES) for key in _KEYS if draw.random() < 0.15}},
        "tolerations": [_toleration(draw) for _ in range(draw.choice((0, 1, 2)))],
        "containers": _containers(draw, "own", draw.choice((1, 1, 2)), draw.random() < 0.5),
        "initContainers": _containers(draw, "first", draw.choice((0, 0, 1)), False),
    }
    if draw.random() < 0.5:
        terms = [_term(draw, name) for _ in range(draw.choice((1, 2)))]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _containers(draw: Random, name: str, count: int, gpus: bool) -> list[Object]:
    found = []
    for number in range(count):
        asked = {
            resource: draw.choice(amounts)
            for resource, amounts in _AMOUNTS.items()
            if (resource != _GPU or gpus) and draw.random() < 0.6
        }
        # What is asked for as a limit alone is requested too; GPUs must be both.
        kind = {"limits": asked} if _GPU in asked or draw.random() < 0.3 else {"requests": asked}
        found.append({"name": f"{name}-{number}", "image": "any:1", "resources": kind})
    return found


def _taints(draw: Random) -> list[Object]:
    keys = [key for key in _KEYS if draw.random() < 0.25]
    return [{"key": key, "value": draw.choice(_VALUES), "effect": draw.choice(_EFFECTS)} for key in keys]


def _toleration(draw: Random) -> Object:
    effect = {} if draw.random() < 0.4 else {"effect": draw.choice(_EFFECTS)}
    match draw.choice(("all", "key", "value", "value")):
        case "all":
            return {"operator": "Exists", **effect}
        case "key":
            return {"key": draw.choice(_KEYS), "operator": "Exists", **effect}
    operator = {"operator": "Equal"} if draw.random() < 0.5 else {}
    return {"key": draw.choice(_KEYS), "value": draw.choice(_VALUES), **operator, **effect}


def _term(draw: Random, name: str) -> Object:
    found: Object = {}
    if draw.random() < 0.8:
        found["matchExpressions"] = [_requirement(draw) for _ in range(draw.choice((1, 1, 2)))]
    if draw.random() < 0.2:
        operator, value = draw.choice(("In", "NotIn")), draw.choice((name, "another"))
        found["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [value]}]
    return found


def _requirement(draw: Random) -> Object:
    key, operator = draw.choice(_KEYS), draw.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    match operator:
        case "Exists" | "DoesNotExist":
            return {"key": key, "operator": operator}
        case "Gt" | "Lt":
            return {"key": key, "operator": operator, "values": [draw.choice(("0", "1", "2"))]}
    return {"key": key, "operator": operator, "values": draw.sample(_VALUES, draw.choice((1, 2)))}
