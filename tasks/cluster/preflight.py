"""Preflight: checks that a run can start on a cluster, the most basic ones first."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from tasks.cluster.api import STRANGE, Api, CheckResult, Finding, Object, Target, UnansweredError, run_check
from tasks.cluster.nodes import GPU, LABEL, SIZE, STATE, TAINT, NodeMatch, Obstacle, match_node, role_pod
from tasks.cluster.rates import used_gpus
from tasks.cluster.services import check_flyte, check_image, probe_store, version_numbers
from tasks.formats import first_names
from tasks.settings import RunSettings
from tasks.settings.deployment import ROLES, DeploymentSettings, Role, quantity

KUBEFLOW = "kubeflow.org/v1"
"""The API of the training operator."""
OLDEST = (1, 28)
"""Oldest supported version of Kubernetes."""
_APPLY = "kubectl apply -k k8s/overlays/<yours>"
_QUOTA = re.compile(r"exceeded quota: .*requested: (.*), used: .*, limited: (.*)")


def workflow_of(run: RunSettings) -> str:
    """Return the registered name of a run's workflow."""
    return "workflows.grpo.grpo" if run.alternates else "workflows.mu_grpo.mu_grpo"


def roles_of(run: RunSettings) -> tuple[Role, ...]:
    """Return the roles of a workflow's pods. An alternating run generates and verifies in its training pods."""
    return tuple(role for role in ROLES if not run.alternates or role not in ("verify", "rollout"))


def preflight(run: RunSettings, deployment: DeploymentSettings, target: Target) -> list[Finding]:
    """Run all checks, and return their findings."""
    findings, nodes = list[Finding](), list[Object]()
    try:
        api = Api(target, deployment.secrets.name)
        cluster = _Cluster(api, run, deployment)
        # Without an answer to one of these two, no other question to the API server can succeed.
        findings += [Finding("API server", *cluster.server()), Finding("permissions", *cluster.permissions())]
        checks = {"namespace": cluster.namespace, "secrets": cluster.secrets, "PyTorchJob": cluster.training_operator}
        findings += [run_check(name, check) for name, check in checks.items()]
        nodes += [] if "nodes" in api.denied else api.read("nodes")["items"]
        findings += cluster.pods(nodes)
    except UnansweredError as error:
        silent = Finding("nodes", "not tried", error.why, error.fix)
        findings.append(silent if findings else replace(silent, name="API server", state="failed"))
    findings.append(Finding("store", *probe_store(run.store, target.seconds)))
    for image in dict.fromkeys(deployment.image(role, run.alternates) for role in roles_of(run)):
        name = f"image {image.rpartition('/')[2].partition(':')[0]}"
        findings.append(Finding(name, *check_image(image, nodes, target.seconds)))
    return findings + check_flyte(target, workflow_of(run))


