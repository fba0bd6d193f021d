"""How large a policy is, without a hub: from its settings, from a folder, or from a small table."""

import math
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import DataError
from tasks.policy.files import INDEX, WEIGHTS, read_json, stored_shapes, weight_files
from tasks.settings import PolicySettings, TinyPolicySettings

BYTES = {"float32": 4, "bfloat16": 2}
"""Of a number, by type."""
_TINY_VOCABULARY = 22
_EXPERT = ".experts."
"""In the names of weights that a router chooses among; experts that every token reaches have other names."""
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "key_value_heads": ("num_key_value_heads",),
    "head_width": ("head_dim",),
    "vocabulary": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_of_a_token": ("num_experts_per_tok",),
}
"""What configurations call the sizes of a model."""


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
    """Of the base policy's weights as they are published."""
    idle_parameters: int = 0
    """Of experts that a router does not choose for a token: held and stored, not computed with."""

    @property
    def active_parameters(self) -> int:
        """That a token is computed with."""
        return self.parameters - self.idle_parameters

    def cache_bytes(self, dtype: str) -> int:
        """Keys and values of one token, in all layers."""
        return 2 * self.layers * self.key_value_heads * self.head_width * BYTES[dtype]

    def adapter_parameters(self, rank: int) -> int:
        """LoRA matrices beside every linear layer but the output embedding."""
        query, key_value = self.heads * self.head_width, self.key_value_heads * self.head_width
        attention = 2 * (self.hidden + query) + 2 * (self.hidden + key_value)
        return rank * self.layers * (attention + 3 * (self.hidden + self.intermediate))


# As the models' config.json have it, which were not at hand; tests count the parameters of these shapes. The first two
# are Qwen2 models of one shape.
_QWEN_7B = Shape(
    parameters=7_615_616_512,
    layers=28,
    hidden=3584,
    intermediate=18944,
    heads=28,
    key_value_heads=4,
    head_width=128,
    vocabulary=152_064,
    stored_bytes=2 * 7_615_616_512,
)
KNOWN: dict[str, Shape] = {
    "Qwen/Qwen2.5-Math-7B": _QWEN_7B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": _QWEN_7B,
    "Qwen/Qwen2.5-Math-1.5B": Shape(
        parameters=1_543_714_304,
        layers=28,
        hidden=1536,
        intermediate=8960,
        heads=12,
        key_value_heads=2,
        head_width=128,
        vocabulary=151_936,
        stored_bytes=2 * 1_543_714_304,
    ),
    "Qwen/Qwen3-4B-Base": Shape(
        parameters=4_022_468_096,
        layers=36,
        hidden=2560,
        intermediate=9728,
        heads=32,
        key_value_heads=8,
        head_width=128,
        vocabulary=151_936,
        stored_bytes=2 * 4_022_468_096,
    ),
    "meta-llama/Llama-3.2-3B-Instruct": Shape(
        parameters=3_212_749_824,
        layers=28,
        hidden=3072,
        intermediate=8192,
        heads=24,
        key_value_heads=8,
        head_width=128,
        vocabulary=128_256,
        stored_bytes=2 * 3_212_749_824,
    ),
    "Qwen/Qwen3-0.6B": Shape(
        parameters=596_049_920,
        layers=28,
        hidden=1024,
        intermediate=3072,
        heads=16,
        key_value_heads=8,
        head_width=128,
        vocabulary=151_936,
        stored_bytes=2 * 596_049_920,
    ),
}
"""Models that this project's settings and documents name, by their names on the hub."""


def shape_of(policy: PolicySettings) -> Shape | None:
    """The shape of a policy; None for one that is neither here nor known, or whose configuration does not tell it.

    Raises:
        DataError: its folder cannot be read.
    """
    if policy.tiny is not None:
        return _tiny(policy.tiny)
    name = policy.path or ""
    folder = Path(name).expanduser()
    return _of_folder(folder) if folder.is_dir() else KNOWN.get(name)


def tiny_parameters(tiny: TinyPolicySettings) -> int:
    """Weights of the tiny policy."""
    hidden, width = tiny.hidden_size, tiny.hidden_size // tiny.heads
    attention = 2 * hidden * hidden + 2 * hidden * width * tiny.key_value_heads + 2 * width
    return (
        _TINY_VOCABULARY * hidden
        + hidden
        + tiny.layers * (attention + 3 * hidden * tiny.intermediate_size + 2 * hidden)
    )


def _tiny(tiny: TinyPolicySettings) -> Shape:
    parameters = tiny_parameters(tiny)
    return Shape(
        parameters=parameters,
        layers=tiny.layers,
        hidden=tiny.hidden_size,
        intermediate=tiny.intermediate_size,
        heads=tiny.heads,
        key_value_heads=tiny.key_value_heads,
        head_width=tiny.hidden_size // tiny.heads,
        vocabulary=_TINY_VOCABULARY,
        stored_bytes=BYTES["float32"] * parameters,
    )


def _of_folder(folder: Path) -> Shape | None:
    try:
        outer = read_json(folder / "config.json")
        files = weight_files(folder)
        sizes = [(name, math.prod(shape)) for file in files for name, shape in stored_shapes(file).items()]
        stored = sum(file.stat().st_size for file in files)
    except (OSError, ValueError) as error:
        raise DataError(f"policy.path: {folder} cannot be read: {error}") from None
    config = {**outer, **outer.get("text_config", {})}
    found = {
        field: next((size for name in names if isinstance(size := config.get(name), int) and size), 0)
        for field, names in _NAMES.items()
    }
    layers, hidden, heads = found["layers"], found["hidden"], found["heads"] or 1
    if not files:
        raise DataError(f"policy.path: {folder} has no {WEIGHTS}, nor all files of {INDEX}.")
    if not (layers and hidden):
        return None
    experts = found["experts"] or 1
    idle = max(0, experts - (found["experts_of_a_token"] or experts))
    return Shape(
        parameters=sum(size for _, size in sizes),
        layers=layers,
        hidden=hidden,
        intermediate=found["intermediate"] or 4 * hidden,
        heads=heads,
        key_value_heads=found["key_value_heads"] or heads,
        head_width=found["head_width"] or hidden // heads,
        vocabulary=found["vocabulary"],
        stored_bytes=stored,
        idle_parameters=sum(size for name, size in sizes if _EXPERT in name) * idle // experts,
    )
