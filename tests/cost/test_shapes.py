"""The shapes of known policies are those of the models themselves."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PretrainedConfig

from tasks.cluster.shapes import KNOWN, shape_of
from tasks.errors import DataError
from tasks.models.lora import add_adapters
from tasks.settings import LoraSettings, PolicySettings

KINDS = {"Qwen3": transformers.Qwen3Config, "Llama": transformers.LlamaConfig, "": transformers.Qwen2Config}
"""Configurations by a part of a model's name."""
SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 100}
SMALL = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.mark.parametrize("name", {shape: name for name, shape in KNOWN.items()}.values())
def test_a_known_model_has_the_parameters_of_its_architecture(name: str) -> None:
    shape = KNOWN[name]
    kind = next(kind for part, kind in KINDS.items() if part in name)
    layers = {"num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "hidden_size": shape.hidden}
    sizes = {"intermediate_size": shape.intermediate, "num_key_value_heads": shape.key_value_heads}
    width = {"head_dim": shape.head_width} if kind is transformers.Qwen3Config else {}
    config = kind(**layers, **sizes, **width, vocab_size=shape.vocabulary, tie_word_embeddings="7B" not in name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == shape.parameters
    assert shape.stored_bytes == 2 * shape.parameters
    add_adapters(model, LoraSettings(rank=8), seed=0)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert trained == shape.adapter_parameters(rank=8)


def folder_of(path: Path, config: dict[str, object]) -> PolicySettings:
    save_file({"a": torch.zeros(3, 4)}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    return PolicySettings(path=str(path))


@pytest.mark.parametrize(
    "config",
    [SIZES, {"text_config": SIZES}, {**SIZES, "num_key_value_heads": None, "text_config": None}],
    ids=["plain", "deeper", "none"],
)
def test_the_shape_of_a_folder(tmp_path: Path, config: dict[str, object]) -> None:
    shape = shape_of(folder_of(tmp_path, config))
    assert (shape.layers, shape.hidden, shape.heads, shape.key_value_heads) == (2, 32, 4, 4)
    assert (shape.head_width, shape.intermediate, shape.vocabulary, shape.parameters) == (8, 128, 100, 12)
    assert shape.cache_bytes("bfloat16") == 2 * 2 * 4 * 8 * 2
    assert shape.stored_bytes == (tmp_path / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("config", "experts"),
    [
        (transformers.Qwen3MoeConfig(**SMALL, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16), 8),
        (transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=1), 4),
        (transformers.GptOssConfig(**SMALL, num_local_experts=4, num_experts_per_tok=1), 4),
        (transformers.Qwen2Config(**SMALL), 1),
    ],
    ids=lambda value: value.model_type if isinstance(value, PretrainedConfig) else None,
)
def test_experts_that_a_token_does_not_reach_are_idle(tmp_path: Path, config: PretrainedConfig, experts: int) -> None:
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    shape = shape_of(PolicySettings(path=str(tmp_path)))
    routed = sum(weight.numel() for name, weight in model.named_parameters() if ".experts." in name)
    assert shape.parameters == sum(weight.numel() for weight in model.parameters())
    assert bool(routed) == (experts > 1)
    assert shape.active_parameters == shape.parameters - routed * (0 if experts == 1 else 3) // 4


def test_policies_of_unknown_shape_and_weights_in_two_forms(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"policy\.path: .* cannot be read"):
        shape_of(PolicySettings(path=str(tmp_path)))
    assert shape_of(folder_of(tmp_path, {"vocab_size": 100})) is None
    assert shape_of(PolicySettings(path="some/model")) is None
    policy = folder_of(tmp_path, {"num_hidden_layers": 2, "hidden_size": 32})
    save_file({"wq": torch.zeros(100)}, tmp_path / "consolidated.safetensors")
    assert shape_of(policy).parameters == 12  # Weights in a second form are not counted.
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"has no model\.safetensors, nor all files of model\.safetensors\.index"):
        shape_of(policy)
