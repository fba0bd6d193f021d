"""Settings of a cluster's pods: image, resources, node pool and secrets of every role that a task can have."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from tasks.process.provenance import image_tag
from tasks.settings.base import WHOLE_RUN, Settings, in_bucket, read_yaml

VARIABLE = "MU_GRPO_DEPLOYMENT"
"""Environment variable with the path of the deployment's file while tasks are registered."""
VALUES = "MU_GRPO_DEPLOYMENT_VALUES"
"""Environment variable of pods that compile tasks: the deployment that the tasks were registered with, as JSON."""
Role = Literal["cpu", "prefetch", "verify", "rollout", "evaluate", "train"]
ROLES: tuple[Role, ...] = get_args(Role)
Image = Literal["cpu", "rollout", "train", "alternate"]

_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?$")
_FACTORS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3} | {unit: 1e3**n for n, unit in enumerate("kMGTPE", 1)}
_FACTORS |= {f"{unit}i": 2.0 ** (10 * n) for n, unit in enumerate("KMGTPE", 1)}


def quantity(text: str) -> float:
    """Return the number of cores or bytes that a Kubernetes quantity stands for; raise ValueError if it is none."""
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(
            "is not a quantity; allowed: a number with m, Ki, Mi, Gi, Ti, k, M, G, T or nothing, such as 64Gi"
        )
    return float(match[1]) * _FACTORS[match[2] or ""] * 10.0 ** int(match[3] or 0)


def _check_quantity(text: str) -> str:
    quantity(text)
    return text


Quantity = Annotated[str, AfterValidator(_check_quantity)]


class PodSettings(Settings):
    """The pod of one role. Requests equal limits: the node reserves all that the pod may use."""

    image: Image = "cpu"
    """Image of the pod."""
    cpu: Quantity = "1"
    """Cores, as a Kubernetes quantity."""
    memory: Quantity = "2Gi"
    """Memory of the pod, including its shared memory."""
    ephemeral_storage: Quantity = "8Gi"
    """Disk for local copies of the artifacts that the pod reads and writes."""
    gpus: int = Field(0, ge=0)
    """GPUs of the pod."""
    accelerator: str = ""
    """Kind of GPU by its name in Flyte, such as nvidia-h200, nvidia-h100 or nvidia-l40s; any kind when empty."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm; NCCL and vLLM with several GPUs need it."""
    template: str = ""
    """Name of the PodTemplate in the namespace, which has service account, tolerations, security and grace period. When
    empty, it is mu-grpo-prefetch or mu-grpo-verify for these roles, and mu-grpo-cpu for the others."""
    interruptible: bool = False
    """Let the pod run on spot nodes; the last attempt goes to a regular one."""
    retries: int = Field(3, ge=0)
    """Largest number of further attempts after the first one fails."""
    timeout_minutes: int = Field(1440, ge=0)
    """Time limit against steps that hang. Flyte ends an attempt after this time, and fails the step twice this time
    after it was queued, which includes all attempts and all waiting for nodes and for other pods. The shards of a map
    task count as one step. 0: no limit, for steps that may run or wait for days."""

    @model_validator(mode="after")
    def _fits_together(self) -> "PodSettings":
        if self.shared_memory is not None and quantity(self.shared_memory) >= quantity(self.memory):
            raise ValueError(
                f"shared_memory {self.shared_memory} with memory {self.memory}; allowed: less, as memory includes it"
            )
        if self.accelerator and not self.gpus:
            raise ValueError(f"accelerator {self.accelerator} with gpus 0; allowed: none, or a number of gpus")
        return self


class SecretSettings(Settings):
    """Keys of one Kubernetes secret. Tasks ask for no key that is empty here."""

    name: str = "mu-grpo"
    """Name of the Kubernetes secret."""
    hub_token: str = ""
    """Key with the token of the Hugging Face hub; only tasks that fetch policies and prompts get it."""
    tracker_key: str = ""
    """Key with wandb's API key; only tasks that train and evaluate get it."""


PlanName = Literal["smoke", "single_gpu", "paper_7b", "nightly_evaluation", "weekly", "reproduction"]
SCHEDULED: tuple[PlanName, ...] = ("nightly_evaluation", "weekly", "reproduction")


