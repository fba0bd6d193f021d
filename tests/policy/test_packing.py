"""Which models can be packed: those that give every response what it has alone; all others are named and refused."""

import pytest
import torch
from transformers import (
    BambaConfig,
    BloomConfig,
    FalconH1Config,
    Gemma2Config,
    GptOssConfig,
    MambaConfig,
    MptConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3NextConfig,
    RwkvConfig,
    StableLmConfig,
)

from tasks.errors import DataError
from tasks.policy.packing import PACKED_ATTENTION
from tasks.policy.probe import check_packing
from tasks.policy.scorer import Scorer, pack
from tests.policy.test_scorer import FAMILIES, SHAPE, model, plain_logp, sequences

LAYERS = {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 40}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
WINDOWED = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=1)
MOVES = "log-probabilities of packed responses differ by"
UNPACKABLE: dict[str, tuple[PretrainedConfig, str]] = {
    "state of a convolution and a recurrence": (MambaConfig(**LAYERS, state_size=8), MOVES),
    "state beside attention": (BambaConfig(**SHAPE, **MAMBA, attn_layer_indices=[1]), MOVES),
    "both in a layer": (FalconH1Config(**SHAPE, **{**MAMBA, "mamba_d_head": 8}, mamba_d_ssm=32, head_dim=8), MOVES),
    "linear attention": (
        Qwen3NextConfig(
            **SHAPE,
            **LINEAR,
            **EXPERTS,
            head_dim=8,
            shared_expert_intermediate_size=16,
            layer_types=["linear_attention", "full_attention"],
        ),
        MOVES,
    ),
    "recurrence": (RwkvConfig(**LAYERS, attention_hidden_size=32, intermediate_size=48), MOVES),
    "places of ALiBi": (BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4), MOVES),
    "ALiBi, too": (MptConfig(vocab_size=40, d_model=32, n_heads=4, n_layers=2, max_seq_len=64), MOVES),
    "attention that hands nothing on": (StableLmConfig(**SHAPE), "TypeError: packed_attention"),
    "sinks": (
        GptOssConfig(**SHAPE, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=64),
        "this model has attention sinks",
    ),
    "capped attention": (
        Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=None, attn_logit_softcapping=5.0),
        "this model caps the logits of its attention",
    ),
}


def scorer(config: PretrainedConfig) -> Scorer:
    """With weights so far from 0 that layers matter."""
    made = model(config, "eager")
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(0.3 if weight.ndim == 1 else 0, 0.2)
    made.set_attn_implementation(PACKED_ATTENTION)
    return Scorer(made, 8)


@pytest.mark.parametrize("reason", UNPACKABLE)
def test_a_model_that_packing_changes_is_refused(reason: str) -> None:
    config, message = UNPACKABLE[reason]
    with pytest.raises(DataError, match=message) as caught:
        check_packing(scorer(config))
    assert "Choose" in caught.value.message


@pytest.mark.parametrize("config", [*FAMILIES.values(), WINDOWED], ids=[*FAMILIES, "windowed"])
def test_a_model_that_packing_does_not_change_passes_and_stays_packed(config: PretrainedConfig) -> None:
    passing = scorer(config)
    check_packing(passing)
    assert passing.model.config._attn_implementation == PACKED_ATTENTION


def test_a_window_shorter_than_a_sequence_sees_what_it_sees_unpacked() -> None:
    packed, reference = model(WINDOWED, PACKED_ATTENTION), model(WINDOWED, "eager")
    wide = model(Qwen2Config(**SHAPE), "eager")
    prompts, responses = sequences(1, [(3, 5), (7, 1), (1, 9)])
    logp_T, _ = Scorer(packed, 8)(pack(prompts, responses))
    pairs = list(zip(prompts, responses, strict=True))
    torch.testing.assert_close(logp_T, torch.cat([plain_logp(reference, *pair) for pair in pairs]), rtol=0, atol=1e-6)
    assert (logp_T - torch.cat([plain_logp(wide, *pair) for pair in pairs])).abs().max() > 1e-4
    for made in (packed, reference):
        made.zero_grad()
    logp_T.sum().backward()
    torch.cat([plain_logp(reference, *pair) for pair in pairs]).sum().backward()
    for ours, theirs in zip(packed.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-5)
