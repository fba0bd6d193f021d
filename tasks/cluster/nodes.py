"""The pod of a role as Flyte makes it, and the match of a pod with nodes: why it does not fit, or how many pods fit.

The match checks labels, taints and the requests of containers. It does not check init containers, overhead, conditions
with Gt and Lt, affinity between pods, topology spread, volumes and preemption.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tasks.cluster.api import Object
from tasks.settings.deployment import DeploymentSettings, Role, quantity

GPU = "nvidia.com/gpu"
_STATE = "node.kubernetes.io/"
"""Prefix of taints for the state of a node: cordoned, unreachable or under pressure."""
_ROUNDING = 1e-6
LABEL, TAINT, STATE, SIZE = range(4)
"""Kinds of obstacles, in the order in which they are checked."""


class Obstacle(NamedTuple):
    """Reason why a pod cannot run on a node. A greater obstacle means a node that is nearer to fitting."""

    kind: int
    met: int
    """Number of conditions on labels that hold."""
    what: str
    """The label, taint or state, or the resource with the requested and the free amount."""

    def __str__(self) -> str:
        return {LABEL: "no label ", TAINT: "taint "}.get(self.kind, "") + self.what


class NodeMatch(NamedTuple):
    """Result of matching a pod with a node."""

    node: str
    if_empty: int
    """Number of such pods that fit if only daemon sets run on the node."""
    free_now: int
    """Number of such pods that fit beside the pods that run on the node."""
    obstacle: Obstacle | None
    """Reason why no pod fits; None if one fits now."""


def role_pod(role: Role, deployment: DeploymentSettings, template: Object, colocated: bool = False) -> Object:
    """Return the pod of a role's task as Flyte makes it, without its command.

    Flyte merges the template's containers ``default`` and ``primary`` into the container of the task, which has the
    sizes of the deployment, and drops other containers. The accelerator becomes a required label with a toleration.
    Only interruptible pods run on nodes with the spot label. Flyte adds the condition on the spot label to the required
    terms of the template as a further alternative.
    """
    pod, spec = deployment.pods[role], copy.deepcopy(template["template"]["spec"])
    sizes = {"cpu": pod.cpu, "memory": pod.memory, "ephemeral-storage": pod.ephemeral_storage}
    sizes |= {GPU: str(pod.gpus)} if pod.gpus else {}
    containers = {container["name"]: container for container in spec.get("containers", ())}
    container = {**containers.get("default", {}), **containers.get("primary", {}), "name": "task"}
    container |= {"image": deployment.image(role, colocated), "resources": {"requests": sizes, "limits": sizes}}
    key, _, value = deployment.spot_label.partition("=")
    spot = {"key": key, "operator": "In" if pod.interruptible else "NotIn", "values": [value]}
    terms, tolerations = [*required_terms(spec), {"matchExpressions": [spot]}], list(spec.get("tolerations", ()))
    if pod.interruptible:
        tolerations.append(_toleration(key, value))
    if pod.accelerator:
        device = {"key": deployment.accelerator_label, "operator": "In", "values": [pod.accelerator]}
        terms = [{**one, "matchExpressions": [*one.get("matchExpressions", ()), device]} for one in terms]
        tolerations.append(_toleration(deployment.accelerator_label, pod.accelerator))
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec |= {"containers": [container], "restartPolicy": "Never", "tolerations": tolerations}
    spec["affinity"] = {**spec.get("affinity", {}), "nodeAffinity": affinity}
    spec.pop("initContainers", None)
    metadata = {key: value for key, value in template["template"].get("metadata", {}).items() if value}
    metadata["generateName"] = "preflight-"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def required_terms(spec: Object) -> list[Object]:
    """Return the terms of required node affinity, of which at least one must hold; empty without such affinity."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return list((affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms", ()))


def match_node(node: Object, spec: Object, pods: Iterable[Object]) -> NodeMatch:
    """Match a pod with a node. ``pods`` are the pods of the cluster that have not ended."""
    name = node["metadata"]["name"]
    if obstacle := _label_obstacle(spec, node) or _taint_obstacle(spec, node):
        return NodeMatch(name, 0, 0, obstacle)
    running = [pod for pod in pods if pod["spec"].get("nodeName") == name]
    daemons = [pod for pod in running if _is_daemon(pod)]
    (if_empty, never), (free_now, obstacle) = _count_fitting(spec, node, daemons), _count_fitting(spec, node, running)
    return NodeMatch(name, if_empty, free_now, never or obstacle)


