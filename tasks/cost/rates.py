"""What the smallest units of work take, in seconds: from data sheets and assumptions, or from a run (``measured``)."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from tasks.cost.shapes import BYTES, Shape
from tasks.errors import SettingsError
from tasks.settings import EngineSettings, OptimizeSettings, RunSettings
from tasks.settings.cost import AcceleratorSettings, AssumptionSettings
from tasks.settings.deployment import Role

_GB = 1e9


@dataclass(frozen=True)
class Lengths:
    """Mean response tokens of a policy, over the updates that made it."""

    points: tuple[tuple[int, float], ...]
    """Updates and tokens, ascending: linear in between, constant outside."""

    def at(self, updates: int, longest: int) -> float:
        """After so many updates, where responses end at ``longest`` tokens."""
        after = bisect_right([known for known, _ in self.points], updates)
        if after == 0 or after == len(self.points):
            tokens = self.points[min(after, len(self.points) - 1)][1]
        else:
            (low, start), (high, end) = self.points[after - 1], self.points[after]
            tokens = start + (end - start) * (updates - low) / (high - low)
        return min(tokens, float(longest))


@dataclass(frozen=True)
class EngineRates:
    """Of one engine, on all of its GPUs."""

    kind: str
    rows: int
    """Most responses that are decoded at once."""
    step: float
    """A decode step, whatever its rows: the weights are read once."""
    row: float
    """A row of a decode step, which is a token: its keys and values are read, its operations are done."""
    prompt_token: float = 0.0
    """A token of a prompt, which is read once for all of its responses."""

    def steps(self, responses: int, mean: float, longest: int) -> float:
        """Decode steps of one call.

        Rows that end make room at once (vLLM), so that the longest response is waited for once, at the end; or a batch
        ends with its longest response (transformers).
        """
        if responses <= self.rows:
            return longest if responses else 0.0
        if self.kind == "vllm":
            return responses * mean / self.rows + longest - mean
        return float(-(-responses // self.rows) * longest)

    def seconds(self, responses: int, mean: float, longest: int, prompt_tokens: float) -> float:
        """One call.

        Args:
            responses: asked for at once.
            mean: their tokens on average.
            longest: tokens of the longest one.
            prompt_tokens: of all distinct prompts.
        """
        rows = responses * mean
        return self.step * self.steps(responses, mean, longest) + self.row * rows + self.prompt_token * prompt_tokens


@dataclass(frozen=True)
class Rates:
    """Seconds of everything that a run consists of, for the GPUs that it is planned on."""

    rollout: EngineRates
    evaluate: EngineRates
    lengths: Lengths
    prompt_tokens: float
    """Of a prompt; 0 where a response's rates include its prompt."""
    update: float
    """An update, besides its tokens."""
    trained_token: float
    """A token of an update, forward and backward."""
    scored_token: float
    """A token of a stage before its first update: log-probabilities of the behavior policy, and of others."""
    answer: float
    """In one worker of the verifier."""
    verifier: float
    """The start of its workers."""
    switch: float
    """A refresh in one task, besides generation."""
    engine: float
    """The start of an engine."""
    trainer: float
    base: float
    """Making the tiny base policy."""
    reading: float = 0.0
    """Inputs of a step that starts neither engine nor trainer."""
    start: float = 0.0
    """A process, or a pod, until its first step begins."""
    after: Mapping[str, float] = field(default_factory=dict)
    """What a step takes besides, by kind of step."""
    transferred_byte: float = 0.0
    """Between a pod and the store; 0 where loading and the rest include it."""
    hub_byte: float = 0.0
    bytes_per_token: float = 8.0
    """Of stored rollouts."""
    bytes_per_shard: float = 0.0


def passes(settings: OptimizeSettings) -> tuple[int, int]:
    """How often a response is trained on, and how often its log-probabilities are computed besides."""
    objective = settings.objective
    trained = objective.schedule.updates_per_batch
    scored = 1 + objective.needs_reference + objective.needs_proximal
    return trained, scored + (trained if objective.gate.bounds != "static" else 0)


