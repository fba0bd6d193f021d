"""Nodes that a pod may run on, and how many of it fit, by the scheduler's rules for what is required.

Node selectors, required node affinity, taints and tolerations, and requests are judged. Preferences, affinity between
pods, spread, volumes and preemption are not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum

from kubernetes.utils.quantity import parse_quantity

from tasks.cluster.api import Object
from tasks.cluster.pods import required_terms

Amounts = Mapping[str, Decimal]
"""Cores, bytes or pieces, by resource."""
NOTHING = Decimal(0)
_STATES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints by which Kubernetes says that a node is cordoned, away or short of something."""
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class Kind(IntEnum):
    """Reasons that keep a pod off a node, in the order in which they are checked."""

    LABEL = 1
    TAINT = 2
    STATE = 3
    SIZE = 4


@dataclass(frozen=True, order=True)
class Obstacle:
    """Why a pod can never run on a node as it is; of two obstacles the greater one is nearer to running there."""

    kind: Kind
    met: int
    """Number of the labels that the pod asks for and the node has."""
    what: str
    """The label, taint or state, or the resource with what is asked for and what there is."""

    def __str__(self) -> str:
        return {Kind.LABEL: f"no label {self.what}", Kind.TAINT: f"taint {self.what}"}.get(self.kind, self.what)


@dataclass(frozen=True)
class Taken:
    """Requests of the pods on each node, by the node's name."""

    all: Mapping[str, Amounts]
    residents: Mapping[str, Amounts]
    """Requests of pods that belong to their node, such as those of daemon sets."""


@dataclass(frozen=True)
class Placement:
    """The nodes where a pod can run, and how many such pods fit there."""

    obstacles: dict[str, Obstacle]
    """Reasons that keep the pod off each of the other nodes, by name."""
    ever: dict[str, int]
    """Number of pods that fit each possible node beside its residents alone."""
    now: dict[str, int]
    """Number of pods that fit each possible node beside the pods that are there."""
    full: dict[str, Obstacle]
    """What a possible node lacks now, by name."""


def amounts(quantities: Mapping[str, object] | None) -> dict[str, Decimal]:
    """Return quantities of Kubernetes as numbers."""
    return {name: parse_quantity(str(value)) for name, value in (quantities or {}).items()}


def requests(spec: Object) -> dict[str, Decimal]:
    """Return what a pod takes of its node: its containers and sidecars together, or its largest init container."""
    first = spec.get("initContainers") or []
    sidecars = [one for one in first if one.get("restartPolicy") == "Always"]
    found = _sum(_requests(one) for one in [*sidecars, *(spec.get("containers") or ())])
    for container in first:
        found |= {name: max(value, found.get(name, value)) for name, value in _requests(container).items()}
    found |= amounts((spec.get("resources") or {}).get("requests"))
    return _sum([found, amounts(spec.get("overhead")), {"pods": Decimal(1)}])


def taken(pods: Iterable[Object]) -> Taken:
    """Return the requests of pods that were placed, and are not finished."""
    everything: dict[str, Amounts] = {}
    residents: dict[str, Amounts] = {}
    for pod in pods:
        name, phase = pod["spec"].get("nodeName"), (pod.get("status") or {}).get("phase")
        if not name or phase in ("Succeeded", "Failed"):
            continue
        owners = {one["kind"] for one in pod["metadata"].get("ownerReferences") or ()}
        stays = bool(owners & {"DaemonSet", "Node"})
        for sums in (everything, residents) if stays else (everything,):
            sums[name] = _sum([sums.get(name, {}), requests(pod["spec"])])
    return Taken(everything, residents)


def place(spec: Object, nodes: Iterable[Object], used: Taken) -> Placement:
    """Return where a pod can run, and how many of it fit."""
    asked, found = requests(spec), Placement({}, {}, {}, {})
    for node in nodes:
        name, empty, now = node["metadata"]["name"], left(node, used.residents), left(node, used.all)
        if never := obstacle(spec, node, empty):
            found.obstacles[name] = never
            continue
        found.ever[name], found.now[name] = _copies(asked, empty), _copies(asked, now)
        if full := obstacle(spec, node, now):
            found.full[name] = full
    return found


def left(node: Object, used: Mapping[str, Amounts]) -> dict[str, Decimal]:
    """Return what a node has beside what is used."""
    has, gone = amounts(node["status"].get("allocatable")), used.get(node["metadata"]["name"], {})
    return {name: value - gone.get(name, 0) for name, value in has.items()}


