"""Score responses: compute the log-probabilities of their tokens without the logits of a whole batch.

Legend of shapes: P packed tokens, Q prompt tokens and T response tokens among them, C tokens of a chunk, R responses,
E hidden width, B sequences, L the longest of them, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel

from tasks.models.packing import PACKED_ATTENTION, PackedLayout

Ints = npt.NDArray[np.int64]
_CPU_LOGITS = 2**24
"""Largest number of logits of a chunk on a CPU, 64 MiB: a compromise between memory and time."""


@dataclass(frozen=True)
class MicroBatch:
    """Packed prompts and responses of one forward pass."""

    token_P: Tensor
    layout: PackedLayout
    predictor_T: Tensor  # index into P of the token that predicts a response token
    target_T: Tensor
    response_T: Tensor  # 0 for the tokens of the first response, 1 for those of the second, ...

    def to(self, device: torch.device) -> "MicroBatch":
        """Move the micro-batch to a device."""
        return MicroBatch(**{name: value.to(device) for name, value in vars(self).items()})


def pack(prompts: Sequence[npt.ArrayLike], responses: Sequence[npt.ArrayLike]) -> MicroBatch:
    """Pack prompts and their responses, each a row of token ids."""
    arrays = [[np.asarray(row) for row in rows] for rows in (prompts, responses)]
    tokens = [np.concatenate([np.zeros(0, np.int64), *rows]) for rows in arrays]
    lengths = [np.array([len(row) for row in rows], np.int64) for rows in arrays]
    return pack_flat(tokens[0], lengths[0], tokens[1], lengths[1])


def pack_flat(
    prompt_token_Q: npt.NDArray[Any], prompt_length_R: Ints, response_token_T: npt.NDArray[Any], length_R: Ints
) -> MicroBatch:
    """Pack R prompts and their responses.

    Token ids are those of one prompt, or response, after the other. ``prompt_length_R`` has the lengths of prompts,
    ``length_R`` those of responses. Without responses the batch has no response tokens, but can go through a model, as
    every process's batch must.
    """
    if not len(length_R):
        prompt_token_Q, prompt_length_R, length_R = np.zeros(1), np.ones(1, np.int64), np.zeros(1, np.int64)
    response_T = np.repeat(np.arange(len(length_R)), length_R)
    target_T = np.arange(len(response_T)) + prompt_length_R.cumsum()[response_T]
    token_P = np.empty(len(prompt_token_Q) + len(response_token_T), np.int64)
    of_prompt_P = np.ones(len(token_P), np.bool_)
    of_prompt_P[target_T] = False
    token_P[of_prompt_P], token_P[target_T] = prompt_token_Q, response_token_T
    return MicroBatch(
        token_P=torch.from_numpy(token_P),
        layout=PackedLayout.of(prompt_length_R + length_R),
        # The token before a response token predicts it: the prompt's last one predicts the first.
        predictor_T=torch.from_numpy(target_T - 1),
        target_T=torch.from_numpy(token_P[target_T]),
        response_T=torch.from_numpy(response_T),
    )


class Scorer(nn.Module):
    """Computes log-probabilities under a model whose output embedding is a linear layer.

    ``tasks.models.fitting`` finds attention and logit scale, and refuses other models.

    Args:
        model: the model, whose attention is set.
        chunk_tokens: tokens whose logits are computed together.
        attention: ``packed``, or an implementation of transformers, for which responses are padded on the right.
        logit_scale: factor of the product of hidden states and output embedding.
    """

    def __init__(
        self, model: PreTrainedModel, chunk_tokens: int, attention: str = PACKED_ATTENTION, logit_scale: float = 1.0
    ) -> None:
        super().__init__()
        model.set_attn_implementation(attention)
        self.model: PreTrainedModel = model
        self._chunk_tokens: int = chunk_tokens
        # Some models keep their own attention, whatever is set.
        self.packed: bool = model.config.get_text_config()._attn_implementation == PACKED_ATTENTION
        self._logit_scale: float = logit_scale
        self._cap: float | None = getattr(model.config.get_text_config(), "final_logit_softcapping", None)

    def forward(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Return logp_T, differentiable, and entropy_T of the batch's response tokens, in fp32."""
        batch = batch.to(self.model.device)
        head = self.model.get_output_embeddings()
        # Some models pass fp32 between their layers, whatever the dtype of their weights.
        hidden_TE = self._hidden(batch)[batch.predictor_T].to(head.weight.dtype)
        if self._logit_scale != 1:
            hidden_TE = hidden_TE * self._logit_scale
        weight_VE = head.weight
        if head.bias is not None:
            weight_VE = torch.cat([weight_VE, head.bias[:, None]], dim=1)
            hidden_TE = torch.cat([hidden_TE, torch.full_like(hidden_TE[:, :1], self._logit_scale)], dim=1)
        return chunked_logp(hidden_TE, weight_VE, batch.target_T, self._chunk_tokens, self._cap)

    def _hidden(self, batch: MicroBatch) -> Tensor:
        """Return the hidden states of the last layer, [P, E]."""
        layout, model = batch.layout, self.model
        # Models have the module that computes their hidden states under different names.
        bodies: tuple[Any, ...] = (model.base_model, model.get_decoder(), getattr(model, "model", None))
        body = next(body for body in bodies if body is not model)
        if self.packed:
            packed: Tensor = body(
                input_ids=batch.token_P[None],
                position_ids=layout.position_P[None],
                use_cache=False,
                packed_layout=layout,
            ).last_hidden_state
            return packed[0]
        # Tokens do not see later ones, so padding on the right needs no mask.
        padded_BLE: Tensor = body(input_ids=batch.token_P[layout.to_rectangle_BL], use_cache=False).last_hidden_state
        return padded_BLE.flatten(0, 1)[layout.to_row_P]


