"""Shapes of policies without a download: from settings, from a folder, or from a table of known models."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.errors import DataError
from tasks.models.files import INDEX, WEIGHTS, read_json, stored_shapes, weight_files
from tasks.settings import PolicySettings, TinyPolicySettings
from tasks.settings.base import local_path

BYTES = {"float32": 4, "bfloat16": 2}
"""Bytes of a number by data type."""
_TINY_VOCABULARY = 22
_EXPERT = ".experts."
"""Substring of the names of routed experts' weights. Shared experts, which see every token, have other names."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder-only transformer."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_width: int
    vocabulary: int
    stored_bytes: int
    """Bytes of the published weights."""
    idle_parameters: int = 0
    """Number of parameters of the experts that the router does not choose for a token."""

    @property
    def active_parameters(self) -> int:
        """Number of parameters in the computation of a token."""
        return self.parameters - self.idle_parameters

    def cache_bytes(self, dtype: str) -> int:
        """Return the bytes of the keys and values of one token in all layers."""
        return 2 * self.layers * self.key_value_heads * self.head_width * BYTES[dtype]

    def adapter_parameters(self, rank: int) -> int:
        """Return the number of parameters of LoRA on every linear layer except the output embedding."""
        query, key_value = self.heads * self.head_width, self.key_value_heads * self.head_width
        attention = 2 * (self.hidden + query) + 2 * (self.hidden + key_value)
        return rank * self.layers * (attention + 3 * (self.hidden + self.intermediate))


def _published(parameters: int, sizes: tuple[int, int, int, int, int], vocabulary: int) -> Shape:
    """Return the shape of a model that is published in 16 bits and has attention heads of width 128."""
    return Shape(parameters, *sizes, 128, vocabulary, 2 * parameters)


# Layers, hidden, intermediate, heads and key_value_heads are those of the models' config.json; tests count the
# parameters. The 7B models share one shape.
_QWEN_7B = _published(7_615_616_512, (28, 3584, 18944, 28, 4), 152_064)
KNOWN: dict[str, Shape] = {
    "Qwen/Qwen2.5-Math-7B": _QWEN_7B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": _QWEN_7B,
    "Qwen/Qwen2.5-Math-1.5B": _published(1_543_714_304, (28, 1536, 8960, 12, 2), 151_936),
    "Qwen/Qwen3-4B-Base": _published(4_022_468_096, (36, 2560, 9728, 32, 8), 151_936),
    "meta-llama/Llama-3.2-3B-Instruct": _published(3_212_749_824, (28, 3072, 8192, 24, 8), 128_256),
    "Qwen/Qwen3-0.6B": _published(596_049_920, (28, 1024, 3072, 16, 8), 151_936),
}
"""Models that this project's settings and documents name, by their names on the hub."""


def shape_of(policy: PolicySettings) -> Shape | None:
    """Return the shape of a policy, or None if it is neither a local folder nor a known model.

    Raises:
        DataError: the folder of the policy cannot be read.
    """
    if policy.tiny is not None:
        return _of_tiny(policy.tiny)
    folder = local_path(policy.path or "")
    return _of_folder(folder) if policy.path and folder.is_dir() else KNOWN.get(policy.path or "")


def _of_tiny(tiny: TinyPolicySettings) -> Shape:
    hidden, width = tiny.hidden_size, tiny.hidden_size // tiny.heads
    attention = 2 * hidden * hidden + 2 * hidden * width * tiny.key_value_heads + 2 * width
    layer = attention + 3 * hidden * tiny.intermediate_size + 2 * hidden
    parameters = _TINY_VOCABULARY * hidden + hidden + tiny.layers * layer
    sizes = (tiny.layers, hidden, tiny.intermediate_size, tiny.heads, tiny.key_value_heads)
    return Shape(parameters, *sizes, width, _TINY_VOCABULARY, BYTES["float32"] * parameters)


def _of_folder(folder: Path) -> Shape | None:
    try:
        outer = read_json(folder / "config.json")
        files = weight_files(folder)
        weights = [(name, math.prod(shape)) for file in files for name, shape in stored_shapes(file).items()]
        stored = sum(file.stat().st_size for file in files)
    except (OSError, ValueError) as error:
        raise DataError(f"policy.path: {folder} cannot be read: {error}") from None
    if not files:
        raise DataError(f"policy.path: {folder} has no {WEIGHTS}, nor all files of {INDEX}.")
    config: dict[str, Any] = {**outer, **(outer.get("text_config") or {})}

    def size(*names: str) -> int:
        return next((found for name in names if isinstance(found := config.get(name), int) and found), 0)

    layers, hidden, heads = size("num_hidden_layers"), size("hidden_size"), size("num_attention_heads") or 1
    if not (layers and hidden):
        return None
    experts = size("num_local_experts", "num_experts", "n_routed_experts") or 1
    idle = max(0, experts - (size("num_experts_per_tok") or experts))
    return Shape(
        parameters=sum(count for _, count in weights),
        layers=layers,
        hidden=hidden,
        intermediate=size("intermediate_size") or 4 * hidden,
        heads=heads,
        key_value_heads=size("num_key_value_heads") or heads,
        head_width=size("head_dim") or hidden // heads,
        vocabulary=size("vocab_size"),
        stored_bytes=stored,
        idle_parameters=sum(count for name, count in weights if _EXPERT in name) * idle // experts,
    )
