"""An update over given rollouts in different ways, and the longest response whose update fits into memory.

Legend of shapes: P packed tokens, T response tokens, V vocabulary, B rows, L columns of padded tokens, E hidden size.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from tasks.models.scorer import MicroBatch, chunked_logp, pack
from tasks.train.backend import Backend
from tools.benchmarks.gpu.device import free
from tools.benchmarks.gpu.synthetic import Rollouts, make_backend, policy_gradient_loss, split_rows

LEARNING_RATE = 1e-6
_COARSE = 1.1
_SHORTEST = 256
Batch = TypeVar("Batch")


def packed_update(backend: Backend, rollouts: Rollouts, budget: int) -> None:
    """Make an update with packed micro-batches, as in the trainer."""
    _update(backend, rollouts, rollouts.micro_batches(budget), lambda batch: backend(batch)[0])


def whole_logits_update(backend: Backend, rollouts: Rollouts, budget: int) -> None:
    """Make an update with packed micro-batches, whose logits exist all at the same time, as with log_softmax."""
    _update(backend, rollouts, rollouts.micro_batches(budget), lambda batch: _whole_logits_logp(backend, batch))


def _update(backend: Backend, rollouts: Rollouts, batches: Sequence[Batch], logp: Callable[[Batch], Tensor]) -> None:
    """Make an update over micro-batches, whose log-probabilities a function returns."""
    for place, batch in enumerate(batches):
        backend.backward(policy_gradient_loss(logp(batch)), last=place == len(batches) - 1)
    backend.step(float(rollouts.tokens), LEARNING_RATE)


def _whole_logits_logp(backend: Backend, batch: MicroBatch) -> Tensor:
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
    """Make an update with micro-batches in the order of the rollouts, padded on the right; padding counts as tokens."""
    backend.model.set_attn_implementation("benchmark_padded")
    lengths = rollouts.lengths()
    device = backend.model.device

    def padded_logp(part: list[int]) -> Tensor:
        token_BL = torch.zeros(len(part), max(lengths[row] for row in part), dtype=torch.int64)
        response_BL = torch.zeros_like(token_BL, dtype=torch.bool)
        for line, row in enumerate(part):
            prompt, response = rollouts.prompts[row], rollouts.responses[row]
            token_BL[line, : lengths[row]] = torch.from_numpy(np.concatenate([prompt, response]))
            response_BL[line, len(prompt) : lengths[row]] = True
        token_BL, response_BL = token_BL.to(device), response_BL.to(device)
        hidden_BLE = backend.model.base_model(input_ids=token_BL, use_cache=False).last_hidden_state
        predictor_BL = response_BL.roll(-1, 1)
        logp_T, _ = chunked_logp(
            hidden_BLE[predictor_BL], backend.model.get_output_embeddings().weight, token_BL[response_BL], 1024
        )
        return logp_T

    parts = split_rows(range(len(lengths)), lambda part: max(lengths[row] for row in part) * len(part), budget)
    _update(backend, rollouts, parts, padded_logp)


def longest_that_fits(shape: str, device: torch.device, checkpointing: bool, whole: bool) -> int:
    """Return the largest number of response tokens whose whole update fits into memory, within a tenth."""
    backend = make_backend(shape, device, 1024, checkpointing)

    def fits(tokens: int) -> bool:
        prompt, response = np.zeros(64, np.int64), np.ones(tokens, np.int64)
        batch = pack([prompt], [response])
        try:
            logp_T = _whole_logits_logp(backend, batch) if whole else backend(batch)[0]
            backend.backward(policy_gradient_loss(logp_T), last=True)
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
    """Return the largest number that fits, within a tenth; 0 if 256 does not fit."""
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
