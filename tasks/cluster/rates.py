"""The GPUs of a plan, and the seconds of units of work on them, from data sheets and assumptions."""

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
    """GPUs of a cluster, and the pods that use them; without GPUs, one process on this machine."""

    gpus: int
    pods: Mapping[Role, PodSettings]
    """Pods that use GPUs, by role, with their accelerators. The pod of training stands for all of its nodes."""
    training_gpus: int
    """Number of GPUs that train one policy."""
    most_pods: int
    """Largest number of pods that run at the same time."""
    costs: CostSettings

    def gpu(self, role: Role) -> AcceleratorSettings:
        """Return the accelerator of a role."""
        return self.costs.accelerator(self.pods[role].accelerator)

    def hourly_price(self, role: Role) -> float:
        """Return the price of one pod with GPUs per hour."""
        pod, price = self.pods[role], self.gpu(role).price
        return pod.gpus * (price.spot if pod.interruptible else price.on_demand)


def used_gpus(run: RunSettings) -> dict[Role, tuple[str, int]]:
    """Return the number of GPUs that the step of each role uses, after the name of the setting that says so."""
    return {
        "rollout": ("rollout.engine.tensor_parallel", run.rollout.engine.tensor_parallel),
        "evaluate": ("evaluate.engine.tensor_parallel", run.evaluation_engine.tensor_parallel),
        "train": ("optimize.backend.processes", run.optimize.backend.processes),
    }


def pool_of(
    run: RunSettings, gpus: int, accelerator: str | None, costs: CostSettings, deployment: DeploymentSettings | None
) -> Pool:
    """Return the pods of every role on a number of GPUs; for 0, the process on this machine.

    Without a deployment, a pod has the GPUs that its step uses, as many run at once as the GPUs allow, generation and
    evaluation run on spot nodes, and training runs on demand. ``accelerator`` is the row of the prices for all
    roles; None means that of the deployment, or the first row.

    Raises:
        SettingsError: a pod has too few GPUs for its step, or the cluster has too few for a pod.
    """
    if gpus == 0:
        return Pool(0, {}, run.optimize.backend.processes, 1, costs)
    settings, pods = deployment or DeploymentSettings(), dict[Role, PodSettings]()
    for role, (setting, used) in used_gpus(run).items():
        pod = settings.pods[role] if deployment else PodSettings(gpus=used, interruptible=role != "train")
        if pod.gpus < used:
            raise SettingsError(
                f"{VARIABLE}: pods.{role}.gpus: {pod.gpus} with {setting} {used}; "
                f"allowed: {used} or more GPUs in that pod"
            )
        total = pod.gpus * (settings.train_nodes if role == "train" else 1)
        if gpus < total:
            raise SettingsError(
                f"gpus: {gpus} with {setting} {used}, for which a pod has {total} GPUs; allowed: {total} or more"
            )
        kind = accelerator or pod.accelerator or next(iter(costs.accelerators))
        pods[role] = pod.model_copy(update={"gpus": total, "accelerator": kind})
    most = deployment.max_parallelism if deployment else gpus
    return Pool(gpus, pods, settings.train_nodes * run.optimize.backend.processes, most, costs)