class _ChunkedLogp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_TE: Tensor, weight_VE: Tensor, target_T: Tensor, chunk: int, cap: float | None
    ) -> tuple[Tensor, Tensor]:
        logp_T = torch.empty(len(target_T), dtype=torch.float32, device=hidden_TE.device)
        entropy_T = torch.empty_like(logp_T)
        for span in _chunks(len(target_T), chunk):
            logp_CV = torch.log_softmax(_logits(hidden_TE[span], weight_VE, cap), dim=1)
            logp_T[span] = logp_CV.gather(1, target_T[span, None]).squeeze(1)
            entropy_T[span] = -logp_CV.exp().mul_(logp_CV).sum(1)
            del logp_CV  # before the next chunk's is made
        ctx.save_for_backward(hidden_TE, weight_VE, target_T)
        ctx.chunk, ctx.cap = chunk, cap
        ctx.mark_non_differentiable(entropy_T)
        return logp_T, entropy_T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp_T: Tensor, _: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        hidden_TE, weight_VE, target_T = ctx.saved_tensors
        grad_hidden_TE = torch.empty_like(hidden_TE)
        # The output embedding has no gradient if only adapters are trained.
        grad_weight_VE = torch.zeros_like(weight_VE) if ctx.needs_input_grad[1] else None
        for span in _chunks(len(target_T), ctx.chunk):
            logits_CV = _logits(hidden_TE[span], weight_VE, ctx.cap)
            grad_logits_CV = torch.log_softmax(logits_CV, dim=1).exp_().neg_()
            grad_logits_CV.scatter_add_(1, target_T[span, None], torch.ones_like(grad_logits_CV[:, :1]))
            grad_logits_CV.mul_(grad_logp_T[span, None])
            if ctx.cap is not None:
                grad_logits_CV.mul_(1 - (logits_CV / ctx.cap) ** 2)
            del logits_CV
            grad_logits_CV = grad_logits_CV.to(weight_VE.dtype)
            grad_hidden_TE[span] = grad_logits_CV @ weight_VE
            if grad_weight_VE is not None:
                grad_weight_VE.addmm_(grad_logits_CV.T, hidden_TE[span])
            del grad_logits_CV
        return grad_hidden_TE, grad_weight_VE, None, None, None


def _chunks(count: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]


def _logits(hidden_CE: Tensor, weight_VE: Tensor, cap: float | None) -> Tensor:
    logits_CV = (hidden_CE @ weight_VE.T).float()
    return logits_CV if cap is None else logits_CV.div_(cap).tanh_().mul_(cap)


def chunked_logp(
    hidden_TE: Tensor, weight_VE: Tensor, target_T: Tensor, chunk: int, cap: float | None = None
) -> tuple[Tensor, Tensor]:
    """Compute log-probabilities of target tokens and entropies of their distributions, in fp32.

    The backward pass computes the logits again, chunk by chunk, so that memory is chunk x V and not T x V. On a CPU a
    chunk has fewer tokens where the vocabulary is large. A cap bounds the logits: they are cap x tanh(logits / cap).
    The entropies are not differentiable.
    """
    if hidden_TE.device.type == "cpu":
        chunk = max(1, min(chunk, _CPU_LOGITS // len(weight_VE)))
    chunked: Callable[..., tuple[Tensor, Tensor]] = _ChunkedLogp.apply
    return chunked(hidden_TE, weight_VE, target_T, chunk, cap)
