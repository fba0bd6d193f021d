"""Whether a run can start on a cluster: all checks, the most basic first."""

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tasks.cluster.api import Api, Object
from tasks.cluster.findings import Finding, Unknown, checked
from tasks.cluster.flyte import flyte_checks, numbers
from tasks.cluster.images import image_checks
from tasks.cluster.nodes import LABEL, SIZE, STATE, TAINT, Look, Obstacle, look_at
from tasks.cluster.pods import GPU, image_names, role_pod, roles_of, workflow_of
from tasks.errors import ArtifactError
from tasks.report.formats import some
from tasks.settings import RunSettings
from tasks.settings.deployment import DeploymentSettings, Role, quantity
from tasks.store.places import bucket_of

KUBEFLOW = "kubeflow.org/v1"
"""The API of the training operator."""
OLDEST = (1, 28)
"""The oldest version of Kubernetes that is checked with a run."""
_APPLY = "kubectl apply -k k8s/overlays/<yours>"
_REFUSED = (
    ("violates PodSecurity", "Change the pod template {template}, or label the namespace less strictly"),
    ("service account|PriorityClass|no namespace|namespaces ", f"Make it: {_APPLY}"),
    ("quota|usage per", "Change it in k8s/overlays/<yours>, or change pods.{role} of the deployment"),
    ("", "Change pods.{role} of the deployment, or the pod template {template}"),
)
"""Fixes for refusals of the API server, by a pattern in the message; the first pattern that matches is used."""
_QUOTA = re.compile(r"exceeded quota: .*requested: (.*), used: .*, limited: (.*)")


@dataclass(frozen=True)
class Target:
    """Where a run is to go.

    Without a kubeconfig and a context, kubectl's own are taken; without Flyte's address, Flyte is not asked.
    """

    project: str = "mu-grpo"
    domain: str = "development"
    kubeconfig: Path | None = None
    context: str | None = None
    flyte: str | None = None
    seconds: float = 10.0
    """Longest wait for an answer, in seconds."""

    @property
    def namespace(self) -> str:
        """The namespace in which Flyte starts the run's pods."""
        return f"{self.project}-{self.domain}"


def preflight(run: RunSettings, deployment: DeploymentSettings, target: Target) -> list[Finding]:
    """Return what stops a run from starting, and what does not."""
    given = {"kubeconfig": target.kubeconfig, "context": target.context}
    options = [f"--{name}={value}" for name, value in given.items() if value]
    api = Api(options, target.namespace, deployment.secrets.name, target.seconds)
    findings, nodes = list[Finding](), list[Object]()
    try:
        findings += [_server(api), _permissions(api), *_namespace(api, deployment)]
        nodes = api.objects("nodes")
        findings += _places(api, run, deployment, nodes)
    except Unknown as error:
        silent = Finding("API server", "failed", error.why, error.fix)
        findings.append(Finding("nodes", "not tried", error.why, error.fix) if findings else silent)
    findings.append(store_check(run.store, target.seconds))
    findings += image_checks(image_names(deployment, run), nodes, target.seconds)
    return findings + flyte_checks(target.flyte, target.project, target.domain, workflow_of(run), target.seconds)


def store_check(uri: str, seconds: float) -> Finding:
    """Write a small object below a prefix of its own, try to write it a second time, read it and remove it.

    Args:
        uri: the store.
        seconds: how long a request is tried.
    """
    bucket, key = bucket_of(uri, seconds), f"preflight/{uuid.uuid4().hex}"
    here = "seen from this machine, with its credentials; pods have their own"
    if bucket is None:
        fix = "Name a prefix of a bucket: store=s3://bucket/prefix"
        return Finding("store", "failed", f"{uri} is a folder, which no pod of a cluster reaches", fix)
    try:
        bucket.write_new(key, b"first")
        try:
            bucket.write_new(key, b"second")
            kept = bucket.read(key)
        finally:
            bucket.delete([key])
    except (ArtifactError, ValueError) as error:  # The client's own for an endpoint that is no URL.
        message = error.message if isinstance(error, ArtifactError) else f"{uri}: {error}"
        fix = "Correct what it names; for a store in the cluster: kubectl port-forward, and AWS_ENDPOINT_URL for it"
        return Finding("store", "failed", f"{message} ({here})", fix)
    if kept != b"first":
        found = f"{uri}: If-None-Match is ignored: of two runs that do the same work the last one's counts"
        fix = "Use a server that knows conditional writes, or start one run at a time"
        return Finding("store", "warning", found, fix)
    return Finding("store", "ok", f"{uri}: written with If-None-Match, read and removed; {here}")


