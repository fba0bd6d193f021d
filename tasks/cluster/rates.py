"""Seconds of the units of work of a run, from data sheets and assumptions; ``measured`` takes them from a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.cluster.shapes import BYTES, Shape
from tasks.errors import SettingsError
from tasks.settings import EngineSettings, OptimizeSettings, RunSettings
from tasks.settings.cost import AcceleratorSettings, AssumptionSettings
from tasks.settings.deployment import Role

_GB = 1e9


@dataclass(frozen=True)
class EngineRates:
    """Seconds of one engine on all of its GPUs."""

    kind: str
    rows: int
    """Largest number of responses that are decoded at once."""
    step: float
    """Seconds of a decode step, for reading the weights once."""
    row: float
    """Seconds of a row in a decode step: its keys and values are read, its operations are computed."""
    prompt_token: float = 0.0
    """Seconds of a prompt token, which is read once for all responses to the prompt."""

    def steps(self, responses: int, mean: float, longest: int) -> float:
        """Return the decode steps of one call.

        An engine that refills gives the place of a finished response to the next one, so the call waits for its
        longest response once, at the end; another one decodes batches, each as long as its longest response.
        """
        if responses <= self.rows:
            return longest if responses else 0.0
        if EngineSettings.kinds()[self.kind].refills:
            return responses * mean / self.rows + longest - mean
        return float(-(-responses // self.rows) * longest)

    def seconds(self, responses: int, mean: float, longest: int, prompt_tokens: float) -> float:
        """Return the seconds of one call.

        Args:
            responses: the number of responses of the call.
            mean: tokens of a response on average.
            longest: tokens of the longest response.
            prompt_tokens: tokens of all distinct prompts together.
        """
        decoding = self.step * self.steps(responses, mean, longest) + self.row * responses * mean
        return decoding + self.prompt_token * prompt_tokens


@dataclass(frozen=True)
class Rates:
    """Mean amounts of a run and the seconds that they take, for the GPUs that the run is planned on."""

    rollout: EngineRates
    evaluate: EngineRates
    response_tokens: float
    prompt_tokens: float
    """Tokens of a prompt; 0 if the seconds of a response include its prompt."""
    trained_token: float
    """Seconds of a token in an update, forward and backward."""
    scored_token: float
    """Seconds of a token whose log-probability is computed before the first update of a stage."""
    update: float
    """Seconds of an update besides its tokens."""
    answer: float
    """Seconds of an answer in one worker of the verifier."""
    verifier: float
    """Seconds to start the workers."""
    switch: float
    """Seconds of a refresh inside one task, besides generation."""
    engine: float
    """Seconds to start an engine."""
    trainer: float
    """Seconds to start the trainer."""
    start: float
    """Seconds until the first step of a pod, or of a process, begins."""
    base: float = 0.0
    """Seconds to make the tiny base policy."""
    rest: float = 0.0
    """Seconds of a step that are in no other row."""
    store_byte: float = 0.0
    """Seconds of a byte between a pod and the store; 0 if the seconds above include it."""
    hub_byte: float = 0.0
    """Seconds of a byte from the model hub."""
    bytes_per_token: float = 8.0
    """Stored bytes of a response token."""


def passes(settings: OptimizeSettings) -> tuple[int, int]:
    """Return how often a response is trained on, and how often its log-probabilities are computed besides."""
    objective = settings.objective
    trained = objective.schedule.updates_per_batch
    scored = 1 + objective.needs_reference + objective.needs_proximal
    return trained, scored + (trained if objective.gate.interval is None else 0)


def operations_per_weight(settings: OptimizeSettings) -> int:
    """Return the operations of an update per weight and token.

    A forward pass takes 2 and a backward pass 4, of which frozen weights under adapters need 2; layers that are
    computed again for the backward pass take 2 more.
    """
    return (4 if settings.lora else 6) + (2 if settings.backend.gradient_checkpointing else 0)


def assumed_rates(
    run: RunSettings,
    shape: Shape,
    gpus: Mapping[Role, AcceleratorSettings],
    training_gpus: int,
    assumed: AssumptionSettings,
) -> Rates:
    """Return rates by data sheets and assumptions.

    Decoding reads all weights and the KV cache at a share of the memory's bandwidth, and computes 2 operations per
    token and active weight at a share of the peak. Attention's own operations are left out.

    Raises:
        SettingsError: the policy does not fit into the memory of an engine's GPUs.
    """
    mean = assumed.response_share * run.rollout.max_new_tokens
    trainer = gpus["train"]
    speed = training_gpus * _flops(trainer, run.optimize.backend.dtype) * trainer.throughput.training_flops
    longest = max(one.evaluation.max_new_tokens for one in run.measures)

    def engine(role: Role, settings: EngineSettings, most: int) -> EngineRates:
        return _engine_rates(role, settings, shape, gpus[role], assumed.prompt_tokens, min(mean, most))

    return Rates(
        rollout=engine("rollout", run.rollout.engine, run.rollout.max_new_tokens),
        evaluate=engine("evaluate", run.evaluation_engine, longest),
        response_tokens=mean,
        prompt_tokens=assumed.prompt_tokens,
        trained_token=operations_per_weight(run.optimize) * shape.active_parameters / speed,
        scored_token=2 * shape.active_parameters / speed,
        update=assumed.update_seconds,
        answer=assumed.answer_seconds,
        verifier=assumed.verifier_start_seconds,
        switch=assumed.switch_seconds,
        engine=assumed.engine_start_seconds,
        trainer=assumed.trainer_start_seconds,
        start=assumed.pod_start_seconds,
        store_byte=1 / (assumed.store_gb_per_second * _GB),
        hub_byte=1 / (assumed.hub_gb_per_second * _GB),
        bytes_per_token=assumed.bytes_per_token,
    )


def _engine_rates(
    role: Role, settings: EngineSettings, shape: Shape, gpu: AcceleratorSettings, prompt: float, mean: float
) -> EngineRates:
    gpus, weights = settings.tensor_parallel, BYTES[settings.dtype] * shape.parameters
    cached = shape.cache_bytes(settings.dtype)
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
        kind=settings.kind,
        rows=rows,
        step=weights / bandwidth,
        row=cached * (prompt + mean / 2) / bandwidth + operations / (peak * gpu.throughput.decoding_flops),
        prompt_token=operations / (peak * gpu.throughput.training_flops),
    )


def _flops(gpu: AcceleratorSettings, dtype: str) -> float:
    return 1e12 * (gpu.bfloat16_tflops if dtype == "bfloat16" else gpu.float32_tflops)
