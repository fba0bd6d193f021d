"""Whether a run can start on a cluster: all checks, the most basic first."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tasks.cluster.api import Api
from tasks.cluster.connection import connect
from tasks.cluster.findings import Finding, Patience, Unknown, checked
from tasks.cluster.flyte import flyte_checks
from tasks.cluster.images import ask_registries, image_check
from tasks.cluster.pods import GPU, image_names, roles_of, workflow_of
from tasks.cluster.roles import APPLY, RoleChecks
from tasks.cluster.storage import store_check
from tasks.report.formats import some
from tasks.settings import RunSettings
from tasks.settings.deployment import DeploymentSettings

KUBEFLOW = "kubeflow.org/v1"
"""The API of the training operator."""
OLDEST = (1, 28)
"""The oldest version of Kubernetes that is checked with a run."""
_LABEL = "pod-security.kubernetes.io/enforce"


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
    patience: Patience = field(default_factory=Patience)

    @property
    def namespace(self) -> str:
        """The namespace in which Flyte starts the run's pods."""
        return f"{self.project}-{self.domain}"


def preflight(run: RunSettings, deployment: DeploymentSettings, target: Target) -> list[Finding]:
    """Return what stops a run from starting, and what does not."""
    seconds, names = target.patience.request, image_names(deployment, run)
    with ThreadPoolExecutor() as pool:
        store = pool.submit(store_check, run.store, seconds)
        registries = pool.submit(ask_registries, names, seconds)
        flyte = pool.submit(flyte_checks, target.flyte, target.project, target.domain, workflow_of(run), seconds)
        try:
            client, where = connect(target.kubeconfig, target.context)
        except Unknown as error:
            return [
                error.finding("kubeconfig", "failed"),
                store.result(),
                *(image_check(name, registries.result().get(name), []) for name in names),
                *flyte.result(),
            ]
        with client:
            api = Api(client, target.namespace, deployment.secrets.name, target.patience)
            findings = [Finding("kubeconfig", "ok", where), *_cluster(api, run, deployment)]
            try:
                nodes = api.objects("nodes") if len(findings) > 2 else []
            except Unknown:
                nodes = []
        images = [image_check(name, registries.result().get(name), nodes) for name in names]
        return [*findings, store.result(), *images, *flyte.result()]


def _cluster(api: Api, run: RunSettings, deployment: DeploymentSettings) -> Iterator[Finding]:
    """Yield the checks of the API server; if it does not answer, the first alone."""
    name = "API server"
    try:
        version = api.version()
        denied = [str(permission) for what, permission in api.needed.items() if not api.allowed(what)]
    except Unknown as error:
        yield error.finding(name, "failed")
        return
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        yield Finding(name, "failed", f"Kubernetes {version}", f"Upgrade the cluster to {oldest} or newer")
    else:
        yield Finding(name, "ok", f"{api.host}, Kubernetes {version}")
    if denied:
        fix = "Ask for them: k8s/components/preflight binds a role with all"
        yield Finding("permissions", "warning", f"may not {', '.join(denied)}", fix)
    else:
        yield Finding("permissions", "ok", f"all {len(api.needed)} that are asked for here")
    yield checked("namespace", partial(_namespace, api))
    yield checked("secrets", partial(_secrets, api, deployment))
    yield checked("PyTorchJob", partial(_training, api, deployment))
    yield checked("GPUs", partial(_gpus, api, run, deployment))
    roles = RoleChecks(api, run, deployment)
    for role in roles_of(run):
        yield checked(f"pod of {role}", partial(roles.check, role))
    yield checked("shards", roles.shards)


def _namespace(api: Api) -> Finding:
    names = {one["name"]: one for one in api.objects("namespaces")}
    if api.namespace not in names:
        like = sorted(name for name in names if name.startswith("mu-grpo-"))
        there = f"; there are {', '.join(like)}" if like else ""
        fix = f"Name another --project or --domain, or make it: {APPLY}"
        return Finding("namespace", "failed", f"{api.namespace} does not exist{there}", fix)
    found = names[api.namespace]
    if (found.get("status") or {}).get("phase") == "Terminating":
        fix = f"Wait, and make it again: {APPLY}"
        return Finding("namespace", "failed", f"{api.namespace} is being deleted", fix)
    profile = (found["metadata"].get("labels") or {}).get(_LABEL)
    if profile is None:
        without = f"{api.namespace} has no label {_LABEL}: pods may ask for anything"
        return Finding("namespace", "warning", without, f"kubectl label namespace {api.namespace} {_LABEL}=restricted")
    return Finding("namespace", "ok", f"{api.namespace}, {profile}")


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
    return Finding(
        "PyTorchJob",
        "failed",
        f"{KUBEFLOW} has no pytorchjobs here, and train_nodes is {deployment.train_nodes}",
        "Install Kubeflow's training operator v1 and enable Flyte's pytorch plugin, or set train_nodes: 1",
    )


def _gpus(api: Api, run: RunSettings, deployment: DeploymentSettings) -> Finding:
    if not any(deployment.pod(role).gpus for role in roles_of(run)):
        return Finding("GPUs", "ok", "none is asked for")
    nodes = api.objects("nodes")
    counts = {node["name"]: int((node["status"].get("allocatable") or {}).get(GPU, 0)) for node in nodes}
    if not any(counts.values()):
        fix = "Add GPU nodes; where there are some, install NVIDIA's GPU operator or device plugin: "
        fix += "kubectl get daemonsets -A shows whether it runs"
        return Finding("GPUs", "failed", f"no node of {len(nodes)} offers {GPU}", fix)
    labelled = {one["name"] for one in nodes if deployment.accelerator_label in (one["metadata"].get("labels") or {})}
    found = f"{sum(counts.values())} {GPU} on {sum(map(bool, counts.values()))} of {len(nodes)} nodes"
    if bare := [name for name in counts if name in labelled and not counts[name]]:
        fix = "Look at the device plugin's pods there: kubectl get pods -A -o wide"
        return Finding("GPUs", "warning", f"{found}; none on {some(bare, 4)}, labelled as GPU nodes", fix)
    return Finding("GPUs", "ok", found)
