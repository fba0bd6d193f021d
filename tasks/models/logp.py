"""Compute log-probabilities and entropies of given tokens without holding the logits of a whole batch.

Legend of shapes: N tokens, C tokens of a chunk, E hidden width, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CPU_LOGITS = 2**24
"""Largest number of logits of a chunk on a CPU, 64 MiB: more would take memory, fewer would take time."""


class _ChunkedLogp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_NE: Tensor, weight_VE: Tensor, target_N: Tensor, chunk: int, cap: float | None
    ) -> tuple[Tensor, Tensor]:
        logp_N = torch.empty(len(target_N), dtype=torch.float32, device=hidden_NE.device)
        entropy_N = torch.empty_like(logp_N)
        for part in _parts(len(target_N), chunk):
            logp_CV = torch.log_softmax(_logits(hidden_NE[part], weight_VE, cap), dim=1)
            logp_N[part] = logp_CV.gather(1, target_N[part, None]).squeeze(1)
            entropy_N[part] = -logp_CV.exp().mul_(logp_CV).sum(1)
            del logp_CV  # before the next chunk's is made
        ctx.save_for_backward(hidden_NE, weight_VE, target_N)
        ctx.chunk, ctx.cap = chunk, cap
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp_N: Tensor, _: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        hidden_NE, weight_VE, target_N = ctx.saved_tensors
        grad_hidden_NE = torch.empty_like(hidden_NE)
        # None where adapters alone are trained.
        grad_weight_VE = torch.zeros_like(weight_VE) if ctx.needs_input_grad[1] else None
        for part in _parts(len(target_N), ctx.chunk):
            logits_CV = _logits(hidden_NE[part], weight_VE, ctx.cap)
            grad_logits_CV = torch.log_softmax(logits_CV, dim=1).exp_().neg_()
            grad_logits_CV.scatter_add_(1, target_N[part, None], torch.ones_like(grad_logits_CV[:, :1]))
            grad_logits_CV.mul_(grad_logp_N[part, None])
            if ctx.cap is not None:
                grad_logits_CV.mul_(1 - (logits_CV / ctx.cap) ** 2)
            del logits_CV
            grad_logits_CV = grad_logits_CV.to(weight_VE.dtype)
            grad_hidden_NE[part] = grad_logits_CV @ weight_VE
            if grad_weight_VE is not None:
                grad_weight_VE.addmm_(grad_logits_CV.T, hidden_NE[part])
            del grad_logits_CV
        return grad_hidden_NE, grad_weight_VE, None, None, None


def _parts(count: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]


def _logits(hidden_CE: Tensor, weight_VE: Tensor, cap: float | None) -> Tensor:
    logits_CV = (hidden_CE @ weight_VE.T).float()
    return logits_CV if cap is None else logits_CV.div_(cap).tanh_().mul_(cap)


def chunked_logp(
    hidden_NE: Tensor, weight_VE: Tensor, target_N: Tensor, chunk: int, cap: float | None = None
) -> tuple[Tensor, Tensor]:
    """Compute log-probabilities of target tokens and entropies of their distributions, in fp32.

    The backward pass computes the logits again, chunk by chunk, so that memory is chunk x V and not N x V. On a CPU a
    chunk has fewer tokens where the vocabulary is large. A cap bounds the logits: they are cap x tanh(logits / cap).

    Returns:
        logp_N, differentiable, and entropy_N, which is not.
    """
    if hidden_NE.device.type == "cpu":
        chunk = max(1, min(chunk, _CPU_LOGITS // len(weight_VE)))
    chunked: Callable[..., tuple[Tensor, Tensor]] = _ChunkedLogp.apply
    return chunked(hidden_NE, weight_VE, target_N, chunk, cap)