def obstacle(spec: Object, node: Object, room: Amounts) -> Obstacle | None:
    """Return the first thing that keeps a pod off a node for good, or None if it can run there.

    Args:
        spec: the pod's.
        node: the node.
        room: what the node has beside its residents.
    """
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    selector = spec.get("nodeSelector") or {}
    for met, (key, value) in enumerate(selector.items()):
        if labels.get(key) != value:
            return Obstacle(Kind.LABEL, met, f"{key}={value}")
    missing = [_unmet(term, labels, fields) for term in required_terms(spec)]
    unmet = [one for one in missing if one is not None]
    if unmet and len(unmet) == len(missing):
        what = " or ".join(dict.fromkeys(text for text, _ in unmet))
        return Obstacle(Kind.LABEL, len(selector) + max(met for _, met in unmet), what)
    taints = [one for one in node["spec"].get("taints") or () if one["effect"] in ("NoSchedule", "NoExecute")]
    taints += [_CORDONED] if node["spec"].get("unschedulable") else []
    tolerations = spec.get("tolerations") or ()
    taints = [taint for taint in taints if not any(_tolerates(one, taint) for one in tolerations)]
    if own := [taint for taint in taints if not taint["key"].startswith(_STATES)]:
        value = f"={own[0]['value']}" if own[0].get("value") else ""
        return Obstacle(Kind.TAINT, 0, f"{own[0]['key']}{value}:{own[0]['effect']}")
    states = [taint["key"].rpartition("/")[2] for taint in taints]
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or ())
    if states or not ready:
        cordoned = "unschedulable" in states
        return Obstacle(Kind.STATE, 0, "cordoned" if cordoned else states[0] if ready else "not ready")
    short = [
        f"asks {shown(name, amount)}, has {shown(name, room.get(name, NOTHING))}"
        for name, amount in requests(spec).items()
        if amount > max(NOTHING, room.get(name, NOTHING))
    ]
    return Obstacle(Kind.SIZE, 0, ", ".join(short)) if short else None


def shown(resource: str, amount: Decimal) -> str:
    """Return an amount as people write it, rounded down: ``160Gi memory``, ``3.92 cores``."""
    unit, size = "", Decimal(1)
    if resource in ("memory", "ephemeral-storage"):
        unit, size = ("Gi", Decimal(2**30)) if amount >= 2**30 else ("Mi", Decimal(2**20))
    number = f"{int(max(NOTHING, amount) / size * 100) / 100:g}"
    return f"{number}{unit} {'cores' if resource == 'cpu' else resource}"


def _unmet(term: Object, labels: Mapping[str, str], fields: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the first condition of a term that does not hold, and how many hold before it; None if all hold."""
    conditions = [(one, labels) for one in term.get("matchExpressions") or ()]
    conditions += [(one, fields) for one in term.get("matchFields") or ()]
    for met, (one, values) in enumerate(conditions):
        if not _holds(one, values):
            named = one.get("values") or []
            if one["operator"] == "In" and len(named) == 1:
                return f"{one['key']}={named[0]}", met
            return f"{one['key']} {one['operator']} {', '.join(named)}".strip(), met
    return None if conditions else ("a term without conditions", 0)


def _holds(condition: Object, labels: Mapping[str, str]) -> bool:
    own, values = labels.get(condition["key"]), condition.get("values") or []
    match condition["operator"]:
        case "In":
            return own in values
        case "NotIn":
            return own not in values
        case "Exists":
            return own is not None
        case "DoesNotExist":
            return own is None
        case "Gt" | "Lt":
            try:
                number, bound = int(own or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return number > bound if condition["operator"] == "Gt" else number < bound
    return False


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Return whether a toleration covers a taint; an empty key or effect covers every one."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return toleration.get("operator") in (None, "", "Equal") and toleration.get("value", "") == taint.get("value", "")


def _requests(container: Object) -> dict[str, Decimal]:
    """Return a container's requests; a limit stands for a request that is not given."""
    resources = container.get("resources") or {}
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def _sum(parts: Iterable[Amounts]) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found.get(name, NOTHING) + value
    return found


def _copies(asked: Amounts, room: Amounts) -> int:
    """Return how many pods fit."""
    return min(int(max(NOTHING, room.get(name, NOTHING)) // amount) for name, amount in asked.items() if amount)
