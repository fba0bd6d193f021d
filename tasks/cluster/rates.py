"""GPUs of a plan, and seconds of the units of work there, by data sheets and assumptions."""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.cluster.shapes import BYTES, Shape
from tasks.errors import SettingsError
from tasks.settings import EngineSettings, OptimizeSettings, RunSettings
from tasks.settings.cost import AcceleratorSettings, AssumptionSettings, CostSettings
from tasks.settings.deployment import VARIABLE, DeploymentSettings, PodSettings, Role

_GB = 1e9


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

    def hour(self, role: Role) -> tuple[str, float]:
        """Return what one pod is paid as, and its price for an hour."""
        if role not in self.pods:
            return "CPU pods", self.costs.cpu_pod_hour
        pod, price = self.pods[role], self.gpu(role).price
        if pod.interruptible:
            return "GPUs, spot", pod.gpus * price.spot
        return "GPUs, on demand", pod.gpus * price.on_demand


def pool_of(
    run: RunSettings, gpus: int, accelerator: str | None, costs: CostSettings, deployment: DeploymentSettings | None
) -> Pool:
    """Return the pods of every role on a number of GPUs.

    Without a deployment a pod has the GPUs that its step uses; generation and evaluation run on spot nodes, training
    does not, as in configs/deployments. ``accelerator`` is a row of the prices for all roles; by default that of the
    deployment, or the first row.

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


@dataclass(frozen=True)
class EngineRates:
    """Seconds of one engine on all of its GPUs."""

    refills: bool
    """True if a waiting response takes the place of a complete one."""
    rows: int
    """Largest number of responses that are decoded at once."""
    step: float
    """Seconds of a decode step, for reading the weights once."""
    row: float
    """Seconds of a row in a decode step: its keys and values are read, its operations are computed."""

    def steps(self, responses: float, mean: float, longest: int) -> float:
        """Return the decode steps of one call for responses of ``mean`` tokens, the longest of which has ``longest``.

        An engine that refills gives the place of a finished response to the next one, so the call waits for its
        longest response once, at the end; another one decodes batches, each as long as its longest response.
        """
        if responses <= self.rows:
            return longest if responses else 0.0
        if self.refills:
            return responses * mean / self.rows + longest - mean
        return float(-(-responses // self.rows) * longest)

    def seconds(self, responses: int, mean: float, longest: int) -> float:
        """Return the seconds of one call."""
        return self.step * self.steps(responses, mean, longest) + self.row * responses * mean


@dataclass(frozen=True)
class Rates:
    """Mean amounts of a run and the seconds that they take, on the GPUs that the run is planned for."""

    each: AssumptionSettings
    """Amounts and seconds of what does not follow from a data sheet."""
    measured: frozenset[str]
    """Names of those in ``each`` that a run showed; without any, nothing here was measured."""
    rollout: EngineRates
    evaluate: EngineRates
    trained_token: float
    """Seconds of a token in an update, forward and backward."""
    scored_token: float
    """Seconds of a token whose log-probability is computed before the first update of a stage."""
    base: float = 0.0
    """Seconds to make the tiny base policy."""
    rest: float = 0.0
    """Seconds of a stage that are in no other row."""


def passes(settings: OptimizeSettings) -> tuple[int, int]:
    """Return how often a response is trained on, and how often its log-probabilities are computed besides."""
    objective = settings.objective
    trained = objective.schedule.updates_per_batch
    scored = 1 + objective.needs_reference + objective.needs_proximal
    return trained, scored + (trained if objective.gate.interval is None else 0)


def assumed_rates(run: RunSettings, shape: Shape, pool: Pool) -> Rates:
    """Return rates by data sheets and assumptions.

    An update takes 6 operations per weight and token: 2 forward and 4 backward, of which frozen weights under adapters
    need 2; layers that are computed again for the backward pass take 2 more. Attention's own operations are left out.

    Raises:
        SettingsError: the policy does not fit into the memory of an engine's GPUs.
    """
    trainer, backend = pool.gpu("train"), run.optimize.backend
    mean = pool.costs.assumptions.response_share * run.rollout.max_new_tokens
    speed = pool.training_gpus * _flops(trainer, backend.dtype) * trainer.throughput.training_flops
    operations = (4 if run.optimize.lora else 6) + (2 if backend.gradient_checkpointing else 0)
    longest = max(one.evaluation.max_new_tokens for one in run.measures)
    return Rates(
        each=pool.costs.assumptions,
        measured=frozenset(),
        rollout=_engine(run.rollout.engine, "rollout", shape, pool, mean),
        evaluate=_engine(run.evaluation_engine, "evaluate", shape, pool, min(mean, longest)),
        trained_token=operations * shape.active_parameters / speed,
        scored_token=2 * shape.active_parameters / speed,
    )


def _engine(settings: EngineSettings, role: Role, shape: Shape, pool: Pool, mean: float) -> EngineRates:
    """Return the rates of an engine whose responses have ``mean`` tokens.

    Decoding reads all weights and the KV cache at a share of the memory's bandwidth, and computes 2 operations per
    token and active weight at a share of the peak. Reading the prompts is below 1 % of it, and left out.
    """
    gpu, gpus, weights = pool.gpu(role), settings.tensor_parallel, BYTES[settings.dtype] * shape.parameters
    cached, prompt = shape.cache_bytes(settings.dtype), pool.costs.assumptions.prompt_tokens
    room = settings.memory_share * gpus * gpu.memory_gb * _GB - weights
    rows = min(settings.batch_size, int(room / (cached * (prompt + mean))))
    if rows < 1:
        raise SettingsError(
            f"{role}.engine.tensor_parallel: {gpus} GPUs of {gpu.memory_gb:g} GB do not hold {weights / _GB:.1f} GB "
            "of weights and one response's keys and values; allowed: more GPUs, or a larger accelerator"
        )
    bandwidth = gpus * gpu.bandwidth_gb_per_second * _GB * gpu.throughput.decoding_bandwidth
    peak, operations = gpus * _flops(gpu, settings.dtype), 2 * shape.active_parameters
    return EngineRates(
        refills=settings.refills,
        rows=rows,
        step=weights / bandwidth,
        row=cached * (prompt + mean / 2) / bandwidth + operations / (peak * gpu.throughput.decoding_flops),
    )


def _flops(gpu: AcceleratorSettings, dtype: str) -> float:
    return 1e12 * (gpu.bfloat16_tflops if dtype == "bfloat16" else gpu.float32_tflops)