def assumed_rates(
    run: RunSettings,
    shape: Shape,
    gpus: Mapping[Role, AcceleratorSettings],
    training_gpus: int,
    assumed: AssumptionSettings,
) -> Rates:
    """Rates by data sheets.

    Decoding reads all weights and the KV cache at a share of the memory's bandwidth, and computes 2 operations per
    token and weight that it reaches, at a share of the peak. Training computes 6, and 2 more where layers are computed
    again; with adapters the frozen weights have no gradients, which leaves 4. Attention's own operations are left out.

    Raises:
        SettingsError: the policy does not fit into the memory of an engine's GPUs.
    """
    lengths = Lengths(((0, assumed.response_share * run.rollout.max_new_tokens),))
    backend = run.optimize.backend
    trainer = gpus["train"]
    speed = _flops(trainer, backend.dtype) * trainer.throughput.training_flops * training_gpus
    operations = (4 if run.optimize.lora else 6) + (2 if backend.gradient_checkpointing else 0)

    def engine(role: Role, settings: EngineSettings, longest: int) -> EngineRates:
        mean = lengths.at(0, longest)
        return _engine_rates(f"{role}.engine", settings, shape, gpus[role], assumed.prompt_tokens, mean)

    return Rates(
        rollout=engine("rollout", run.rollout.engine, run.rollout.max_new_tokens),
        evaluate=engine("evaluate", run.evaluation_engine, max(one.evaluation.max_new_tokens for one in run.measures)),
        lengths=lengths,
        prompt_tokens=assumed.prompt_tokens,
        update=assumed.update_seconds,
        trained_token=operations * shape.active_parameters / speed,
        scored_token=2 * shape.active_parameters / speed,
        answer=assumed.answer_seconds,
        verifier=assumed.verifier_start_seconds,
        switch=assumed.switch_seconds,
        engine=assumed.engine_start_seconds,
        trainer=assumed.trainer_start_seconds,
        base=0.0,
        start=assumed.pod_start_seconds,
        transferred_byte=1 / (assumed.store_gb_per_second * _GB),
        hub_byte=1 / (assumed.hub_gb_per_second * _GB),
        bytes_per_token=assumed.bytes_per_token,
    )


def _engine_rates(
    named: str, settings: EngineSettings, shape: Shape, gpu: AcceleratorSettings, prompt: float, mean: float
) -> EngineRates:
    gpus, weights = settings.tensor_parallel, BYTES[settings.dtype] * shape.parameters
    cached = shape.cache_bytes(settings.dtype)
    room = settings.gpu_memory_share * gpus * gpu.memory_gb * _GB - weights
    rows = min(settings.batch_size, int(room / (cached * (prompt + mean))))
    if rows < 1:
        raise SettingsError(
            f"{named}.tensor_parallel: {gpus} GPUs of {gpu.memory_gb:g} GB do not hold {weights / _GB:.1f} GB "
            "of weights and one response's keys and values; allowed: more GPUs, or a larger accelerator"
        )
    bandwidth = gpus * gpu.bandwidth_gb_per_second * _GB * gpu.throughput.decoding_bandwidth
    peak = gpus * _flops(gpu, settings.dtype)
    context = prompt + mean / 2
    return EngineRates(
        kind=settings.kind,
        rows=rows,
        step=weights / bandwidth,
        row=cached * context / bandwidth + 2 * shape.active_parameters / (peak * gpu.throughput.decoding_flops),
        prompt_token=2 * shape.active_parameters / (peak * gpu.throughput.training_flops),
    )


def _flops(gpu: AcceleratorSettings, dtype: str) -> float:
    return 1e12 * (gpu.bfloat16_tflops if dtype == "bfloat16" else gpu.float32_tflops)
