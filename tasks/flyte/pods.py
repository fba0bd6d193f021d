"""Options of tasks that describe the pods of their roles, for registration."""

from datetime import timedelta
from typing import Any

from flytekit import Resources, Secret
from flytekit.extras.accelerators import GPUAccelerator

from tasks.flyte.attempts import GPUS, REGISTERED
from tasks.process.provenance import code
from tasks.settings.deployment import DeploymentSettings, Role

DEPLOYMENT = DeploymentSettings.current()


def pod_options(role: Role, colocated: bool = False) -> dict[str, Any]:
    """Return the arguments of ``flytekit.task`` for a role: image, resources, template, attempts, secrets."""
    pod = DEPLOYMENT.pods[role]
    resources = Resources(
        cpu=pod.cpu, mem=pod.memory, ephemeral_storage=pod.ephemeral_storage, gpu=str(pod.gpus) if pod.gpus else None
    )
    return {
        "container_image": DEPLOYMENT.image(role, colocated),
        "requests": resources,
        "limits": resources,
        "accelerator": GPUAccelerator(pod.accelerator) if pod.accelerator else None,
        "shared_memory": pod.shared_memory,
        "pod_template_name": pod.template,
        "interruptible": pod.interruptible,
        "retries": pod.retries,
        "timeout": timedelta(minutes=pod.timeout_minutes),
        "environment": {REGISTERED: code(), **({GPUS: str(pod.gpus)} if pod.gpus else {})},
        "secret_requests": _secrets(role),
    }


def _secrets(role: Role) -> list[Secret]:
    """Return the secrets of a role: the hub's token for prefetch, the tracker's key for training and evaluation."""
    secrets = DEPLOYMENT.secrets
    keys = {
        "HF_TOKEN": secrets.hub_token if role == "prefetch" else "",
        "WANDB_API_KEY": secrets.tracker_key if role in ("train", "evaluate") else "",
    }
    return [
        Secret(group=secrets.name, key=key, env_var=variable, mount_requirement=Secret.MountType.ENV_VAR)
        for variable, key in keys.items()
        if key
    ]
