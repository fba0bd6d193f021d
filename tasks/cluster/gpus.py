"""The GPUs of a plan: how many of which kind a pod of each role has, and what a pod costs."""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.cost import AcceleratorSettings, CostSettings
from tasks.settings.deployment import VARIABLE, DeploymentSettings, PodSettings, Role

GPU_ROLES: tuple[Role, ...] = ("rollout", "evaluate", "train")


@dataclass(frozen=True)
class Pool:
    """GPUs of a cluster, and the pods that use them."""

    gpus: int
    pods: Mapping[Role, int]
    """GPUs of a pod, by role; for training the GPUs of all its nodes."""
    training_gpus: int
    """Number of GPUs that one policy is trained on."""
    accelerators: Mapping[Role, str]
    spot: frozenset[Role]
    """Roles whose pods may be interrupted."""
    most_pods: int
    """Largest number of pods at once."""
    costs: CostSettings

    def gpu(self, role: Role) -> AcceleratorSettings:
        """Return the accelerator of a role."""
        return self.costs.accelerator(self.accelerators[role])

    def price(self, role: Role, seconds: float) -> float:
        """Return the price of one pod."""
        if role not in self.pods:
            return seconds / 3600 * self.costs.cpu_pod_hour
        hour = self.gpu(role).price
        return seconds / 3600 * self.pods[role] * (hour.spot if role in self.spot else hour.on_demand)


def pool_of(
    run: RunSettings, gpus: int, accelerator: str | None, costs: CostSettings, deployment: DeploymentSettings | None
) -> Pool:
    """Return the pods of every role on a number of GPUs.

    Without a deployment a pod has the GPUs that its step uses; generation and evaluation run on spot nodes, training
    does not, as in configs/deployments.

    Args:
        run: the settings of the run.
        gpus: the number of GPUs of the cluster.
        accelerator: a row of the prices, for all roles; by default that of the deployment, or the first row.
        costs: prices and assumptions.
        deployment: sizes of the pods.

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
    accelerators: dict[Role, str] = {}
    spot: set[Role] = set()
    for role, (setting, used) in wanted.items():
        pod = deployment.pod(role) if deployment else PodSettings(gpus=used, interruptible=role != "train")
        if pod.gpus < used:
            raise SettingsError(
                f"{VARIABLE}: pods.{role}.gpus: {pod.gpus} with {setting} {used}; "
                f"allowed: {used} or more GPUs in that pod"
            )
        pods[role] = pod.gpus * (nodes if role == "train" else 1)
        if gpus < pods[role] or (role == "rollout" and gpus % pods[role]):
            fits = f"multiples of {pods[role]}" if role == "rollout" else f"{pods[role]} or more"
            raise SettingsError(
                f"gpus: {gpus} with {setting} {used}, for which a pod has {pods[role]} GPUs; allowed: {fits}"
            )
        accelerators[role] = accelerator or pod.accelerator or next(iter(costs.accelerators))
        costs.accelerator(accelerators[role])
        if pod.interruptible:
            spot.add(role)
    most = (deployment or DeploymentSettings()).max_parallelism
    processes = nodes * run.optimize.backend.processes
    return Pool(gpus, pods, processes, accelerators, frozenset(spot), most, costs)
