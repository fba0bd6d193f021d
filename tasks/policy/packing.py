"""Sequences one after the other in a single row, with attention that never crosses from one to the next.

Legend of shapes: P packed tokens, B sequences, L the longest of them, H heads, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

PACKED_ATTENTION = "packed_sdpa"


@dataclass(frozen=True)
class PackedLayout:
    """Where the tokens of packed sequences are, in the row and in a [B, L] rectangle."""

    to_rectangle_BL: Tensor  # index into the row; any index where the rectangle has padding
    to_row_P: Tensor  # index into the flattened rectangle
    position_P: Tensor  # place of a token in its sequence

    def to(self, device: torch.device) -> "PackedLayout":
        """The same on a device."""
        return PackedLayout(*(value.to(device) for value in (self.to_rectangle_BL, self.to_row_P, self.position_P)))

    @staticmethod
    def of(lengths: Sequence[int]) -> "PackedLayout":
        """The layout of sequences with these lengths."""
        lengths_B = torch.as_tensor(np.asarray(lengths, dtype=np.int64))
        longest = int(lengths_B.max())
        starts_B = lengths_B.cumsum(0) - lengths_B
        place_L = torch.arange(longest)
        real_BL = place_L < lengths_B[:, None]
        return PackedLayout(
            to_rectangle_BL=torch.where(real_BL, starts_B[:, None] + place_L, 0),
            to_row_P=real_BL.flatten().nonzero().squeeze(1),
            position_P=place_L.expand_as(real_BL)[real_BL],
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
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each packed sequence.

    The sequences are laid out as a rectangle padded on the right: a real token never attends to what comes after it, so
    no mask is needed and padding is computed for attention alone.

    Raises:
        NotImplementedError: the model restricts attention to a window that is shorter than a sequence.
    """
    if sliding_window is not None and sliding_window < packed_layout.to_rectangle_BL.shape[1]:
        raise NotImplementedError(f"attention window {sliding_window} is shorter than the longest sequence")
    rectangle_BL, row_P = packed_layout.to_rectangle_BL, packed_layout.to_row_P
    query, key, value = (x[0].transpose(0, 1)[rectangle_BL].transpose(1, 2) for x in (query_1HPD, key_1KPD, value_1KPD))
    out_BHLD = scaled_dot_product_attention(
        query,
        key,
        value,
        dropout_p=dropout,
        is_causal=True,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out_BHLD.transpose(1, 2).flatten(0, 1)[row_P][None], None


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
