"""Small configurations of many kinds of models: those whose responses can be packed, and those that pad them."""

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from tasks.models.loading import load_tokenizer

shaped = AutoConfig.for_model
SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LAYERS = {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 40}
FAMILIES = {
    "qwen3": shaped("qwen3", **SHAPE, head_dim=8, tie_word_embeddings=True),
    "qwen2": shaped("qwen2", **SHAPE, tie_word_embeddings=False),
    "llama": shaped("llama", **SHAPE),
    "gpt2": shaped("gpt2", vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0.0),
}
HEADS = {**SHAPE, "head_dim": 8}
MAMBA = {"mamba_n_heads": 4, "mamba_n_groups": 1, "mamba_d_state": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SHARING = {**EXPERTS, "shared_expert_intermediate_size": 16}
LOCAL = {"num_local_experts": 2, "intermediate_size_mlp": 48}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
PACKABLE: dict[str, PretrainedConfig] = {
    **FAMILIES,
    "a window": shaped("qwen2", **SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "windows and others": shaped(
        "gemma3_text", **HEADS, sliding_window=4, query_pre_attn_scalar=8, tie_word_embeddings=False
    ),
    "experts": shaped("qwen3_moe", **HEADS, **EXPERTS),
    "a bias of the router in a buffer": shaped(
        "glm4_moe", **HEADS, **EXPERTS, n_routed_experts=4, first_k_dense_replace=1
    ),
    "logits divided": shaped("granite", **SHAPE, logits_scaling=6.0),
    "logits multiplied": shaped("cohere", **SHAPE, logit_scale=0.25),
    "logits with a bias": shaped("phi", **SHAPE),
    "a weight that is never trained": shaped("hrm_text", **SHAPE),
}
PADDED: dict[str, PretrainedConfig] = {
    "convolution and recurrence": shaped("mamba", **LAYERS, state_size=8),
    "convolution": shaped("lfm2", **SHAPE, block_ff_dim=48, layer_types=["conv", "full_attention"]),
    "recurrence in one layer": shaped("bamba", **SHAPE, **MAMBA, mamba_d_head=16, attn_layer_indices=[1]),
    "recurrence in every layer, logits multiplied": shaped(
        "falcon_h1", **HEADS, **MAMBA, mamba_d_head=8, mamba_d_ssm=32, lm_head_multiplier=0.5
    ),
    "linear attention and experts": shaped(
        "qwen3_next", **HEADS, **LINEAR, **SHARING, layer_types=["linear_attention", "full_attention"]
    ),
    "chunks": shaped("llama4_text", **HEADS, **LOCAL, num_experts_per_tok=1, attention_chunk_size=64),
    "windows that attention does not hear of": shaped(
        "qwen2_moe", **SHAPE, **SHARING, use_sliding_window=True, sliding_window=32, max_window_layers=1
    ),
    "places by ALiBi": shaped("bloom", vocab_size=40, hidden_size=32, n_layer=2, n_head=4),
    "places by ALiBi, too": shaped("mpt", vocab_size=40, d_model=32, n_heads=4, n_layers=2, max_seq_len=64),
    "attention that hands nothing on": shaped("stablelm", **SHAPE),
    "attention that cannot be set": shaped(
        "gpt_neo", **LAYERS, attention_types=[[["local"], 2]], num_heads=4, window_size=4, max_position_embeddings=32
    ),
    "sinks": shaped("gpt_oss", **HEADS, num_local_experts=4, num_experts_per_tok=2, sliding_window=4),
    "caps of attention and logits": shaped(
        "gemma2", **HEADS, final_logit_softcapping=3.0, attn_logit_softcapping=2.0, query_pre_attn_scalar=8
    ),
}


def change(file: Path, **values: object) -> None:
    """Changes fields of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def made(config: PretrainedConfig, attention: str | None = None, spread: float = 0.2) -> PreTrainedModel:
    """A model with weights so far from 0 that every layer matters; ``spread`` is their standard deviation."""
    found = model(config, attention)
    with torch.no_grad():
        for weight in found.parameters():
            weight.normal_(0.5 if weight.ndim == 1 else 0, spread)
    return found


def brought(config: PretrainedConfig, policy: Path, folder: Path, spread: float = 0.2) -> Path:
    """A model folder like one that a user would bring, with the tokenizer of a policy."""
    config = deepcopy(config)
    config.eos_token_id, config.pad_token_id, config.bos_token_id = 1, 0, None
    made(config, spread=spread).save_pretrained(folder)
    load_tokenizer(policy).save_pretrained(folder)
    return folder


def model(config: PretrainedConfig, attention: str | None) -> PreTrainedModel:
    """A model as transformers initialises it."""
    torch.manual_seed(0)
    made: PreTrainedModel = AutoModelForCausalLM.from_config(deepcopy(config), attn_implementation=attention)
    return made.eval()


def sequences(seed: int, lengths: list[tuple[int, int]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(seed)
    prompts = [random.integers(0, 40, p) for p, _ in lengths]
    return prompts, [random.integers(0, 40, r) for _, r in lengths]


def plain_logp(reference: PreTrainedModel, prompt: np.ndarray, response: np.ndarray) -> torch.Tensor:
    """Log-probabilities of a response by itself."""
    ids = torch.from_numpy(np.concatenate([prompt, response]))[None]
    logp = reference(input_ids=ids).logits[0].log_softmax(-1)
    return logp[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None]).squeeze(1)
