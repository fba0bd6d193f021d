"""A plain look at nodes: which of them a pod may run on, and how many of it fit there.

Labels, taints and requests of containers are looked at. What a scheduler knows besides (init containers, overhead,
conditions with Gt and Lt, affinity between pods, spread, volumes, preemption) is not.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tasks.cluster.api import Object
from tasks.settings.deployment import quantity

_STATE = "node.kubernetes.io/"
"""Prefix of taints by which Kubernetes says that a node is cordoned, away or short of something."""
_ROUNDING = 1e-6
LABEL, TAINT, STATE, SIZE = range(4)
"""Kinds of obstacles, in the order in which they are looked for."""


class Obstacle(NamedTuple):
    """Why a pod cannot run on a node; of two obstacles the greater one is nearer to running there."""

    kind: int
    met: int
    """Number of conditions on labels that hold."""
    what: str
    """The label, taint or state, or the resource with what is asked for and what there is."""

    def __str__(self) -> str:
        return {LABEL: "no label ", TAINT: "taint "}.get(self.kind, "") + self.what


class Look(NamedTuple):
    """Result of matching a pod with a node."""

    node: str
    ever: int
    """Number of such pods that fit beside the daemon sets alone."""
    now: int
    """Number of such pods that fit beside what runs there."""
    obstacle: Obstacle | None
    """Why none fits ever, or none now."""


def look_at(node: Object, spec: Object, pods: Iterable[Object]) -> Look:
    """Match a pod with a node: count how many fit, and name what is in the way.

    Args:
        node: the node.
        spec: the pod's.
        pods: the pods of the cluster that have not ended.
    """
    name = node["metadata"]["name"]
    beside = [one for one in pods if one["spec"].get("nodeName") == name]
    empty, left = room(node, filter(_stays, beside)), room(node, beside)
    if never := obstacle(spec, node, empty):
        return Look(name, 0, 0, never)
    return Look(name, _copies(spec, empty), _copies(spec, left), obstacle(spec, node, left))


def obstacle(spec: Object, node: Object, room: Mapping[str, float]) -> Obstacle | None:
    """Return the first thing that keeps a pod off a node with some room, or None if it can run there."""
    labels, selector = node["metadata"].get("labels") or {}, spec.get("nodeSelector") or {}
    selected = [{"key": key, "operator": "In", "values": [value]} for key, value in selector.items()]
    terms = [[*selected, *(term.get("matchExpressions") or ())] for term in required_terms(spec) or [{}]]
    unmet = [next(((met, one) for met, one in enumerate(term) if not _holds(one, labels)), None) for term in terms]
    missing = [one for one in unmet if one is not None]
    if len(missing) == len(terms):
        what = " or ".join(dict.fromkeys(_text(one) for _, one in missing))
        return Obstacle(LABEL, max(met for met, _ in missing), what)
    taints = [one for one in node["spec"].get("taints") or () if one["effect"] in ("NoSchedule", "NoExecute")]
    taints = [one for one in taints if not any(_tolerates(own, one) for own in spec.get("tolerations") or ())]
    for taint in sorted(taints, key=lambda one: one["key"].startswith(_STATE)):
        if taint["key"].startswith(_STATE):
            return Obstacle(STATE, 0, taint["key"].removeprefix(_STATE).replace("unschedulable", "cordoned"))
        value = f"={taint['value']}" if taint.get("value") else ""
        return Obstacle(TAINT, 0, f"{taint['key']}{value}:{taint['effect']}")
    short = [
        f"asks {_shown(name, amount)}, has {_shown(name, room.get(name, 0.0))}"
        for name, amount in requests(spec).items()
        if amount > room.get(name, 0.0) + _ROUNDING
    ]
    return Obstacle(SIZE, 0, ", ".join(short)) if short else None


def required_terms(spec: Object) -> list[Object]:
    """Return the terms of required node affinity, one of which must hold; none if there is no such affinity."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return list((affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms", ()))


def requests(spec: Object) -> dict[str, float]:
    """Return what the containers of a pod ask for together, and one place for the pod."""
    found = {"pods": 1.0}
    for container in spec["containers"]:
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            found[name] = found.get(name, 0.0) + quantity(str(amount))
    return found


def room(node: Object, pods: Iterable[Object]) -> dict[str, float]:
    """Return what a node has beside some pods."""
    left = {name: quantity(str(amount)) for name, amount in (node["status"].get("allocatable") or {}).items()}
    for pod in pods:
        for name, amount in requests(pod["spec"]).items():
            left[name] = left.get(name, 0.0) - amount
    return left


def _copies(spec: Object, left: Mapping[str, float]) -> int:
    asked = requests(spec).items()
    return max(0, min(int((left.get(name, 0.0) + _ROUNDING) // amount) for name, amount in asked if amount))


def _stays(pod: Object) -> bool:
    """Return whether a pod belongs to its node, as those of daemon sets do."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(one["kind"] in ("DaemonSet", "Node") for one in owners)


def _shown(resource: str, amount: float) -> str:
    """Return an amount as people write it, rounded down: ``160Gi memory``, ``3.92 cores``."""
    size, unit = (2**30, "Gi") if resource in ("memory", "ephemeral-storage") else (1, "")
    number = int((max(0.0, amount) / size + _ROUNDING) * 100) / 100
    return f"{number:g}{unit} {'cores' if resource == 'cpu' else resource}"


def _holds(condition: Object, labels: Mapping[str, str]) -> bool:
    own, values = labels.get(condition["key"]), condition.get("values") or []
    holds = {"In": own in values, "NotIn": own not in values, "Exists": own is not None, "DoesNotExist": own is None}
    return holds.get(condition["operator"], True)


def _text(condition: Object) -> str:
    values = condition.get("values") or []
    if condition["operator"] == "In" and len(values) == 1:
        return f"{condition['key']}={values[0]}"
    return f"{condition['key']} {condition['operator']} {', '.join(values)}".strip()


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Return whether a toleration covers a taint; an empty key or effect covers every one."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
