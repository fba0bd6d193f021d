"""Choose packed or padded scoring for a model."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tasks.errors import DataError
from tasks.models.packing import PACKED_ATTENTION, PackedLayout
from tasks.models.scorer import MicroBatch, Scorer, pack
from tasks.process.logs import logger

_LARGEST_DIFFERENCE = 1e-3
"""Nats. Kernels differ by less on the same fp32 numbers; attention across responses makes more."""
_SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier_scale")
"""Names in configurations of a factor by which a model multiplies, or divides, its logits."""
_PACKABLE_LAYERS = {"full_attention", "sliding_attention"}


@torch.no_grad()
def fitting_scorer(model: PreTrainedModel, chunk_tokens: int) -> Scorer:
    """Make a scorer whose log-probabilities of a response do not depend on the others in its batch.

    Responses are packed where the model allows it, else padded. Packing would change the output of a model whose layers
    carry a state from token to token, whose positions are not those of position_ids, or whose attention is more than a
    softmax. The model has fp32 weights; its attention implementation is set to the one that fits.

    Raises:
        DataError: neither packed nor padded responses get the log-probabilities that each has alone, or these are not
            finite.
    """
    own = model.config._attn_implementation
    batch, alone_T = _test_batch(model)
    kind = model.config.model_type
    if not bool(alone_T.isfinite().all()):
        raise DataError(
            f"policy: the log-probabilities of this {kind} model are not finite. The training that made it "
            "diverged: take an earlier checkpoint."
        )
    failures = []
    for attention, scale in product(_attentions(model, own), _logit_scales(model)):
        layout = _CountingLayout(**vars(batch.layout))
        try:
            scorer = Scorer(model, chunk_tokens, attention, scale)
            difference = float((scorer(replace(batch, layout=layout))[0] - alone_T).abs().max())
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # Models that do not support an attention or a layout raise errors of every kind.
            failures.append(f"{attention}: {type(error).__name__}: {error}")
            continue
        if not difference <= _LARGEST_DIFFERENCE:
            failures.append(f"{attention}: differ by {difference:.3g}")
        elif scorer.packed and len(layout.windows) < _window_layers(model):
            failures.append(f"{attention}: its attention ignores its window")
        else:
            if not scorer.packed:
                logger().warning("policy: responses are padded, because packing changes the output of a %s model", kind)
            return scorer
    raise DataError(
        f"policy: a {kind} model cannot be trained, because the log-probabilities of a response change with the others "
        f"in its batch (by more than {_LARGEST_DIFFERENCE:g}): {'; '.join(failures)}. Take a "
        "policy of another architecture."
    )


@dataclass(frozen=True)
class _CountingLayout(PackedLayout):
    """Counts the layers that ask for a window of attention, because the test responses are shorter than any window."""

    windows: list[int] = field(default_factory=list)

    def window(self, layer_window: int | None) -> int | None:
        if layer_window is not None:
            self.windows.append(layer_window)
        return super().window(layer_window)


def _window_layers(model: PreTrainedModel) -> int:
    """Return the number of layers whose attention should have a window."""
    config = model.config.get_text_config()
    if not getattr(config, "sliding_window", None) or getattr(config, "use_sliding_window", None) is False:
        return 0
    kinds = getattr(config, "layer_types", None)
    return int(config.num_hidden_layers) if kinds is None else list(kinds).count("sliding_attention")


def _attentions(model: PreTrainedModel, own: str) -> Iterable[str]:
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or []
    packed = [] if model._is_stateful or set(kinds) - _PACKABLE_LAYERS else [PACKED_ATTENTION]
    return dict.fromkeys([*packed, own, "eager"])


def _logit_scales(model: PreTrainedModel) -> Iterable[float]:
    values = [getattr(model.config.get_text_config(), name, None) for name in _SCALES]
    named = [float(value) for value in values if isinstance(value, int | float) and value]
    return dict.fromkeys([1.0, *named, *(1 / value for value in named)])


def _test_batch(model: PreTrainedModel) -> tuple[MicroBatch, Tensor]:
    """Make two test responses, and compute the log-probabilities of each alone with eager attention."""
    known = min(model.get_input_embeddings().num_embeddings, 997)
    prompts, responses = (
        [(np.arange(count) * 7 + 3 + 11 * index) % known for index, count in enumerate(counts)]
        for counts in ((5, 3), (6, 7))
    )
    model.set_attn_implementation("eager")
    alone: list[Tensor] = []
    for prompt, response in zip(prompts, responses, strict=True):
        token_1P = torch.from_numpy(np.concatenate([prompt, response]))[None].to(model.device)
        logp_PV = model(input_ids=token_1P, use_cache=False).logits[0].float().log_softmax(-1)
        alone.append(logp_PV[len(prompt) - 1 : -1].gather(1, token_1P[0, len(prompt) :, None])[:, 0])
    return pack(prompts, responses), torch.cat(alone)