def requests(spec: Object) -> dict[str, float]:
    """Return the sum of the requests of a pod's containers by resource, with 1 for the resource ``pods``."""
    total = {"pods": 1.0}
    for container in spec["containers"]:
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, 0.0) + quantity(str(amount))
    return total


def _count_fitting(spec: Object, node: Object, running: Iterable[Object]) -> tuple[int, Obstacle | None]:
    """Return the number of pods that fit on a node beside running pods, and the obstacle if none fits."""
    room = {name: quantity(str(amount)) for name, amount in (node["status"].get("allocatable") or {}).items()}
    for pod in running:
        for name, amount in requests(pod["spec"]).items():
            room[name] = room.get(name, 0.0) - amount
    demand = {name: amount for name, amount in requests(spec).items() if amount}
    fit = min(int((room.get(name, 0.0) + _ROUNDING) // amount) for name, amount in demand.items())
    short = [name for name, amount in demand.items() if amount > room.get(name, 0.0) + _ROUNDING]
    text = [f"asks {_amount(name, demand[name])}, has {_amount(name, room.get(name, 0.0))}" for name in short]
    return max(0, fit), Obstacle(SIZE, 0, ", ".join(text)) if short else None


def _label_obstacle(spec: Object, node: Object) -> Obstacle | None:
    labels, selector = node["metadata"].get("labels") or {}, spec.get("nodeSelector") or {}
    selected = [{"key": key, "operator": "In", "values": [value]} for key, value in selector.items()]
    missing = list[tuple[int, str]]()
    for term in required_terms(spec) or [{}]:
        conditions = [*selected, *(term.get("matchExpressions") or ())]
        unmet = next((index for index, one in enumerate(conditions) if not _holds(one, labels)), None)
        if unmet is None:
            return None
        missing.append((unmet, _describe_condition(conditions[unmet])))
    return Obstacle(LABEL, max(met for met, _ in missing), " or ".join(dict.fromkeys(what for _, what in missing)))


def _taint_obstacle(spec: Object, node: Object) -> Obstacle | None:
    taints = [one for one in node["spec"].get("taints") or () if one["effect"] in ("NoSchedule", "NoExecute")]
    tolerations = spec.get("tolerations") or ()
    taints = [taint for taint in taints if not any(_tolerates(one, taint) for one in tolerations)]
    for taint in sorted(taints, key=lambda one: one["key"].startswith(_STATE)):
        if taint["key"].startswith(_STATE):
            return Obstacle(STATE, 0, taint["key"].removeprefix(_STATE).replace("unschedulable", "cordoned"))
        value = f"={taint['value']}" if taint.get("value") else ""
        return Obstacle(TAINT, 0, f"{taint['key']}{value}:{taint['effect']}")
    return None


def _is_daemon(pod: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(one["kind"] in ("DaemonSet", "Node") for one in owners)


def _amount(resource: str, amount: float) -> str:
    """Return an amount as text, rounded down: ``160Gi memory``, ``3.92 cores``."""
    size, unit = (2**30, "Gi") if resource in ("memory", "ephemeral-storage") else (1, "")
    number = int((max(0.0, amount) / size + _ROUNDING) * 100) / 100
    return f"{number:g}{unit} {'cores' if resource == 'cpu' else resource}"


def _holds(condition: Object, labels: Mapping[str, str]) -> bool:
    label, values = labels.get(condition["key"]), condition.get("values") or []
    exists = label is not None
    holds = {"In": label in values, "NotIn": label not in values, "Exists": exists, "DoesNotExist": not exists}
    return holds.get(condition["operator"], True)


def _describe_condition(condition: Object) -> str:
    values = condition.get("values") or []
    if condition["operator"] == "In" and len(values) == 1:
        return f"{condition['key']}={values[0]}"
    return f"{condition['key']} {condition['operator']} {', '.join(values)}".strip()


def _toleration(key: str, value: str) -> Object:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Return whether a toleration covers a taint. An empty key or effect covers all keys or effects."""
    fits = all(toleration.get(name) in (None, "", taint[name]) for name in ("key", "effect"))
    return fits and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
