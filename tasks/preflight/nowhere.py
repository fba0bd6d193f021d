"""Why a pod can run on no node at all: the label, taint, state or size that stops it, and the mend."""

from collections import Counter
from collections.abc import Sequence

from tasks.preflight.findings import Finding
from tasks.preflight.pools import KINDS, Obstacle, Placement, Taken, left, shown
from tasks.preflight.records import Node
from tasks.preflight.role_pods import RolePod
from tasks.report.formats import some

_EMPTY = "a pool that is scaled to none counts once it has a node"
AT_MOST = 4
"""Nodes that are named one by one."""


def nowhere(name: str, pod: RolePod, placed: Placement, nodes: Sequence[Node], used: Taken) -> Finding:
    """The finding about the nodes that come nearest: those that fail at the last of the scheduler's steps."""
    if not nodes:
        return Finding(name, "failed", "the cluster has no node", "Add nodes")
    nearest = _nearest(pod, placed)
    near = [node for node in nodes if placed.obstacles[node.name] == nearest]
    names, template, what = some([node.name for node in near], AT_MOST), pod.template, nearest.what
    where = "on no node" if len(near) == len(nodes) else f"not on {names}"
    match nearest.kind:
        case "selector":
            key = what.partition("=")[0]
            found = f"the label {what}, which {template} selects, is {where}{_others(key, nodes)}"
            mend = f"Label the pool's nodes {what}, or change nodeSelector of {template}; {_EMPTY}"
        case "affinity":
            found = f"what the node affinity of {template} asks for is {where}: {what}"
            mend = f"Label the pool's nodes, or change the affinity of {template}; {_EMPTY}"
        case "spot" if pod.ask.spot and pod.ask.spot.operator == "In":
            key = what.partition("=")[0]
            found = f"the label {what} of spot nodes, where Flyte sends {pod.role}, is {where}{_others(key, nodes)}"
            mend = (
                f"Label and taint the spot nodes {what}, change spot_label to what Flyte's "
                f"interruptible-node-selector-requirement names, or set interruptible of {pod.role} to false; {_EMPTY}"
            )
        case "spot":
            found = f"{names}: spot nodes, and {pod.role} may not be interrupted"
            mend = "Add nodes without the spot label, or change spot_label"
        case "accelerator":
            key = what.partition("=")[0]
            found = f"the label {what}, by which Flyte finds the accelerator, is {where}{_others(key, near)}"
            mend = (
                f"Change accelerator of {pod.role}, or accelerator_label to what Flyte's gpu-device-node-label names, "
                f"or label the nodes: kubectl label node {near[0].name} {what}"
            )
        case "taint":
            found = f"the taint {what} of {names} is tolerated by nothing in {template}"
            mend = f"Add a toleration for {what} to {template}, or take the taint off the nodes"
        case "state":
            found = f"{names}: {what}"
            mend = f"kubectl uncordon {near[0].name}" if what == "cordoned" else f"kubectl describe node {near[0].name}"
        case "size":
            near = [node for node in nodes if placed.obstacles[node.name].kind == "size"]
            found = _too_small(pod, near, used)
            mend = f"Ask for less in pods.{pod.role} of the deployment, or add larger nodes to its pool"
    return Finding(name, "failed", found + _also(placed, nearest), mend)


def _nearest(pod: RolePod, placed: Placement) -> Obstacle:
    """The obstacle that a pod meets last; of several of the kind the most common."""
    kind = max((one.kind for one in placed.obstacles.values()), key=KINDS.index)
    of_kind = Counter(one for one in placed.obstacles.values() if one.kind == kind)
    if kind == "selector":  # Its labels are looked at in their order.
        labels = [f"{key}={value}" for key, value in pod.ask.selector.items()]
        return max(of_kind, key=lambda one: labels.index(one.what))
    return of_kind.most_common(1)[0][0]


def _also(placed: Placement, nearest: Obstacle) -> str:
    """Nodes of the right kind that something else keeps off: a taint, or their state."""
    others = [
        f"{name}: {one}"
        for name, one in placed.obstacles.items()
        if one.kind in ("taint", "state") and one != nearest and nearest.kind in ("taint", "state", "size")
    ]
    return f"; {some(others, AT_MOST)}" if others else ""


def _others(key: str, nodes: Sequence[Node]) -> str:
    there = Counter(node.labels[key] for node in nodes if key in node.labels)
    values = ", ".join(f"{value} on {count}" for value, count in there.most_common(4))
    return f"; there is {values}" if values else f"; nor is {key} with another value"


def _too_small(pod: RolePod, near: Sequence[Node], used: Taken) -> str:
    parts = []
    for resource, asked in pod.ask.requests.items():
        most, name = max((left(node, used.residents).get(resource, 0), node.name) for node in near)
        if asked > most:
            parts.append(f"asks {shown(resource, asked)}; the largest, {name}, has {shown(resource, max(0, most))}")
    return "; ".join(parts) or f"no single node of {len(near)} has all that it asks for"
