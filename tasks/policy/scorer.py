"""A model as a function from packed responses to the log-probabilities of their tokens.

Legend of shapes: P packed tokens, T response tokens among them, E hidden width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tasks.errors import DataError
from tasks.policy.logp import chunked_logp
from tasks.policy.packing import PackedLayout

_CHANGED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "output_multiplier_scale")


@dataclass(frozen=True)
class MicroBatch:
    """Packed responses of a forward pass."""

    token_P: Tensor
    layout: PackedLayout
    predictor_T: Tensor  # index into P of the token that predicts a response token
    target_T: Tensor
    response_T: Tensor  # 0 for the tokens of the first response, 1 for those of the second, ...

    def to(self, device: torch.device) -> "MicroBatch":
        """The same on a device."""
        moved = {name: value.to(device) for name, value in vars(self).items()}
        return MicroBatch(**moved)


def pack(prompts: Sequence[npt.ArrayLike], responses: Sequence[npt.ArrayLike]) -> MicroBatch:
    """Packs prompts and their responses, each a row of token ids.

    No responses give a batch without response tokens that still passes through a model, as every process's must.
    """
    pairs = [(np.asarray(p), np.asarray(r)) for p, r in zip(prompts, responses, strict=True)]
    pairs = pairs or [(np.zeros(1), np.zeros(0))]
    prompt_R, length_R = (np.array([len(part) for part in parts]) for parts in zip(*pairs, strict=True))
    token_P = np.concatenate([part for pair in pairs for part in pair]).astype(np.int64)
    response_T = np.repeat(np.arange(len(pairs)), length_R)
    target_T = np.arange(len(response_T)) + prompt_R.cumsum()[response_T]
    return MicroBatch(
        token_P=torch.from_numpy(token_P),
        layout=PackedLayout.of(prompt_R + length_R),
        # The token before a response token predicts it: the prompt's last one predicts the first.
        predictor_T=torch.from_numpy(target_T - 1),
        target_T=torch.from_numpy(token_P[target_T]),
        response_T=torch.from_numpy(response_T),
    )


class Scorer(nn.Module):
    """Log-probabilities under a model that was loaded with packed attention."""

    def __init__(self, model: PreTrainedModel, chunk_tokens: int) -> None:
        super().__init__()
        changed = [name for name in _CHANGED_LOGITS if getattr(model.config, name, None)]
        if changed:
            raise DataError(
                f"policy: a {model.config.model_type} model changes its logits by {changed}, which the chunked "
                "log-probabilities do not; allowed: models whose logits are hidden states times the output embedding."
            )
        head = model.get_output_embeddings()
        if not isinstance(head, nn.Linear) or head.bias is not None:
            raise DataError(f"policy: a {model.config.model_type} model has no plain linear output embedding.")
        self.model: PreTrainedModel = model
        self._chunk_tokens: int = chunk_tokens

    def forward(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """logp_T, differentiable, and entropy_T of the batch's response tokens, in fp32."""
        batch = batch.to(self.model.device)
        hidden_1PE = self.model.base_model(
            input_ids=batch.token_P[None],
            position_ids=batch.layout.position_P[None],
            use_cache=False,
            packed_layout=batch.layout,
        ).last_hidden_state
        hidden_TE = hidden_1PE[0][batch.predictor_T]
        weight_VE = self.model.get_output_embeddings().weight
        return chunked_logp(hidden_TE, weight_VE, batch.target_T, self._chunk_tokens)