@dataclass(frozen=True)
class EngineRates:
    """Seconds of units of work of one engine on all of its GPUs."""

    refills: bool
    """If True, a waiting response takes the slot of a complete one (continuous batching)."""
    rows: int
    """Largest number of responses in a decode step."""
    step: float
    """Seconds of a decode step, for reading the weights once."""
    row: float
    """Seconds of a row in a decode step, for reading its keys and values and for its operations."""

    def steps(self, responses: float, mean: float, longest: int) -> float:
        """Return the decode steps of one call, whose responses have ``mean`` tokens, and the longest ``longest``.

        An engine that refills its slots waits for the longest response once, at the end of the call. Another engine
        decodes batches, each of which takes as many steps as its longest response has tokens.
        """
        if responses <= self.rows:
            return longest if responses else 0.0
        if self.refills:
            return responses * mean / self.rows + longest - mean
        return float(-(-responses // self.rows) * longest)

    def seconds(self, responses: float, mean: float, longest: int) -> float:
        """Return the seconds of one call."""
        return self.step * self.steps(responses, mean, longest) + self.row * responses * mean


@dataclass(frozen=True)
class Rates:
    """Mean amounts of work of a run, and the seconds of units of work on the planned GPUs."""

    amounts: AssumptionSettings
    """Amounts and seconds that do not follow from a data sheet."""
    measured: frozenset[str]
    """Names of the fields of ``amounts`` that were measured in a run; empty if no rate was measured."""
    rollout: EngineRates
    evaluate: EngineRates
    trained_token: float
    """Seconds of a token in an update, forward and backward."""
    scored_token: float
    """Seconds of a token in a forward pass that computes log-probabilities."""
    base: float = 0.0
    """Seconds to make the tiny base policy."""
    rest: float = 0.0
    """Seconds of a stage outside of all other rows of the ledger."""


def passes(settings: OptimizeSettings) -> tuple[int, int]:
    """Return the number of training passes over a response, and of other passes that compute log-probabilities."""
    objective = settings.objective
    trained = objective.schedule.updates_per_batch
    scored = 1 + objective.needs_reference + objective.needs_proximal
    return trained, scored + (trained if objective.gate.interval is None else 0)


def assumed_rates(run: RunSettings, shape: Shape, pool: Pool, generates: Role = "rollout") -> Rates:
    """Return rates from data sheets and assumptions; the pods of the role ``generates`` generate for training.

    An update takes 6 operations per weight and token: 2 forward and 4 backward. Frozen weights with adapters take 2
    backward. Gradient checkpointing takes 2 more, for the second forward pass. The operations between queries, keys and
    values are left out.

    Raises:
        SettingsError: the policy does not fit into the memory of an engine's GPUs.
    """
    trainer, backend = pool.gpu("train"), run.optimize.backend
    mean = pool.costs.assumptions.response_share * run.rollout.max_new_tokens
    speed = pool.training_gpus * _flops(trainer, backend.dtype) * trainer.throughput.training_flops
    operations = (4 if run.optimize.lora else 6) + (2 if backend.gradient_checkpointing else 0)
    return Rates(
        amounts=pool.costs.assumptions,
        measured=frozenset(),
        rollout=_engine(run.rollout.engine, generates, shape, pool, mean),
        evaluate=_engine(run.evaluation_engine, "evaluate", shape, pool, mean),
        trained_token=operations * shape.active_parameters / speed,
        scored_token=2 * shape.active_parameters / speed,
    )


def _engine(settings: EngineSettings, role: Role, shape: Shape, pool: Pool, mean: float) -> EngineRates:
    """Return the rates of an engine whose responses have ``mean`` tokens.

    Decoding reads all weights and the KV cache at a share of the memory's bandwidth, and computes 2 operations per
    token and active weight at a share of the peak. Prefill is below 1 % of the time, and left out.
    """
    gpu, gpus, weights = pool.gpu(role), settings.tensor_parallel, BYTES[settings.dtype] * shape.parameters
    cached, prompt = shape.cache_bytes(settings.dtype), pool.costs.assumptions.prompt_tokens
    room = settings.memory_share * gpus * gpu.memory_gb * _GB - weights
    rows = min(settings.batch_size, int(room / (cached * (prompt + mean))))
    if rows < 1 and role != "train":  # A plan for Mu-GRPO does not fail where GRPO could not run.
        raise SettingsError(
            f"{role}.engine.tensor_parallel: {gpus} GPUs of {gpu.memory_gb:g} GB do not hold {weights / _GB:.1f} GB "
            "of weights and one response's keys and values; allowed: more GPUs, or a larger accelerator"
        )
    bandwidth = gpus * gpu.bandwidth_gb_per_second * _GB * gpu.throughput.decoding_bandwidth
    peak, operations = gpus * _flops(gpu, settings.dtype), 2 * shape.active_parameters
    return EngineRates(
        refills=settings.refills,
        rows=max(1, rows),
        step=weights / bandwidth,
        row=cached * (prompt + mean / 2) / bandwidth + operations / (peak * gpu.throughput.decoding_flops),
    )


def _flops(gpu: AcceleratorSettings, dtype: str) -> float:
    return 1e12 * (gpu.bfloat16_tflops if dtype == "bfloat16" else gpu.float32_tflops)
