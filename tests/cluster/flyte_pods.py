"""A registered task's pod, as Flyte 1.16 makes it: the task over the pod template, with Flyte's own settings.

After flyteplugins' ``flytek8s/pod_helper.go``: UpdatePod, MergeWithBasePodTemplate (where lists are appended, so that
node affinities of template and Flyte are alternatives), ApplyGPUNodeSelectors, ApplySharedMemory. Secrets are left out:
Flyte's webhook adds them to the pod that it is shown.
"""

import copy
from typing import Any

from flyteidl.admin import task_pb2
from flyteidl.core import tasks_pb2

from tests.cluster.api import Object
from tests.k8s.flyte_values import values
from tests.preflight.clusters import NAMESPACE

_BASE, _SHARED_MEMORY = "default", "flyte-shared-memory"
_SETTINGS: dict[str, Any] = values("values.yaml")["configuration"]["inline"]["plugins"]["k8s"]
_RESOURCES = {
    tasks_pb2.Resources.CPU: "cpu",
    tasks_pb2.Resources.MEMORY: "memory",
    tasks_pb2.Resources.EPHEMERAL_STORAGE: "ephemeral-storage",
}


def pod_of(name: str, task: task_pb2.TaskSpec, template: Object, last: bool = False) -> Object:
    """The pod of an attempt.

    Args:
        name: of the pod.
        task: as it is registered.
        template: the pod template that the task names.
        last: whether it is the last attempt, which is not interruptible.
    """
    base = copy.deepcopy(template["template"])
    spec, own = base["spec"], task.template.container
    interruptible = task.template.metadata.interruptible and not last
    requests, limits = (
        {_named(entry.name): entry.value for entry in part} for part in (own.resources.requests, own.resources.limits)
    )
    (container,) = (one for one in spec["containers"] if one["name"] == _BASE)
    container |= {
        "name": name,
        "image": own.image,
        "args": list(own.args),
        "env": [{"name": one.key, "value": one.value} for one in own.env],
        "resources": {"requests": requests, "limits": limits},
    }
    of_resources = {name: found for one in _SETTINGS["resource-tolerations"] for name, found in one.items()}
    tolerations = [one for resource in requests for one in of_resources.get(resource, [])]
    tolerations += _SETTINGS["interruptible-tolerations"] if interruptible else []
    kind = "interruptible" if interruptible else "non-interruptible"
    required = _required(spec)
    required.append({"matchExpressions": [_SETTINGS[f"{kind}-node-selector-requirement"]]})
    if device := task.template.extended_resources.gpu_accelerator.device:
        label = _SETTINGS["gpu-device-node-label"]
        for term in required:
            term["matchExpressions"] = [
                *term.get("matchExpressions", []),
                {"key": label, "operator": "In", "values": [device]},
            ]
        tolerations.append({"key": label, "operator": "Equal", "value": device, "effect": "NoSchedule"})
    if task.template.extended_resources.HasField("shared_memory"):
        shared = task.template.extended_resources.shared_memory
        volume = shared.mount_name or _SHARED_MEMORY
        size = {"sizeLimit": shared.size_limit} if shared.size_limit else {}
        spec["volumes"].append({"name": volume, "emptyDir": {"medium": "Memory", **size}})
        container["volumeMounts"].append({"name": volume, "mountPath": shared.mount_path or "/dev/shm"})
    spec |= {
        "containers": [container],
        "restartPolicy": "Never",
        "tolerations": [*spec.get("tolerations", []), *tolerations],
    }
    metadata = {**base.get("metadata", {}), "name": name, "namespace": NAMESPACE}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def _required(spec: Object) -> list[Object]:
    """The terms of which one must hold for a node; those that the template has, to be added to."""
    node = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms: list[Object] = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {}).setdefault(
        "nodeSelectorTerms", []
    )
    return terms


def _named(resource: int) -> str:
    return str(_SETTINGS["gpu-resource-name"]) if resource == tasks_pb2.Resources.GPU else _RESOURCES[resource]
