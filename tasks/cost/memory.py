"""What training holds on each of its GPUs, counted from sizes: a lower bound, as allocators and buffers take more."""

from dataclasses import asdict, dataclass

from tasks.cost.pool import Pool
from tasks.cost.shapes import BYTES, Shape
from tasks.errors import SettingsError
from tasks.settings import RunSettings

_FULL = BYTES["float32"]


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on one GPU at the beginning of a backward pass."""

    weights: float
    """Of the policy, and of the base policy where the objective needs it."""
    gradients: float
    moments: float
    """AdamW's, and the fp32 weights beside 16-bit ones."""
    activations: float
    """Of the largest micro-batch."""
    logits: float
    """Of a chunk, and the micro-batch's gradient of the output embedding."""

    @property
    def lasting(self) -> float:
        """What stays between updates."""
        return self.weights + self.gradients + self.moments

    @property
    def passing(self) -> float:
        """What an update's largest micro-batch adds."""
        return self.activations + self.logits

    @property
    def total(self) -> float:
        """Of all parts."""
        return self.lasting + self.passing

    def told(self, *parts: str) -> str:
        """Parts by their names, in GB; all of them without a name."""
        return ", ".join(f"{part} {getattr(self, part) / 1e9:.1f}" for part in parts or asdict(self))


def training_memory(run: RunSettings, shape: Shape, gpus: int) -> TrainingMemory:
    """Of a policy of this shape, trained by so many GPUs."""
    backend, lora = run.optimize.backend, run.optimize.lora
    trained = shape.adapter_parameters(lora.rank) if lora else shape.parameters
    copies = _FULL * trained if backend.dtype != "float32" else 0
    zero = backend.deepspeed_config.get("zero_optimization", {})
    by_weights, by_gradients, by_moments = (gpus if backend.zero_stage >= least else 1 for least in (3, 2, 1))
    # And with the moments the gradients, from ZeRO 2 on.
    offloaded = (zero.get("offload_optimizer") or {}).get("device", "none") != "none"
    tokens = micro_batch_tokens(run, gpus)
    reference = _FULL * shape.parameters if run.optimize.objective.needs_reference else 0
    chunk = _FULL * 2 * shape.vocabulary * min(tokens, run.optimize.logp_chunk_tokens)  # logits, and their log-softmax
    embedding = 0 if lora else BYTES[backend.dtype] * shape.vocabulary * shape.hidden
    return TrainingMemory(
        weights=BYTES[backend.dtype] * shape.parameters / by_weights + reference,
        gradients=0 if offloaded and backend.zero_stage >= 2 else _FULL * trained / by_gradients,
        moments=0 if offloaded else (2 * _FULL * trained + copies) / by_moments,
        activations=tokens * activation_bytes(run, shape),
        logits=chunk + embedding,
    )


def micro_batch_tokens(run: RunSettings, gpus: int) -> int:
    """Tokens of the largest micro-batch: its budget, or a response of full length, which is never split."""
    longest, each = run.rollout.max_new_tokens, -(-run.optimize.responses_per_update // gpus)
    return min(max(run.optimize.tokens_per_micro_batch, longest), each * longest)


def activation_bytes(run: RunSettings, shape: Shape) -> int:
    """What a token leaves for the backward pass, in all layers together.

    Counted for a decoder of RMS norms, grouped attention in a kernel that keeps no scores, and a gated linear unit.
    Norms of queries and keys, and biases, are not in it.
    """
    backend, width = run.optimize.backend, BYTES[run.optimize.backend.dtype]
    liger, lora = backend.liger, run.optimize.lora
    query, key_value = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    # Norms keep their input in fp32 and, unless they are frozen, what they made of it; linear layers keep their input.
    norm = (width if liger else _FULL + (0 if lora else width)) * shape.hidden + _FULL
    attention = width * 2 * (query + key_value) + _FULL * shape.heads
    unit = width * (3 if liger else 4) * shape.intermediate
    layer = 2 * (norm + width * shape.hidden) + attention + unit
    last = norm + width * shape.hidden
    if backend.gradient_checkpointing:
        return shape.layers * width * shape.hidden + layer + last
    return shape.layers * layer + last


def check_training_fits(run: RunSettings, shape: Shape, pool: Pool) -> TrainingMemory:
    """What training holds on each of the pool's GPUs.

    Where generation and training take turns on a GPU, vLLM's share is to be free beside what stays between updates.

    Raises:
        SettingsError: it is more than they have.
    """
    gpus, memory = pool.layout.training_gpus, pool.gpu("train").memory_gb * 1e9
    needed, there = training_memory(run, shape, gpus), f"each of {gpus} GPUs of {memory / 1e9:g} GB"
    if needed.lasting > memory:
        raise SettingsError(
            f"optimize.backend: weights, gradients and moments take {needed.lasting / 1e9:.1f} GB on {there}; "
            "allowed: more processes, a higher ZeRO stage, optimize.lora, or a larger accelerator"
        )
    engine = run.rollout.engine
    beside = engine.gpu_memory_share if run.alternates and engine.kind == "vllm" else 0.0
    if needed.lasting + beside * memory > memory:
        raise SettingsError(
            f"rollout.engine.gpu_memory_share: {beside:g} beside the {needed.lasting / 1e9:.1f} GB that training keeps "
            f"on {there}; allowed: below {1 - needed.lasting / memory:.2f}, or as for training alone"
        )
    if needed.total > memory:
        tokens = micro_batch_tokens(run, gpus)
        again = "" if run.optimize.backend.gradient_checkpointing else "optimize.backend.gradient_checkpointing, "
        raise SettingsError(
            f"optimize.tokens_per_micro_batch: with micro-batches of {tokens} tokens training takes "
            f"{needed.total / 1e9:.1f} GB on {there} ({needed.told()}); allowed: {again}fewer tokens, but not fewer "
            f"than rollout.max_new_tokens {run.rollout.max_new_tokens}, or a larger accelerator"
        )
    return needed
