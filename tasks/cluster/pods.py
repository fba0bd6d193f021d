"""The pods of a run: their roles, their images, and each as Flyte makes it from its template."""

import copy

from tasks.cluster.api import Object
from tasks.cluster.nodes import required_terms
from tasks.settings import RunSettings
from tasks.settings.deployment import ROLES, DeploymentSettings, Role

GPU = "nvidia.com/gpu"


def workflow_of(run: RunSettings) -> str:
    """Return the name that the workflow of a run is registered by."""
    return "workflows.grpo.grpo" if run.alternates else "workflows.mu_grpo.mu_grpo"


def roles_of(run: RunSettings) -> tuple[Role, ...]:
    """Return the roles of the pods that the workflow starts; those that alternate generate and verify themselves."""
    return tuple(role for role in ROLES if not run.alternates or role not in ("verify", "rollout"))


def image_names(deployment: DeploymentSettings, run: RunSettings) -> list[str]:
    """Return the different images of these roles."""
    return list(dict.fromkeys(deployment.image(role, run.alternates) for role in roles_of(run)))


def role_pod(role: Role, deployment: DeploymentSettings, template: Object, takes_turns: bool = False) -> Object:
    """Return the pod of a role's task as Flyte makes it, without its command.

    Flyte puts the template's containers ``default`` and ``primary`` below the task's own, which has the deployment's
    sizes, and takes no others. The accelerator becomes a required label with its toleration; what may be interrupted
    is sent to nodes with the spot label, and nothing else is. Flyte adds its own label of spot nodes to a template's
    required terms as one more alternative.

    Args:
        role: the role of the task.
        deployment: sizes, accelerators and labels.
        template: the PodTemplate.
        takes_turns: whether generation and training take turns in the task.
    """
    pod, spec = deployment.pod(role), copy.deepcopy(template["template"]["spec"])
    sizes = {"cpu": pod.cpu, "memory": pod.memory, "ephemeral-storage": pod.ephemeral_storage}
    sizes |= {GPU: str(pod.gpus)} if pod.gpus else {}
    container: Object = {}
    for base in ("default", "primary"):
        container |= next((one for one in spec.get("containers", ()) if one["name"] == base), {})
    resources = {"requests": sizes, "limits": sizes}
    container |= {"name": "task", "image": deployment.image(role, takes_turns), "resources": resources}
    tolerations, terms = list(spec.get("tolerations", ())), required_terms(spec)
    key, _, value = deployment.spot_label.partition("=")
    spot = {"key": key, "operator": "In" if pod.interruptible else "NotIn", "values": [value]}
    terms = [*terms, {"matchExpressions": [spot]}]
    if pod.interruptible:
        tolerations.append(_tolerated(key, value))
    if pod.accelerator:
        label = deployment.accelerator_label
        asked = {"key": label, "operator": "In", "values": [pod.accelerator]}
        terms = [{**one, "matchExpressions": [*one.get("matchExpressions", ()), asked]} for one in terms]
        tolerations.append(_tolerated(label, pod.accelerator))
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec |= {"containers": [container], "restartPolicy": "Never", "tolerations": tolerations}
    spec["affinity"] = {**spec.get("affinity", {}), "nodeAffinity": affinity}
    spec.pop("initContainers", None)
    metadata = {key: value for key, value in template["template"].get("metadata", {}).items() if value}
    metadata["generateName"] = "preflight-"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _tolerated(key: str, value: str) -> Object:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