def _server(api: Api) -> Finding:
    version = api.version()
    if (found := numbers(version)) and found[:2] < OLDEST:
        fix = f"Upgrade the cluster to {'.'.join(map(str, OLDEST))} or newer"
        return Finding("API server", "failed", f"Kubernetes {version}", fix)
    where = api.kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
    return Finding("API server", "ok", f"{where}, Kubernetes {version}")


def _permissions(api: Api) -> Finding:
    if denied := [str(api.needed[what]) for what in api.needed if what in api.denied]:
        fix = "Ask for them: k8s/components/preflight binds a role with all"
        return Finding("permissions", "warning", f"may not {', '.join(denied)}", fix)
    return Finding("permissions", "ok", f"all {len(api.needed)} that are asked for here")


def _namespace(api: Api, deployment: DeploymentSettings) -> Iterator[Finding]:
    yield checked("namespace", partial(_exists, api))
    yield checked("secrets", partial(_secrets, api, deployment))
    yield checked("PyTorchJob", partial(_training, api, deployment))


def _exists(api: Api) -> Finding:
    names = {one["name"]: one for one in api.objects("namespaces")}
    if api.namespace not in names:
        like = sorted(name for name in names if name.startswith("mu-grpo-"))
        there = f"; there are {', '.join(like)}" if like else ""
        fix = f"Name another --project or --domain, or make it: {_APPLY}"
        return Finding("namespace", "failed", f"{api.namespace} does not exist{there}", fix)
    if (names[api.namespace].get("status") or {}).get("phase") == "Terminating":
        fix = f"Wait, and make it again: {_APPLY}"
        return Finding("namespace", "failed", f"{api.namespace} is being deleted", fix)
    return Finding("namespace", "ok", api.namespace)


def _secrets(api: Api, deployment: DeploymentSettings) -> Finding:
    asked = deployment.secrets
    keys = [key for key in (asked.hub_token, asked.tracker_key) if key]
    if not keys:
        return Finding("secrets", "ok", "none is asked for")
    there = api.secret_keys()
    if there is None:
        literals = " ".join(f"--from-file={key}=..." for key in keys)
        fix = f"kubectl create secret generic {asked.name} -n {api.namespace} {literals}"
        return Finding("secrets", "failed", f"{asked.name} does not exist in {api.namespace}", fix)
    if missing := [key for key in keys if key not in there]:
        found = f"{asked.name} has no key {', '.join(missing)}; it has {', '.join(sorted(there)) or 'none'}"
        fix = f"Add the key to the secret, or name another in the deployment's secrets: {', '.join(missing)}"
        return Finding("secrets", "failed", found, fix)
    return Finding("secrets", "ok", f"{asked.name}: {', '.join(keys)}")


def _training(api: Api, deployment: DeploymentSettings) -> Finding:
    if deployment.train_nodes == 1:
        return Finding("PyTorchJob", "ok", "not needed for train_nodes 1")
    if api.serves(KUBEFLOW, "pytorchjobs"):
        return Finding("PyTorchJob", "ok", f"{KUBEFLOW} is served")
    found = f"{KUBEFLOW} has no pytorchjobs here, and train_nodes is {deployment.train_nodes}"
    fix = "Install Kubeflow's training operator v1 and enable Flyte's pytorch plugin, or set train_nodes: 1"
    return Finding("PyTorchJob", "failed", found, fix)


def _places(api: Api, run: RunSettings, deployment: DeploymentSettings, nodes: Sequence[Object]) -> Iterator[Finding]:
    """Yield the checks of GPUs, and of the pod of each role: by a dry run, and by a look at the nodes."""
    if any(deployment.pod(role).gpus for role in roles_of(run)):
        yield _gpus(nodes)
    templates = {one["name"]: one for one in api.objects("podtemplates")}
    for role in roles_of(run):
        template = deployment.pod(role).template
        if template not in templates:
            have = f"; it has {', '.join(sorted(templates))}" if templates else ""
            found = f"the pod template {template} does not exist in {api.namespace}{have}"
            fix = f"Make it: {_APPLY}, or name another in the deployment's pods"
            yield Finding(f"pod of {role}", "failed", found, fix)
            continue
        pod = role_pod(role, deployment, templates[template], run.alternates)
        yield checked(f"pod of {role}", partial(_admission, api, role, template, pod))
        yield checked(f"nodes for {role}", partial(_nodes, api, run, deployment, role, pod["spec"], nodes))


