"""Which nodes a pod may run on and how many of it fit, by the scheduler's rules: pure functions of what was read.

Node selectors, required node affinity, taints and tolerations, and requests are judged. Preferences, affinity between
pods, spread, volumes and preemption are not.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tasks.preflight.records import (
    CPU,
    MEMORY,
    PODS,
    STORAGE,
    Container,
    Node,
    Pod,
    PodSpec,
    Requirement,
    Taint,
    Term,
    Toleration,
)

Amount = Mapping[str, int]
"""Thousandths by resource."""
Kind = Literal["selector", "affinity", "spot", "accelerator", "taint", "state", "size"]
"""What keeps a pod off a node, in the order in which it is looked at."""
KINDS: tuple[Kind, ...] = ("selector", "affinity", "spot", "accelerator", "taint", "state", "size")
_KEEPS_OFF = ("NoSchedule", "NoExecute")
_STATES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""What taints begin with by which Kubernetes itself says that a node is cordoned, away or short of something."""
_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_SIDECAR = "Always"


@dataclass(frozen=True)
class Ask:
    """What a role's pod asks of a node."""

    requests: Amount
    selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[Term, ...] | None = None
    """Of required affinity: one must hold."""
    spot: Requirement | None = None
    """Flyte's own, of what may be interrupted and of what may not; where there are terms it is one of them."""
    accelerator: Requirement | None = None
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True)
class Obstacle:
    """Why a pod can never run on a node as it is."""

    kind: Kind
    what: str
    """The label, the taint, the state or the resource."""

    def __str__(self) -> str:
        return f"taint {self.what}" if self.kind == "taint" else self.what


@dataclass(frozen=True)
class Placement:
    """Where a pod can run at all, and where there is room now."""

    possible: tuple[Node, ...]
    obstacles: Mapping[str, Obstacle]
    """Of the other nodes, by name."""
    ever: Mapping[str, int]
    """How many of it fit a possible node that holds nothing but what belongs to the node."""
    now: Mapping[str, int]
    """How many of it fit a possible node beside the pods that are there."""


