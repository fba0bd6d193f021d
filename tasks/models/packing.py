"""Pack sequences into a single row, with attention inside each sequence alone.

Legend of shapes: P packed tokens, B sequences, C = B + 1, L the longest of them, H and K heads of queries and keys, D
their width.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

PACKED_ATTENTION = "packed"
_FLASH_HEAD_WIDTH = 256
"""The widest head of FlashAttention's kernels."""


@dataclass(frozen=True)
class PackedLayout:
    """Positions of the tokens of packed sequences, in the row and in a padded [B, L] rectangle."""

    to_rectangle_BL: Tensor  # index into the row; any index where the rectangle has padding
    to_row_P: Tensor  # index into the flattened rectangle
    position_P: Tensor  # place of a token in its sequence
    bound_C: Tensor  # where each sequence begins in the row, and where the last ends; int32
    longest: int

    def to(self, device: torch.device) -> "PackedLayout":
        """Move the layout to a device."""
        moved: dict[str, Any] = {name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **moved)

    def window(self, layer_window: int | None) -> int | None:
        """Return the window of a layer's attention; None where the window holds every sequence."""
        return layer_window if layer_window is not None and layer_window < self.longest else None

    @staticmethod
    def of(lengths: npt.ArrayLike) -> "PackedLayout":
        """Make the layout of sequences with these lengths."""
        lengths_B = np.asarray(lengths, dtype=np.int64)
        longest = int(lengths_B.max())
        bound_C = np.concatenate([[0], lengths_B.cumsum()])
        position_L = np.arange(longest)
        real_BL = position_L < lengths_B[:, None]
        to_row_P = real_BL.ravel().nonzero()[0]
        return PackedLayout(
            to_rectangle_BL=torch.from_numpy(np.where(real_BL, bound_C[:-1, None] + position_L, 0)),
            to_row_P=torch.from_numpy(to_row_P),
            position_P=torch.from_numpy(to_row_P % longest),
            bound_C=torch.from_numpy(bound_C.astype(np.int32)),
            longest=longest,
        )


def packed_attention(
    _module: nn.Module,
    query_1HPD: Tensor,
    key_1KPD: Tensor,
    value_1KPD: Tensor,
    _attention_mask: Tensor | None,
    *,
    packed_layout: PackedLayout,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention inside each packed sequence.

    On a GPU in 16 bits FlashAttention's kernels for sequences of unequal length compute it; else it is padded.

    Raises:
        NotImplementedError: the model caps its attention's logits, or has attention sinks.
    """
    if softcap is not None or s_aux is not None:
        raise NotImplementedError("packed attention neither caps logits nor has attention sinks")
    window = packed_layout.window(sliding_window)
    query_PHD, key_PKD, value_PKD = (x[0].transpose(0, 1) for x in (query_1HPD, key_1KPD, value_1KPD))
    options: dict[str, Any] = {"scale": scaling, "enable_gqa": query_PHD.shape[1] != key_PKD.shape[1]}
    if dropout == 0 and _has_kernels(query_PHD, value_PKD):
        bound_C, longest, reach = packed_layout.bound_C, packed_layout.longest, -1 if window is None else window - 1
        out_PHD = varlen_attn(
            query_PHD, key_PKD, value_PKD, bound_C, bound_C, longest, longest, window_size=(reach, 0), **options
        )
        assert isinstance(out_PHD, Tensor)
        return out_PHD[None], None
    # A real token never attends to later ones, so padding on the right needs no mask. Other layers see no padding.
    query_BHLD, key_BKLD, value_BKLD = (
        x[packed_layout.to_rectangle_BL].transpose(1, 2) for x in (query_PHD, key_PKD, value_PKD)
    )
    band_LL = None
    if window is not None:
        ones_LL = torch.ones(packed_layout.longest, packed_layout.longest, dtype=torch.bool, device=query_PHD.device)
        band_LL = ones_LL.tril() & ones_LL.triu(1 - window)
    out_BHLD = scaled_dot_product_attention(
        query_BHLD, key_BKLD, value_BKLD, band_LL, dropout, is_causal=band_LL is None, **options
    )
    return out_BHLD.transpose(1, 2).flatten(0, 1)[packed_layout.to_row_P][None], None


def _has_kernels(query_PHD: Tensor, value_PKD: Tensor) -> bool:
    width = query_PHD.shape[-1]
    return (
        query_PHD.is_cuda
        and query_PHD.dtype in (torch.bfloat16, torch.float16)
        and width == value_PKD.shape[-1] <= _FLASH_HEAD_WIDTH
        and width % 8 == 0
    )


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
