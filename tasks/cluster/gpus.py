"""The GPUs of a plan: how many of which kind a pod of each role has, and what a pod costs."""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.cost import AcceleratorSettings, CostSettings
from tasks.settings.deployment import VARIABLE, DeploymentSettings, PodSettings, Role


@dataclass(frozen=True)
class Pool:
    """GPUs of a cluster, and the pods that use them."""

    gpus: int
    pods: Mapping[Role, PodSettings]
    """Pods that use GPUs, by role, with their accelerators; for training all of its nodes together."""
    training_gpus: int
    """Number of GPUs that one policy is trained on."""
    most_pods: int
    """Largest number of pods at once."""
    costs: CostSettings

    def gpus_of(self, role: Role) -> int:
        """Return the GPUs of one pod."""
        return self.pods[role].gpus if role in self.pods else 0

    def gpu(self, role: Role) -> AcceleratorSettings:
        """Return the accelerator of a role."""
        return self.costs.accelerator(self.pods[role].accelerator)

    def price(self, role: Role, seconds: float) -> float:
        """Return the price of one pod."""
        if role not in self.pods:
            return seconds / 3600 * self.costs.cpu_pod_hour
        pod, hour = self.pods[role], self.gpu(role).price
        return seconds / 3600 * pod.gpus * (hour.spot if pod.interruptible else hour.on_demand)

    def paid_as(self, role: Role) -> str:
        """Return what the pods of a role are paid as."""
        if role not in self.pods:
            return "CPU pods"
        return "GPUs, spot" if self.pods[role].interruptible else "GPUs, on demand"


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
    given, pods = deployment or DeploymentSettings(), dict[Role, PodSettings]()
    for role, (setting, used) in wanted.items():
        pod = given.pod(role) if deployment else PodSettings(gpus=used, interruptible=role != "train")
        if pod.gpus < used:
            raise SettingsError(
                f"{VARIABLE}: pods.{role}.gpus: {pod.gpus} with {setting} {used}; "
                f"allowed: {used} or more GPUs in that pod"
            )
        together = pod.gpus * (given.train_nodes if role == "train" else 1)
        if gpus < together or (role == "rollout" and gpus % together):
            fits = f"multiples of {together}" if role == "rollout" else f"{together} or more"
            raise SettingsError(
                f"gpus: {gpus} with {setting} {used}, for which a pod has {together} GPUs; allowed: {fits}"
            )
        kind = accelerator or pod.accelerator or next(iter(costs.accelerators))
        costs.accelerator(kind)
        pods[role] = pod.model_copy(update={"gpus": together, "accelerator": kind})
    return Pool(gpus, pods, given.train_nodes * run.optimize.backend.processes, given.max_parallelism, costs)
