"""An update over given rollouts, in different ways, and the longest response that one can be made of."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from tasks.models.scorer import MicroBatch, chunked_logp, pack
from tasks.train.backends.backend import Backend
from tools.benchmarks.gpu.device import free
from tools.benchmarks.gpu.made import Rollouts, loss_of, make_backend

LEARNING_RATE = 1e-6
_COARSE = 1.1
_SHORTEST = 256


def packed_update(backend: Backend, rollouts: Rollouts, budget: int) -> None:
    """Update packed micro-batches, as the trainer does it."""
    batches = rollouts.micro_batches(budget)
    for place, batch in enumerate(batches):
        logp_T, _ = backend(batch)
        backend.backward(loss_of(logp_T), last=place == len(batches) - 1)
    backend.step(float(rollouts.tokens), LEARNING_RATE)


def whole_logits_update(backend: Backend, rollouts: Rollouts, budget: int) -> None:
    """Packed, but every micro-batch's logits exist at once, as a plain log_softmax has it."""
    batches = rollouts.micro_batches(budget)
    for place, batch in enumerate(batches):
        backend.backward(loss_of(_whole_logits(backend, batch)), last=place == len(batches) - 1)
    backend.step(float(rollouts.tokens), LEARNING_RATE)


def _whole_logits(backend: Backend, batch: MicroBatch) -> Tensor:
    moved = batch.to(backend.model.device)
    logits_PV: Tensor = backend.model(
        input_ids=moved.token_P[None],
        position_ids=moved.layout.position_P[None],
        use_cache=False,
        packed_layout=moved.layout,
    ).logits[0]
    logp_TV = logits_PV[moved.predictor_T].float().log_softmax(1)
    return logp_TV.gather(1, moved.target_T[:, None]).squeeze(1)


def _padded_attention(
    _module: object, query: Tensor, key: Tensor, value: Tensor, _mask: object, *, scaling: float, **_: object
) -> tuple[Tensor, None]:
    out = scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    return out.transpose(1, 2), None


AttentionInterface.register("benchmark_padded", _padded_attention)


def padded_update(backend: Backend, rollouts: Rollouts, budget: int) -> None:
    """Rectangles padded on the right, in the order of the rollouts, of at most the budget's tokens with padding."""
    backend.model.set_attn_implementation("benchmark_padded")
    parts: list[list[int]] = [[]]
    lengths = rollouts.sequences()
    for row, length in enumerate(lengths):
        if parts[-1] and max(length, *(lengths[one] for one in parts[-1])) * (len(parts[-1]) + 1) > budget:
            parts.append([])
        parts[-1].append(row)
    place = backend.model.device
    for number, part in enumerate(parts):
        token_BL = torch.zeros(len(part), max(lengths[row] for row in part), dtype=torch.int64)
        response_BL = torch.zeros_like(token_BL, dtype=torch.bool)
        for line, row in enumerate(part):
            prompt, response = rollouts.prompts[row], rollouts.responses[row]
            token_BL[line, : lengths[row]] = torch.from_numpy(np.concatenate([prompt, response]))
            response_BL[line, len(prompt) : lengths[row]] = True
        token_BL, response_BL = token_BL.to(place), response_BL.to(place)
        hidden_BLE = backend.model.base_model(input_ids=token_BL, use_cache=False).last_hidden_state
        predictor_BL = response_BL.roll(-1, 1)
        logp_T, _ = chunked_logp(
            hidden_BLE[predictor_BL], backend.model.get_output_embeddings().weight, token_BL[response_BL], 1024
        )
        backend.backward(loss_of(logp_T), last=number == len(parts) - 1)
    backend.step(float(rollouts.tokens), LEARNING_RATE)


def longest_that_fits(shape: str, device: torch.device, checkpointing: bool, whole: bool) -> int:
    """Response tokens whose forward and backward pass fit, with weights and moments in place; within a tenth."""
    backend = make_backend(shape, device, 1024, checkpointing)

    def fits(tokens: int) -> bool:
        prompt, response = np.zeros(64, np.int64), np.ones(tokens, np.int64)
        batch = pack([prompt], [response])
        try:
            logp_T = _whole_logits(backend, batch) if whole else backend(batch)[0]
            backend.backward(loss_of(logp_T), last=True)
            backend.step(float(tokens), LEARNING_RATE)
        except torch.OutOfMemoryError:
            return False
        finally:
            for parameter in backend.model.parameters():
                parameter.grad = None
            free()
        return True

    return largest(fits)


def largest(fits: Callable[[int], bool]) -> int:
    """The largest number that fits, within a tenth; 0 when not even 256 does."""
    low = _SHORTEST
    if not fits(low):
        return 0
    while fits(low * 2):
        low *= 2
    high = low * 2
    while high / low > _COARSE:
        middle = int((low * high) ** 0.5)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
