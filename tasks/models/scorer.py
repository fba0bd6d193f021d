"""Score responses: a model as a function from packed responses to the log-probabilities of their tokens.

Legend of shapes: P packed tokens, Q prompt tokens and T response tokens among them, R responses, E hidden width,
B sequences, L the longest of them, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tasks.errors import DataError
from tasks.models.logp import chunked_logp
from tasks.models.packing import PACKED_ATTENTION, PackedLayout

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MicroBatch:
    """Packed responses of a forward pass."""

    token_P: Tensor
    layout: PackedLayout
    predictor_T: Tensor  # index into P of the token that predicts a response token
    target_T: Tensor
    response_T: Tensor  # 0 for the tokens of the first response, 1 for those of the second, ...

    def to(self, device: torch.device) -> "MicroBatch":
        """Move the micro-batch to a device."""
        moved = {name: value.to(device) for name, value in vars(self).items()}
        return MicroBatch(**moved)


def pack(prompts: Sequence[npt.ArrayLike], responses: Sequence[npt.ArrayLike]) -> MicroBatch:
    """Pack prompts and their responses, each a row of token ids.

    Raises:
        ValueError: there are more of one than of the other.
    """
    if len(prompts) != len(responses):
        raise ValueError(f"{len(prompts)} prompts and {len(responses)} responses")
    parts = [[np.zeros(0, np.int64), *map(np.asarray, rows)] for rows in (prompts, responses)]
    prompt_R, length_R = (np.array([len(row) for row in rows[1:]], np.int64) for rows in parts)
    return pack_flat(np.concatenate(parts[0]), prompt_R, np.concatenate(parts[1]), length_R)


def pack_flat(
    prompt_token_Q: npt.NDArray[Any], prompt_R: Ints, response_token_T: npt.NDArray[Any], length_R: Ints
) -> MicroBatch:
    """Pack R prompts and their responses.

    No responses give a batch without response tokens that still passes through a model, as every process's must. Token
    ids stand one prompt, or one response, after the other; ``prompt_R`` and ``length_R`` are their lengths.
    """
    if not len(length_R):
        prompt_token_Q, prompt_R, length_R = np.zeros(1), np.ones(1, np.int64), np.zeros(1, np.int64)
    response_T = np.repeat(np.arange(len(length_R)), length_R)
    target_T = np.arange(len(response_T)) + prompt_R.cumsum()[response_T]
    token_P = np.empty(len(prompt_token_Q) + len(response_token_T), np.int64)
    of_prompt_P = np.ones(len(token_P), np.bool_)
    of_prompt_P[target_T] = False
    token_P[of_prompt_P], token_P[target_T] = prompt_token_Q, response_token_T
    return MicroBatch(
        token_P=torch.from_numpy(token_P),
        layout=PackedLayout.of(prompt_R + length_R),
        # The token before a response token predicts it: the prompt's last one predicts the first.
        predictor_T=torch.from_numpy(target_T - 1),
        target_T=torch.from_numpy(token_P[target_T]),
        response_T=torch.from_numpy(response_T),
    )


@dataclass(frozen=True)
class Way:
    """The layout and scale with which responses go through a model; ``tasks.models.fitting`` finds a model's."""

    attention: str = PACKED_ATTENTION
    """Packed, in one row; with any other implementation in a rectangle, padded on the right."""
    logit_scale: float = 1.0
    """Logits are hidden states times the output embedding, times this."""


PACKED = Way()


class Scorer(nn.Module):
    """Computes log-probabilities under a model, whose attention it sets; ``packed`` says that no response is padded.

    Raises:
        DataError: the output embedding is no linear layer.
    """

    def __init__(self, model: PreTrainedModel, chunk_tokens: int, way: Way = PACKED) -> None:
        super().__init__()
        if not isinstance(model.get_output_embeddings(), nn.Linear):
            raise DataError(f"policy: a {model.config.model_type} model has no linear output embedding.")
        model.set_attn_implementation(way.attention)
        self.model: PreTrainedModel = model
        self._chunk_tokens: int = chunk_tokens
        self.packed: bool = way.attention == PACKED_ATTENTION
        self._logit_scale: float = way.logit_scale
        self._cap: float | None = getattr(model.config.get_text_config(), "final_logit_softcapping", None)

    def forward(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Return logp_T, differentiable, and entropy_T of the batch's response tokens, in fp32."""
        batch = batch.to(self.model.device)
        hidden_TE = self._hidden(batch)[batch.predictor_T]
        if self._logit_scale != 1:
            hidden_TE = hidden_TE * self._logit_scale
        head = self.model.get_output_embeddings()
        weight_VE = head.weight
        if head.bias is not None:
            weight_VE = torch.cat([weight_VE, head.bias[:, None]], dim=1)
            hidden_TE = torch.cat([hidden_TE, torch.full_like(hidden_TE[:, :1], self._logit_scale)], dim=1)
        return chunked_logp(hidden_TE, weight_VE, batch.target_T, self._chunk_tokens, self._cap)

    def _hidden(self, batch: MicroBatch) -> Tensor:
        """Return the last hidden states, [P, E]."""
        layout, model = batch.layout, self.model
        # Some do not say under which name they have what makes their hidden states.
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
        # What comes after a token changes nothing, so padding on the right needs no mask.
        padded_BLE: Tensor = body(input_ids=batch.token_P[layout.to_rectangle_BL], use_cache=False).last_hidden_state
        return padded_BLE.flatten(0, 1)[layout.to_row_P]
