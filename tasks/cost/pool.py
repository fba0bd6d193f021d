"""The GPUs of a plan: how many and which a pod of each role has, and what they cost."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.cost.jobs import Job, Layout
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.cost import AcceleratorSettings, CostSettings
from tasks.settings.deployment import VARIABLE, DeploymentSettings, Role

GPU_ROLES: tuple[Role, ...] = ("rollout", "evaluate", "train")
_HOUR = 3600.0


@dataclass(frozen=True)
class Pool:
    """GPUs of a cluster, and the pods that ask for them."""

    layout: Layout
    accelerators: Mapping[Role, str]
    costs: CostSettings
    spot: frozenset[Role]
    """Roles whose pods may be interrupted."""
    most_pods: int
    """At once."""

    def gpu(self, role: Role) -> AcceleratorSettings:
        """The accelerator of a role."""
        return self.costs.accelerator(self.accelerators[role])

    def price(self, job: Job) -> float:
        """Of a job's pod."""
        hours = job.length / _HOUR
        if not job.gpus:
            return hours * self.costs.cpu_pod_hour
        price = self.gpu(job.role).price
        return hours * job.gpus * (price.spot if job.role in self.spot else price.on_demand)


def pool_of(
    run: RunSettings, gpus: int, accelerator: str | None, costs: CostSettings, deployment: DeploymentSettings | None
) -> Pool:
    """Pods of every role on a number of GPUs.

    Without a deployment a pod has the GPUs that its step uses, rollouts and evaluations are interruptible, and training
    is not, as in configs/deployments.

    Args:
        run: its settings.
        gpus: of the cluster.
        accelerator: of all roles; those of the deployment, or the first of the table, without it.
        costs: prices and assumptions.
        deployment: which pods there are.

    Raises:
        SettingsError: the numbers do not fit, or the accelerator is not in the table.
    """
    wanted: dict[Role, tuple[str, int]] = {
        "rollout": ("rollout.engine.tensor_parallel", run.rollout.engine.tensor_parallel),
        "evaluate": ("evaluate.engine.tensor_parallel", run.evaluation_engine.tensor_parallel),
        "train": ("optimize.backend.processes", run.optimize.backend.processes),
    }
    nodes = deployment.train_nodes if deployment else 1
    pods: dict[Role, int] = {}
    for role, (setting, used) in wanted.items():
        has = deployment.pod(role).gpus if deployment else used
        if has < used:
            raise SettingsError(
                f"{VARIABLE}: pods.{role}.gpus: {has} with {setting} {used}; allowed: {used} or more GPUs in that pod"
            )
        pods[role] = has * (nodes if role == "train" else 1)
    for role, (setting, used) in wanted.items():
        if gpus < pods[role] or (role == "rollout" and gpus % pods[role]):
            fits = f"multiples of {pods[role]}" if role == "rollout" else f"{pods[role]} or more"
            raise SettingsError(
                f"gpus: {gpus} with {setting} {used}, for which a pod has {pods[role]} GPUs; allowed: {fits}"
            )
    default = next(iter(costs.accelerators))
    named = {role: (deployment.pod(role).accelerator if deployment else "") for role in GPU_ROLES}
    chosen: dict[Role, str] = {role: accelerator or name or default for role, name in named.items()}
    for name in chosen.values():
        costs.accelerator(name)
    spot = [role for role in GPU_ROLES if deployment and deployment.pod(role).interruptible]
    return Pool(
        layout=Layout(gpus, pods, nodes * run.optimize.backend.processes),
        accelerators=chosen,
        costs=costs,
        spot=frozenset(spot if deployment else ("rollout", "evaluate")),
        most_pods=(deployment or DeploymentSettings()).max_parallelism,
    )


def current_deployment() -> DeploymentSettings | None:
    """The deployment that the environment names, if any."""
    return DeploymentSettings.current() if os.environ.get(VARIABLE) else None
