"""Small configurations of many kinds of models: those whose responses can be packed, and those that pad them."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    BambaConfig,
    BloomConfig,
    CohereConfig,
    FalconH1Config,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GptOssConfig,
    GraniteConfig,
    Lfm2Config,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    MptConfig,
    PhiConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
    StableLmConfig,
)

from tasks.models.loading import load_tokenizer

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
FAMILIES = {
    "qwen3": Qwen3Config(**SHAPE, head_dim=8, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=False),
    "llama": LlamaConfig(**SHAPE),
    "gpt2": GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0.0),
}
LAYERS = {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 40}
HEADS = {**SHAPE, "head_dim": 8}
MAMBA = {"mamba_n_heads": 4, "mamba_n_groups": 1, "mamba_d_state": 8}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
WINDOWED = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=1)
PACKABLE: dict[str, PretrainedConfig] = {
    **FAMILIES,
    "a window": WINDOWED,
    "windows and others": Gemma3TextConfig(
        **HEADS, sliding_window=4, query_pre_attn_scalar=8, tie_word_embeddings=False
    ),
    "experts": Qwen3MoeConfig(**HEADS, **EXPERTS, num_experts=4),
    "logits divided": GraniteConfig(**SHAPE, logits_scaling=6.0),
    "logits multiplied": CohereConfig(**SHAPE, logit_scale=0.25),
    "logits with a bias": PhiConfig(**SHAPE),
}
PADDED: dict[str, PretrainedConfig] = {
    "convolution and recurrence": MambaConfig(**LAYERS, state_size=8),
    "convolution": Lfm2Config(**SHAPE, block_ff_dim=48, layer_types=["conv", "full_attention"]),
    "recurrence in one layer": BambaConfig(**SHAPE, **MAMBA, mamba_d_head=16, attn_layer_indices=[1]),
    "recurrence in every layer, logits multiplied": FalconH1Config(
        **HEADS, **MAMBA, mamba_d_head=8, mamba_d_ssm=32, lm_head_multiplier=0.5
    ),
    "linear attention and experts": Qwen3NextConfig(
        **HEADS,
        **LINEAR,
        **EXPERTS,
        num_experts=4,
        shared_expert_intermediate_size=16,
        layer_types=["linear_attention", "full_attention"],
    ),
    "chunks": Llama4TextConfig(
        **HEADS, num_local_experts=2, num_experts_per_tok=1, attention_chunk_size=64, intermediate_size_mlp=48
    ),
    "windows that attention does not hear of": Qwen2MoeConfig(
        **SHAPE,
        **EXPERTS,
        num_experts=4,
        shared_expert_intermediate_size=16,
        use_sliding_window=True,
        sliding_window=32,
        max_window_layers=1,
    ),
    "places by ALiBi": BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4),
    "places by ALiBi, too": MptConfig(vocab_size=40, d_model=32, n_heads=4, n_layers=2, max_seq_len=64),
    "attention that hands nothing on": StableLmConfig(**SHAPE),
    "sinks": GptOssConfig(**HEADS, num_local_experts=4, num_experts_per_tok=2, sliding_window=4),
    "caps of attention and logits": Gemma2Config(
        **HEADS, final_logit_softcapping=3.0, attn_logit_softcapping=2.0, query_pre_attn_scalar=8
    ),
}


def made(config: PretrainedConfig, attention: str | None = None, spread: float = 0.2) -> PreTrainedModel:
    """A model with weights so far from 0 that every layer matters; ``spread`` is their standard deviation."""
    torch.manual_seed(0)
    found: PreTrainedModel = AutoModelForCausalLM.from_config(deepcopy(config), attn_implementation=attention)
    with torch.no_grad():
        for weight in found.parameters():
            weight.normal_(0.5 if weight.ndim == 1 else 0, spread)
    return found.eval()


def brought(config: PretrainedConfig, policy: Path, folder: Path, spread: float = 0.2) -> Path:
    """A model folder like one that a user would bring, with the tokenizer of a policy."""
    config = deepcopy(config)
    config.eos_token_id, config.pad_token_id, config.bos_token_id = 1, 0, None
    made(config, spread=spread).save_pretrained(folder)
    load_tokenizer(policy).save_pretrained(folder)
    return folder


def model(config: PretrainedConfig, attention: str) -> PreTrainedModel:
    """A model as transformers initialises it."""
    torch.manual_seed(0)
    made: PreTrainedModel = AutoModelForCausalLM.from_config(deepcopy(config), attn_implementation=attention)
    return made.eval()


def sequences(seed: int, lengths: list[tuple[int, int]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Prompts and responses of some lengths."""
    random = np.random.default_rng(seed)
    prompts = [random.integers(0, 40, p) for p, _ in lengths]
    return prompts, [random.integers(0, 40, r) for _, r in lengths]


def plain_logp(reference: PreTrainedModel, prompt: np.ndarray, response: np.ndarray) -> torch.Tensor:
    """Log-probabilities of a response by itself."""
    ids = torch.from_numpy(np.concatenate([prompt, response]))[None]
    logp = reference(input_ids=ids).logits[0].log_softmax(-1)
    return logp[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None]).squeeze(1)