class _Cluster:
    """Checks that ask the API server."""

    def __init__(self, api: Api, run: RunSettings, deployment: DeploymentSettings) -> None:
        self._api, self._run, self._deployment = api, run, deployment

    def pods(self, nodes: list[Object]) -> Iterator[Finding]:
        """Check for every role that the API server admits its pod, and that the pod fits on nodes."""
        api, run, deployment = self._api, self._run, self._deployment
        running = None if "pods" in api.denied else api.read("pods")["items"]
        templates = {one["metadata"]["name"]: one for one in api.read("podtemplates")["items"]}
        for role in roles_of(run):
            template = deployment.pods[role].template
            if template not in templates:
                others = f"; it has {', '.join(sorted(templates))}" if templates else ""
                found = f"the pod template {template} does not exist in {api.namespace}{others}"
                fix = f"Make it: {_APPLY}, or name another in the deployment's pods"
                yield Finding(f"pod of {role}", "failed", found, fix)
                continue
            pod = role_pod(role, deployment, templates[template], run.alternates)
            yield run_check(f"pod of {role}", partial(self._admission, role, pod))
            matches = [match_node(node, pod["spec"], running or ()) for node in nodes]
            yield run_check(f"nodes for {role}", partial(self._room, role, matches, running is not None))

    def server(self) -> CheckResult:
        version = str(self._api.ask("/version").get("gitVersion"))
        numbers = version_numbers(version)
        if numbers is None:
            raise UnansweredError(*STRANGE)
        if numbers < OLDEST:
            return "failed", f"Kubernetes {version}", f"Upgrade the cluster to {'.'.join(map(str, OLDEST))} or newer"
        return "ok", f"{self._api.address}, Kubernetes {version}", ""

    def permissions(self) -> CheckResult:
        required, denied = self._api.required, self._api.review()
        if denied:
            fix = "Request them: k8s/components/preflight binds a role that has all"
            return "warning", f"may not {', '.join(str(required[what]) for what in denied)}", fix
        return "ok", f"all {len(required)} required permissions", ""

    def namespace(self) -> CheckResult:
        namespace = self._api.namespace
        existing = [one["metadata"]["name"] for one in self._api.read("namespaces")["items"]]
        if namespace not in existing:
            similar = sorted(name for name in existing if name.startswith("mu-grpo-"))
            others = f"; there are {', '.join(similar)}" if similar else ""
            fix = f"Name another --project or --domain, or make it: {_APPLY}"
            return "failed", f"{namespace} does not exist{others}", fix
        return "ok", namespace, ""

    def secrets(self) -> CheckResult:
        wanted, namespace = self._deployment.secrets, self._api.namespace
        keys = [key for key in (wanted.hub_token, wanted.tracker_key) if key]
        if not keys:
            return "ok", "none is required", ""
        secret = self._api.read("secret")
        if not secret:
            literals = " ".join(f"--from-file={key}=..." for key in keys)
            fix = f"kubectl create secret generic {wanted.name} -n {namespace} {literals}"
            return "failed", f"{wanted.name} does not exist in {namespace}", fix
        present = sorted(secret.get("data") or {})  # Values of the secret are never shown.
        if missing := ", ".join(key for key in keys if key not in present):
            found = f"{wanted.name} has no key {missing}; it has {', '.join(present) or 'none'}"
            return "failed", found, f"Add the key to the secret, or name another in the deployment's secrets: {missing}"
        return "ok", f"{wanted.name}: {', '.join(keys)}", ""

    def training_operator(self) -> CheckResult:
        nodes = self._deployment.train_nodes
        if nodes == 1:
            return "ok", "not needed for train_nodes 1", ""
        if self._run.optimize.backend.kind == "torch":
            fix = "Set optimize.backend.kind: deepspeed, or train_nodes: 1"
            return "failed", f"optimize.backend.kind is torch, and train_nodes is {nodes}", fix
        if "pytorchjobs" in [one["name"] for one in self._api.ask(f"/apis/{KUBEFLOW}").get("resources", ())]:
            return "ok", f"{KUBEFLOW} is served", ""
        fix = "Install Kubeflow's training operator v1 and enable Flyte's pytorch plugin, or set train_nodes: 1"
        return "failed", f"{KUBEFLOW} has no pytorchjobs here, and train_nodes is {nodes}", fix

    def _admission(self, role: Role, pod: Object) -> CheckResult:
        setting, used = used_gpus(self._run).get(role, ("", 0))
        if 0 < (gpus := self._deployment.pods[role].gpus) < used:  # Without GPUs, processes train on the CPU.
            fix = f"Raise gpus in pods.{role} of the deployment, or lower {setting}"
            return "failed", f"it has {gpus} GPUs, and {setting} is {used}", fix
        refusal, template = self._api.refusal(pod), self._deployment.pods[role].template
        if not refusal:
            return "ok", "the API server admits it", ""
        if (quota := _QUOTA.search(refusal)) and _fits_quota(*quota.groups()):
            return "warning", f"it waits: {refusal}", "Wait until pods of the namespace end, or raise the quota"
        fix = f"Change pods.{role} of the deployment, the pod template {template}, or what it names: {_APPLY}"
        return "failed", f"the API server refuses it: {refusal}", fix

    def _room(self, role: Role, matches: Sequence[NodeMatch], pods_known: bool) -> CheckResult:
        run, deployment = self._run, self._deployment
        fitting = [one for one in matches if one.if_empty]
        if_empty, free_now = sum(one.if_empty for one in matches), sum(one.free_now for one in matches)
        must = deployment.train_nodes if role == "train" else 1
        wanted = min(run.shards, deployment.max_parallelism) if role == "rollout" else must
        if not matches:
            self._api.read("nodes")  # It raises UnansweredError without the permission.
            return "failed", "the cluster has no node", "Add nodes"
        if not fitting:
            return explain_unschedulable(matches, role, deployment.pods[role].template)
        fits = f"fits {len(fitting)} of {len(matches)} nodes"
        if if_empty < must:
            found = f"{fits}, which hold {if_empty} of the {must} that must run at once"
            return "failed", found, "Add nodes to its pool, or lower train_nodes"
        if not pods_known:
            return "ok", f"{fits}; their free resources are unknown", ""
        if free_now < wanted:
            full = "".join(f"; {one.node}: {one.obstacle}" for one in fitting if one.obstacle)
            found = f"{fits}; room for {free_now} of {wanted} at once now{full}"
            return "warning", found, "Wait for running pods to end, or add nodes to its pool"
        return "ok", f"{fits}; room for {free_now} now", ""


def _fits_quota(requested: str, limited: str) -> bool:
    """Return whether a request would fit into a quota that nothing else uses."""
    asked, most = (dict(one.split("=") for one in text.split(",")) for text in (requested, limited))
    return all(quantity(asked[name]) <= quantity(most[name]) for name in asked)


def explain_unschedulable(matches: Sequence[NodeMatch], role: Role, template: str) -> CheckResult:
    """Return a finding with the obstacles of all nodes, the nearest node first, and the fix for its obstacle."""
    nodes = dict[Obstacle, list[str]]()
    for one in matches:
        if one.obstacle:
            nodes.setdefault(one.obstacle, []).append(one.node)
    nearest = max(nodes)
    what, node = nearest.what, nodes[nearest][0]
    label = f" so that {what}" if " " in what else f": kubectl label node <name> {what}"
    device = "; GPUs are offered by NVIDIA's GPU operator or device plugin" if GPU in what else ""
    fix = {
        LABEL: f"Label the pool's nodes{label}; or change accelerator of {role}, "
        f"accelerator_label or spot_label in the deployment, or nodeSelector and affinity of {template}",
        TAINT: f"Add a toleration for {what} to {template}, or remove the taint from the nodes",
        STATE: f"kubectl uncordon {node}" if what == "cordoned" else f"kubectl describe node {node}",
        SIZE: f"Request less in pods.{role} of the deployment, or add larger nodes to its pool{device}",
    }[nearest.kind]
    found = "; ".join(f"{first_names(nodes[one], 4)}: {one}" for one in sorted(nodes, reverse=True))
    return "failed", f"it fits no node. {found}", fix