def _gpus(nodes: Sequence[Object]) -> Finding:
    counts = [int((node["status"].get("allocatable") or {}).get(GPU, 0)) for node in nodes]
    if not any(counts):
        fix = "Add GPU nodes; where there are some, install NVIDIA's GPU operator or device plugin: "
        fix += "kubectl get daemonsets -A shows whether it runs"
        return Finding("GPUs", "failed", f"no node of {len(nodes)} offers {GPU}", fix)
    return Finding("GPUs", "ok", f"{sum(counts)} {GPU} on {sum(map(bool, counts))} of {len(nodes)} nodes")


def _admission(api: Api, role: Role, template: str, pod: Object) -> Finding:
    refusal = api.refusal(pod)
    if not refusal:
        return Finding(f"pod of {role}", "ok", "the API server would take it")
    if (quota := _QUOTA.search(refusal)) and _within(*quota.groups()):
        fix = "Wait for what runs in the namespace, or raise the quota"
        return Finding(f"pod of {role}", "warning", f"it waits: {refusal}", fix)
    fix = next(text for pattern, text in _REFUSED if re.search(pattern, refusal)).format(role=role, template=template)
    return Finding(f"pod of {role}", "failed", f"the API server would refuse it: {refusal}", fix)


def _within(requested: str, limited: str) -> bool:
    """Return whether a quota would have room for what is requested if nothing used it."""
    asked, most = (dict(one.split("=") for one in text.split(",")) for text in (requested, limited))
    return all(quantity(asked[name]) <= quantity(most[name]) for name in asked)


def _nodes(
    api: Api, run: RunSettings, deployment: DeploymentSettings, role: Role, spec: Object, nodes: Sequence[Object]
) -> Finding:
    name, known = f"nodes for {role}", "pods" not in api.denied
    pods = api.objects("pods") if known else []
    looks = [look_at(node, spec, pods) for node in nodes]
    fitting = [one for one in looks if one.ever]
    ever, now = sum(one.ever for one in looks), sum(one.now for one in looks)
    must = deployment.train_nodes if role == "train" else 1
    wanted = min(run.shards, deployment.max_parallelism) if role == "rollout" else must
    if not nodes:
        return Finding(name, "failed", "the cluster has no node", "Add nodes")
    if not fitting:
        return _nowhere(name, looks, role, deployment.pod(role).template)
    fits = f"fits {len(fitting)} of {len(nodes)} nodes"
    if ever < must:
        found = f"{fits}, which hold {ever} of the {must} that must run at once"
        return Finding(name, "failed", found, "Add nodes to its pool, or lower train_nodes")
    if known and now < wanted:
        full = "; ".join(f"{one.node}: {one.obstacle}" for one in fitting if one.obstacle)
        found = f"{fits}; room for {now} of {wanted} at once now{f'; {full}' if full else ''}"
        return Finding(name, "warning", found, "Wait for what runs there, or add nodes to its pool")
    return Finding(name, "ok", f"{fits}; room for {now} now" if known else f"{fits}; what is free there is not known")


def _nowhere(name: str, looks: Sequence[Look], role: Role, template: str) -> Finding:
    """Return what keeps a pod off every node: first the nodes that come nearest, whose obstacle is to be fixed."""
    nodes = dict[Obstacle, list[str]]()
    for one in looks:
        if one.obstacle:
            nodes.setdefault(one.obstacle, []).append(one.node)
    nearest = max(nodes)
    what, node = nearest.what, nodes[nearest][0]
    fix = {
        LABEL: f"Label the pool's nodes: kubectl label node <name> {what}; or change accelerator of {role}, "
        f"accelerator_label or spot_label in the deployment, or nodeSelector and affinity of {template}",
        TAINT: f"Add a toleration for {what} to {template}, or take the taint off the nodes",
        STATE: f"kubectl uncordon {node}" if what == "cordoned" else f"kubectl describe node {node}",
        SIZE: f"Ask for less in pods.{role} of the deployment, or add larger nodes to its pool",
    }[nearest.kind]
    found = "; ".join(f"{some(nodes[one], 4)}: {one}" for one in sorted(nodes, reverse=True))
    return Finding(name, "failed", f"it fits no node. {found}", fix)
