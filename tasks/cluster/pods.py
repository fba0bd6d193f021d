"""The pods of a run: their roles, their images, and each as Flyte makes it from its template."""

import copy
from collections.abc import Iterable, Mapping

from tasks.cluster.api import Object
from tasks.settings import RunSettings
from tasks.settings.deployment import ROLES, DeploymentSettings, Role

GPU = "nvidia.com/gpu"
_IN_TRAINING: tuple[Role, ...] = ("verify", "rollout")
"""Roles whose work the pods that train do themselves, where generation and training take turns."""
_BASES = ("default", "primary")
"""Containers of a template that Flyte puts below the task's own, the second over the first; it takes no others."""


def workflow_of(run: RunSettings) -> str:
    """Return the name that the workflow of a run is registered by."""
    return "workflows.grpo.grpo" if run.alternates else "workflows.mu_grpo.mu_grpo"


def roles_of(run: RunSettings) -> tuple[Role, ...]:
    """Return the roles of the pods that the workflow starts."""
    return tuple(role for role in ROLES if not run.alternates or role not in _IN_TRAINING)


def image_names(deployment: DeploymentSettings, run: RunSettings) -> list[str]:
    """Return the different images of these roles."""
    return list(dict.fromkeys(deployment.image(role, run.alternates) for role in roles_of(run)))


def role_pod(role: Role, deployment: DeploymentSettings, template: Object, takes_turns: bool = False) -> Object:
    """Return the pod of a role's task as Flyte makes it, without its command.

    The deployment's sizes lie over the template's container. The accelerator becomes a required label with its
    toleration; what may be interrupted is sent to nodes with the spot label, and nothing else is. Flyte adds its own
    label of spot nodes to a template's required terms as one more alternative.

    Args:
        role: the role of the task.
        deployment: sizes, accelerators and labels.
        template: the PodTemplate.
        takes_turns: whether generation and training take turns in the task.
    """
    pod, spec = deployment.pod(role), copy.deepcopy(template["template"]["spec"])
    sizes = {"cpu": pod.cpu, "memory": pod.memory, "ephemeral-storage": pod.ephemeral_storage}
    sizes |= {GPU: str(pod.gpus)} if pod.gpus else {}
    image, resources = deployment.image(role, takes_turns), {"requests": sizes, "limits": sizes}
    own: Object = {"name": "task", "image": image, "resources": resources}
    bases = [one for name in _BASES for one in spec.get("containers", ()) if one["name"] == name]
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
    spec |= {"containers": [_over([*bases, own])], "restartPolicy": "Never", "tolerations": tolerations}
    spec["affinity"] = {**spec.get("affinity", {}), "nodeAffinity": affinity}
    spec.pop("initContainers", None)
    metadata = {key: value for key, value in template["template"].get("metadata", {}).items() if value}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "generateName": "preflight-"},
        "spec": spec,
    }


def required_terms(spec: Mapping[str, Object]) -> list[Object]:
    """Return the terms of required node affinity, one of which must hold; none if there is no such affinity."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required.get("nodeSelectorTerms", ()))


def _tolerated(key: str, value: str) -> Object:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def _over(layers: Iterable[Object]) -> Object:
    """Return the fields of containers, the later over the earlier; objects inside are merged too."""
    merged: Object = {}
    for layer in layers:
        for name, value in layer.items():
            both = isinstance(value, dict) and isinstance(merged.get(name), dict)
            merged[name] = _over([merged[name], value]) if both else value
    return merged