@dataclass(frozen=True)
class Taken:
    """What pods take, by node."""

    all: Mapping[str, Amount]
    residents: Mapping[str, Amount]
    """By pods that belong to their node, and are there whatever else goes."""


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a condition; an unknown operator never holds."""
    there, value = requirement.key in labels, labels.get(requirement.key, "")
    match requirement.operator:
        case "In":
            return there and value in requirement.values
        case "NotIn":
            return not there or value not in requirement.values
        case "Exists":
            return there
        case "DoesNotExist":
            return not there
        case "Gt" | "Lt":
            return _compares(requirement, value)
    return False


def _compares(requirement: Requirement, value: str) -> bool:
    try:
        own, bound = int(value), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return own > bound if requirement.operator == "Gt" else own < bound


def meets(terms: tuple[Term, ...] | None, node: Node) -> bool:
    """Whether one of the terms holds for a node; a term without conditions holds for none."""
    if terms is None:
        return True
    fields = {"metadata.name": node.name}
    return any(
        bool(term.on_labels or term.on_fields)
        and all(holds(one, node.labels) for one in term.on_labels)
        and all(holds(one, fields) for one in term.on_fields)
        for term in terms
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a pod with the toleration puts up with the taint."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(tolerations: Sequence[Toleration], node: Node) -> list[Taint]:
    """The taints of a node that keep such a pod off; to be cordoned is one of them."""
    kept_off = [taint for taint in node.taints if taint.effect in _KEEPS_OFF and taint != _CORDONED]
    kept_off += [_CORDONED] if node.cordoned else []
    return [taint for taint in kept_off if not any(tolerates(one, taint) for one in tolerations)]


def total(amounts: Iterable[Amount]) -> dict[str, int]:
    """The sum, by resource."""
    found: Counter[str] = Counter()
    for amount in amounts:
        found.update(amount)
    return dict(found)


def _most(amounts: Iterable[Amount]) -> dict[str, int]:
    found: dict[str, int] = {}
    for amount in amounts:
        for name, value in amount.items():
            found[name] = max(found.get(name, 0), value)
    return found


def requests(spec: PodSpec) -> dict[str, int]:
    """What a pod takes of its node: containers and sidecars together, or its largest moment before they start."""
    beside: dict[str, int] = {}
    moments: list[Amount] = []
    for container in spec.init_containers:
        own = _requests(container)
        if container.restart_policy == _SIDECAR:
            beside = total([beside, own])
            moments.append(beside)
        else:
            moments.append(total([beside, own]))
    whole = _most([*moments, total([beside, *map(_requests, spec.containers)])])
    return total([whole | spec.pod_requests, spec.overhead, {PODS: 1000}])


def _requests(container: Container) -> dict[str, int]:
    return container.limits | container.requests


def taken(pods: Iterable[Pod]) -> Taken:
    """What pods take of the nodes that they are on."""
    everything: dict[str, dict[str, int]] = {}
    residents: dict[str, dict[str, int]] = {}
    for pod in pods:
        name = pod.spec.node_name
        if name and pod.phase not in ("Succeeded", "Failed"):
            asked = requests(pod.spec)
            for sums in (everything, residents) if pod.stays else (everything,):
                sums[name] = total([sums.get(name, {}), asked])
    return Taken(everything, residents)


def left(node: Node, used: Mapping[str, Amount]) -> dict[str, int]:
    """What a node has beyond what is used there; below zero where more is used than there is."""
    of_node = used.get(node.name, {})
    return {name: value - of_node.get(name, 0) for name, value in node.allocatable.items()}


def copies(asked: Amount, room: Amount) -> int:
    """How many pods fit into a room. A pod that asks for nothing at all fits once."""
    counts = [max(0, room.get(name, 0)) // value for name, value in asked.items() if value > 0]
    return min(counts, default=1)


def obstacle(ask: Ask, node: Node, residents: Mapping[str, Amount]) -> Obstacle | None:
    """The first thing that keeps a pod off a node for good; None when it can run there.

    Args:
        ask: of the pod.
        node: of the cluster.
        residents: what pods take that belong to their nodes, by node.
    """
    if unlabelled := _unlabelled(ask, node):
        return unlabelled
    taints = untolerated(ask.tolerations, node)
    if own := [taint for taint in taints if not taint.key.startswith(_STATES)]:
        return Obstacle("taint", str(own[0]))
    if _CORDONED in taints or not node.ready:
        return Obstacle("state", "cordoned" if _CORDONED in taints else "not ready")
    if taints:
        return Obstacle("state", taints[0].key.rpartition("/")[2])
    room = left(node, residents)
    for resource, amount in ask.requests.items():
        if amount > 0 and room.get(resource, 0) < amount:
            return Obstacle("size", resource)
    return None


def _unlabelled(ask: Ask, node: Node) -> Obstacle | None:
    """The first thing that a pod asks of a node's labels and does not find."""
    for key, value in ask.selector.items():
        if node.labels.get(key) != value:
            return Obstacle("selector", f"{key}={value}")
    if not meets(ask.terms, node):
        return Obstacle("affinity", " or ".join(f"({term})" for term in ask.terms or ()) or "nothing")
    labelled: tuple[tuple[Kind, Requirement | None], ...] = (("spot", ask.spot), ("accelerator", ask.accelerator))
    for kind, asked in labelled:
        if asked and not holds(asked, node.labels):
            return Obstacle(kind, str(asked))
    return None


def place(ask: Ask, nodes: Iterable[Node], taken: Taken) -> Placement:
    """Where a pod can run at all, and how many of it fit."""
    possible, obstacles = [], {}
    for node in nodes:
        found = obstacle(ask, node, taken.residents)
        if found is None:
            possible.append(node)
        else:
            obstacles[node.name] = found
    return Placement(
        tuple(possible),
        obstacles,
        {node.name: copies(ask.requests, left(node, taken.residents)) for node in possible},
        {node.name: copies(ask.requests, left(node, taken.all)) for node in possible},
    )


def shown(name: str, value: int) -> str:
    """An amount as people write it, never more than it is: ``160Gi memory``, ``3.92 cores``, ``4 nvidia.com/gpu``.

    Quotas' names for the same, as ``requests.memory``, are shown as the resource's own.
    """
    name = name.removeprefix("requests.").removeprefix("limits.")
    if name in (MEMORY, STORAGE):
        unit, size = ("Gi", 2**30) if abs(value) >= 2**30 * 1000 else ("Mi", 2**20)
        return f"{_in(size, value)}{unit} {name}"
    return f"{_in(1, value)} {'cores' if name == CPU else name}"


def _in(size: int, value: int) -> str:
    """Thousandths in units of a size, to two digits, rounded down."""
    whole, hundredths = divmod(value // (10 * size), 100)
    return f"{whole}.{hundredths:02d}".rstrip("0").rstrip(".") if value >= 0 else f"-{_in(size, -value)}"
