"""GPU memory of training, computed from sizes. It is a lower bound: allocators and buffers need more."""

from tasks.cluster.rates import Pool
from tasks.cluster.shapes import BYTES, Shape
from tasks.errors import SettingsError
from tasks.settings import RunSettings

_FULL = BYTES["float32"]


def training_memory(run: RunSettings, shape: Shape, gpus: int) -> dict[str, float]:
    """Return the bytes on each of ``gpus`` GPUs at the start of a backward pass, by use.

    ``weights``, with those of the reference, ``gradients`` and ``moments``, which are AdamW's with the fp32 copy of
    16-bit weights, stay between updates. ``activations`` are those of the largest micro-batch. ``logits`` are those of
    a chunk, with the gradient of the output embedding.
    """
    backend, lora = run.optimize.backend, run.optimize.lora
    width, trained = BYTES[backend.dtype], shape.adapter_parameters(lora.rank) if lora else shape.parameters
    copies = _FULL * trained if backend.dtype != "float32" else 0
    zero = backend.deepspeed_config.get("zero_optimization", {})
    by_weights, by_gradients, by_moments = (gpus if backend.zero_stage >= least else 1 for least in (3, 2, 1))
    # From ZeRO 2 on, offloading the moments offloads the gradients too.
    offloaded = (zero.get("offload_optimizer") or {}).get("device", "none") != "none"
    tokens = micro_batch_tokens(run, gpus)
    reference = width * shape.parameters if run.optimize.objective.needs_reference else 0
    chunk = _FULL * 2 * shape.vocabulary * min(tokens, run.optimize.logp_chunk_tokens)  # logits and their log-softmax
    return {
        "weights": width * shape.parameters / by_weights + reference,
        "gradients": 0 if offloaded and backend.zero_stage >= 2 else _FULL * trained / by_gradients,
        "moments": 0 if offloaded else (2 * _FULL * trained + copies) / by_moments,
        "activations": tokens * activation_bytes(run, shape),
        "logits": chunk + (0 if lora else width * shape.vocabulary * shape.hidden),
    }


def lasting_bytes(memory: dict[str, float]) -> float:
    """Return the bytes that stay between updates."""
    return memory["weights"] + memory["gradients"] + memory["moments"]


def format_memory(memory: dict[str, float]) -> str:
    """Return the memory by use in GB, as text: ``weights 15.2, gradients 7.6, ...``."""
    return ", ".join(f"{use} {size / 1e9:.1f}" for use, size in memory.items())


def micro_batch_tokens(run: RunSettings, gpus: int) -> int:
    """Return the tokens of the largest micro-batch: its budget, or the longest response if that has more tokens."""
    longest, each = run.rollout.max_new_tokens, -(-run.optimize.responses_per_update // gpus)
    return min(max(run.optimize.tokens_per_micro_batch, longest), each * longest)


def activation_bytes(run: RunSettings, shape: Shape) -> int:
    """Return the bytes of activations per token that all layers keep for the backward pass.

    The decoder has RMS norms, grouped-query attention in a kernel that keeps no scores, and gated linear units. Norms
    of queries and keys, and biases, are left out.
    """
    backend, width = run.optimize.backend, BYTES[run.optimize.backend.dtype]
    query, key_value = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    # Norms keep their input in fp32 and, unless they are frozen, their output; linear layers keep their input.
    kept = width if backend.liger else _FULL + (0 if run.optimize.lora else width)
    norm = kept * shape.hidden + _FULL
    attention = width * 2 * (query + key_value) + _FULL * shape.heads
    unit = width * (3 if backend.liger else 4) * shape.intermediate
    layer = 2 * (norm + width * shape.hidden) + attention + unit
    last = norm + width * shape.hidden
    if backend.gradient_checkpointing:
        return shape.layers * width * shape.hidden + layer + last
    return shape.layers * layer + last


def check_training_fits(run: RunSettings, shape: Shape, pool: Pool) -> dict[str, float]:
    """Return the memory of training on each GPU of a pool.

    If generation and training alternate on a GPU, vLLM's share must fit beside the bytes that stay between updates.

    Raises:
        SettingsError: training needs more memory than a GPU has.
    """
    gpus, memory, engine = pool.training_gpus, pool.gpu("train").memory_gb * 1e9, run.rollout.engine
    needed, where = training_memory(run, shape, gpus), f"each of {gpus} GPUs of {memory / 1e9:g} GB"
    lasting, total = lasting_bytes(needed), sum(needed.values())
    if lasting > memory:
        raise SettingsError(
            f"optimize.backend: weights, gradients and moments take {lasting / 1e9:.1f} GB on {where}; "
            "allowed: more processes, a higher ZeRO stage, optimize.lora, or a larger accelerator"
        )
    share = engine.memory_share if run.alternates and engine.own_weights else 0.0
    if lasting + share * memory > memory:
        raise SettingsError(
            f"rollout.engine.gpu_memory_share: {share:g} beside the {lasting / 1e9:.1f} GB that training keeps "
            f"on {where}; allowed: below {1 - lasting / memory:.2f}, or as for training alone"
        )
    if total > memory:
        option = "" if run.optimize.backend.gradient_checkpointing else "optimize.backend.gradient_checkpointing, "
        raise SettingsError(
            f"optimize.tokens_per_micro_batch: with micro-batches of {micro_batch_tokens(run, gpus)} tokens training "
            f"takes {total / 1e9:.1f} GB on {where} ({format_memory(needed)}); allowed: {option}fewer tokens, but not "
            f"fewer than rollout.max_new_tokens {run.rollout.max_new_tokens}, or a larger accelerator"
        )
    return needed
