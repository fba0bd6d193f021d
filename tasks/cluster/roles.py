"""Checks of each role's pod: whether the API server would take it, and whether a node has room for it."""

import re
from functools import partial

from tasks.cluster.api import Api, Object, Refused
from tasks.cluster.findings import Finding, Unknown, checked
from tasks.cluster.nodes import Kind, Obstacle, Placement, amounts, place, taken
from tasks.cluster.pods import role_pod
from tasks.report.formats import some
from tasks.settings import RunSettings
from tasks.settings.deployment import DeploymentSettings, Role

_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
APPLY = "kubectl apply -k k8s/overlays/<yours>"
_MOST = 4
"""Largest number of nodes that are named one by one."""
_FIXES = (
    ("violates PodSecurity", "Change the pod template {template}, or label the namespace less strictly"),
    ("service account|PriorityClass|no namespace", f"Make it: {APPLY}"),
    ("quota|usage per", "Change it in k8s/overlays/<yours>, or change pods.{role} of the deployment"),
    ("", "Change pods.{role} of the deployment, or the pod template {template}"),
)
"""How to fix what the API server refuses, by a pattern in its message; the first that is found counts."""
_QUOTA = re.compile(r"exceeded quota: .*requested: (.*), used: .*, limited: (.*)")


class RoleChecks:
    """Checks the pods of a run's roles.

    Args:
        api: the API server.
        run: the settings of the run.
        deployment: sizes, templates and labels of the pods.
    """

    def __init__(self, api: Api, run: RunSettings, deployment: DeploymentSettings) -> None:
        self._api, self._run, self._deployment = api, run, deployment
        self._placed: dict[Role, Placement] = {}

    def check(self, role: Role) -> Finding:
        """Check a role's pod: by a dry run of the API server, then by a look at the nodes."""
        name, template = f"pod of {role}", self._deployment.pod(role).template
        templates = {one["name"]: one for one in self._api.objects("podtemplates")}
        if template not in templates:
            have = f"; it has {', '.join(sorted(templates))}" if templates else ""
            found = f"the pod template {template} does not exist in {self._api.namespace}{have}"
            return Finding(name, "failed", found, f"Make it: {APPLY}, or name another in the deployment's pods")
        pod = role_pod(role, self._deployment, templates[template], self._run.alternates)
        both = [
            checked(name, partial(self._admission, name, role, pod, template)),
            checked(name, partial(self._nodes, name, role, pod["spec"], template)),
        ]
        worst = max(both, key=lambda one: ("ok", "not tried", "warning", "failed").index(one.state)).state
        told = [one for one in both if one.found and (worst != "failed" or one.state == "failed")]
        fixes = dict.fromkeys(one.fix for one in told if one.fix)
        return Finding(name, worst, "; ".join(one.found for one in told), "; ".join(fixes))

    def _admission(self, name: str, role: Role, pod: Object, template: str) -> Finding:
        try:
            self._api.dry_run(pod)
        except Refused as error:
            message = str(error)
            if (quota := _QUOTA.search(message)) and _fits(*quota.groups()):
                fix = "Wait for what runs in the namespace, or raise the quota"
                return Finding(name, "warning", f"it waits: {message}", fix)
            fix = next(text for pattern, text in _FIXES if re.search(pattern, message))
            refused = f"the API server would refuse it: {message}"
            return Finding(name, "failed", refused, fix.format(role=role, template=template))
        return Finding(name, "ok", "")

    def _nodes(self, name: str, role: Role, spec: Object, template: str) -> Finding:
        nodes = self._api.objects("nodes")
        unknown = None
        try:
            used = taken(self._api.objects("pods", fieldSelector=_RUNNING))
        except Unknown as error:
            used, unknown = taken([]), error
        placed = self._placed[role] = place(spec, nodes, used)
        count = self._deployment.train_nodes if role == "train" else 1
        ever, now = sum(placed.ever.values()), sum(placed.now.values())
        if not nodes:
            return Finding(name, "failed", "the cluster has no node", "Add nodes")
        if not ever:
            return self._nowhere(name, role, template, placed)
        fits = f"fits {len(placed.ever)} of {len(nodes)} nodes"
        if ever < count:
            found = f"{fits}, which hold {ever} of the {count} that must run at once"
            return Finding(name, "failed", found, "Add nodes to its pool, or lower train_nodes")
        if unknown:
            found = f"{fits}; what is free there is not known: {unknown.why}"
            return Finding(name, "warning", found, unknown.fix)
        if now < count:
            full = "; ".join(f"{node}: {obstacle}" for node, obstacle in placed.full.items())
            found = f"{fits}, and waits: room for {now} of {count} now; {full}"
            return Finding(name, "warning", found, "Wait for what runs there, or add nodes to its pool")
        return Finding(name, "ok", f"{fits}; room for {now} now")

    def shards(self) -> Finding:
        """Check how many shards of a stage can be generated at once."""
        if self._run.alternates:
            return Finding("shards", "ok", "none: pods that train generate")
        most, shards = self._deployment.max_parallelism, self._run.shards
        asked = f"{shards} a stage, {min(shards, most)} at once by max_parallelism {most}"
        placed = self._placed.get("rollout")
        if placed is None or not any(placed.ever.values()):
            return Finding("shards", "not tried", f"{asked}; the pod of rollout fits no node that is known")
        self._api.objects("pods")
        room = sum(placed.now.values())
        if room >= min(shards, most):
            return Finding("shards", "ok", f"{asked}; room for {room}")
        rounds = f"{-(-shards // room)} rounds" if room else "all wait"
        fix = "Wait, add nodes, or make fewer shards: prompts.prompts_per_shard"
        return Finding("shards", "warning", f"{asked}; the nodes have room for {room} now: {rounds}", fix)

    def _nowhere(self, name: str, role: Role, template: str, placed: Placement) -> Finding:
        """Return what keeps a pod off every node: first the nodes that come nearest, whose obstacle is to be fixed."""
        nodes: dict[Obstacle, list[str]] = {}
        for node, obstacle in placed.obstacles.items():
            nodes.setdefault(obstacle, []).append(node)
        nearest = max(nodes)
        what, node = nearest.what, nodes[nearest][0]
        found = "; ".join(f"{some(nodes[one], _MOST)}: {one}" for one in sorted(nodes, reverse=True))
        match nearest.kind:
            case Kind.LABEL:
                fix = self._label_fix(role, what, template, node)
            case Kind.TAINT:
                fix = f"Add a toleration for {what} to {template}, or take the taint off the nodes"
            case Kind.STATE:
                fix = f"kubectl uncordon {node}" if what == "cordoned" else f"kubectl describe node {node}"
            case Kind.SIZE:
                fix = f"Ask for less in pods.{role} of the deployment, or add larger nodes to its pool"
        return Finding(name, "failed", f"it fits no node. {found}", fix)

    def _label_fix(self, role: Role, what: str, template: str, node: str) -> str:
        deployment = self._deployment
        if what.startswith(f"{deployment.accelerator_label}="):
            return (
                f"Change accelerator of {role}, or accelerator_label to what Flyte's gpu-device-node-label names, "
                f"or label the nodes: kubectl label node {node} {what}"
            )
        if what.startswith(deployment.spot_label.partition("=")[0]) and deployment.pod(role).interruptible:
            return (
                f"Label and taint the spot nodes {what}, change spot_label to what Flyte's "
                f"interruptible-node-selector-requirement names, or set interruptible of {role} to false"
            )
        return f"Label the pool's nodes {what}, or change nodeSelector and affinity of {template}"


def _fits(requested: str, limited: str) -> bool:
    """Return whether a quota would have room for what is requested if nothing used it."""
    asked, most = (amounts(dict(one.split("=") for one in text.split(","))) for text in (requested, limited))
    return all(asked[name] <= most[name] for name in asked)