class LaunchPlanSettings(Settings):
    """A named way to start a run on a cluster."""

    config: str
    """File with the settings of the run, relative to the root of the project, such as configs/tiny-cpu.yaml."""
    schedule: str = ""
    """Times at which Flyte starts a run: a cron expression of five fields, in UTC; empty to start runs by hand."""


class DeploymentSettings(Settings):
    """Pods and images of a run's tasks on a cluster; a file per cluster and size of policy in configs/deployments."""

    images: str = "mu-grpo"
    """Prefix of the names of images: ``registry.example/team/mu-grpo`` gives ``...-cpu``, ``...-rollout``, ..."""
    tag: str = Field(default_factory=image_tag, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
    """Tag of the images. The default is the commit of the code that registers, as ``make images`` tags its images."""
    pods: dict[Role, PodSettings] = Field(default_factory=dict, validate_default=True)
    """Pods by role; a role that is left out has a small CPU pod."""
    train_nodes: int = Field(1, ge=1)
    """Nodes that train one policy together; more than one needs the training operator."""
    accelerator_label: str = "k8s.amazonaws.com/accelerator"
    """Node label with the kind of a node's GPU, the same as ``gpu-device-node-label`` in the settings of Flyte."""
    spot_label: str = Field("mu-grpo/pool=rollout", pattern=r"^[^=\s]+=[^=\s]+$")
    """Label and taint of spot nodes. The settings of Flyte send interruptible pods there, and no others."""
    secrets: SecretSettings = SecretSettings()
    max_parallelism: int = Field(16, ge=1)
    """Largest number of pods of an execution that run at the same time."""
    store: str = ""
    """Store of the runs that launch plans start: ``s3://bucket/prefix``."""
    launch_plans: dict[PlanName, LaunchPlanSettings] = Field(default_factory=dict)
    """Launch plans that this cluster offers; see workflows/launch_plans.py."""
    notify: list[str] = Field(default_factory=list)
    """E-mail addresses that are notified when a run of a launch plan fails, is aborted or times out."""

    @field_validator("pods")
    @classmethod
    def _all_roles(cls, pods: dict[Role, PodSettings]) -> dict[Role, PodSettings]:
        # A network policy lets only pods of mu-grpo-prefetch reach the hub.
        templates = {role: f"mu-grpo-{role}" if role in ("prefetch", "verify") else "mu-grpo-cpu" for role in ROLES}
        every = {role: pods.get(role, PodSettings()) for role in ROLES}
        return {
            role: pod if pod.template else pod.model_copy(update={"template": templates[role]})
            for role, pod in every.items()
        }

    @model_validator(mode="after")
    def _launch_plans_are_complete(self) -> "DeploymentSettings":
        if self.launch_plans and not in_bucket(self.store):
            raise ValueError(
                f"store: {self.store!r} with launch_plans; allowed: s3://bucket/prefix, which pods can reach"
            )
        for name, plan in self.launch_plans.items():
            if bool(plan.schedule) != (name in SCHEDULED):
                allowed = (
                    "a cron expression, as 0 3 * * *" if name in SCHEDULED else "none, as this plan is started by hand"
                )
                raise ValueError(f"launch_plans.{name}.schedule: {plan.schedule!r}; allowed: {allowed}")
        return self

    def image(self, role: Role, colocated: bool = False) -> str:
        """Return the image of a role's pod; ``colocated`` is true for a task that generates and trains."""
        image = self.pods[role].image
        return f"{self.images}-{'alternate' if colocated and image == 'train' else image}:{self.tag}"

    @classmethod
    def read(cls, path: Path, named_by: str = VARIABLE) -> "DeploymentSettings":
        """Read a deployment from a file; messages say that ``named_by`` named the file.

        Raises:
            SettingsError: the file cannot be read, or a value in it is not allowed.
        """
        return cls.parse(read_yaml(path, cls.model_fields, "configs/deployments/gpu-4.yaml", named_by), WHOLE_RUN)

    @classmethod
    def current(cls) -> "DeploymentSettings":
        """Return the deployment that an environment variable holds or names; otherwise small pods without GPUs."""
        if values := os.environ.get(VALUES):
            return cls.model_validate_json(values)
        return cls.read(Path(os.environ[VARIABLE])) if os.environ.get(VARIABLE) else cls()
