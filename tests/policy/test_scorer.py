"""Packed = unpacked and chunked = plain, in loss and gradients."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from tasks.errors import DataError
from tasks.policy.logp import chunked_logp
from tasks.policy.packing import PACKED_ATTENTION
from tasks.policy.scorer import Scorer, pack

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


def model(config: PretrainedConfig, attention: str) -> PreTrainedModel:
    torch.manual_seed(0)
    made: PreTrainedModel = AutoModelForCausalLM.from_config(deepcopy(config), attn_implementation=attention)
    return made.eval()


def sequences(seed: int, lengths: list[tuple[int, int]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(seed)
    prompts = [random.integers(0, 40, p) for p, _ in lengths]
    return prompts, [random.integers(0, 40, r) for _, r in lengths]


def plain_logp(reference: PreTrainedModel, prompt: np.ndarray, response: np.ndarray) -> torch.Tensor:
    ids = torch.from_numpy(np.concatenate([prompt, response]))[None]
    logp = reference(input_ids=ids).logits[0].log_softmax(-1)
    return logp[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None]).squeeze(1)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_and_chunked_equals_one_sequence_at_a_time(family: str) -> None:
    packed, reference = model(FAMILIES[family], PACKED_ATTENTION), model(FAMILIES[family], "eager")
    prompts, responses = sequences(1, [(3, 5), (7, 1), (1, 9), (4, 4), (2, 12)])
    batch = pack(prompts, responses)
    logp_T, entropy_T = Scorer(packed, chunk_tokens=7)(batch)
    expected = torch.cat([plain_logp(reference, p, r) for p, r in zip(prompts, responses, strict=True)])
    torch.testing.assert_close(logp_T, expected, rtol=0, atol=1e-6)
    assert batch.response_T.bincount().tolist() == [5, 1, 9, 4, 12]
    assert (entropy_T >= 0).all()

    weight = torch.linspace(-1, 1, len(expected))
    loss, expected_loss = (logp_T * weight).mean(), (expected * weight).mean()
    torch.testing.assert_close(loss, expected_loss, rtol=0, atol=1e-6)
    loss.backward()
    expected_loss.backward()
    for (name, ours), theirs in zip(packed.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


def test_prompts_and_responses_go_in_pairs() -> None:
    prompts, responses = sequences(0, [(2, 3), (1, 2)])
    with pytest.raises(ValueError, match="2 prompts and 1 responses"):
        pack(prompts, responses[:1])
    nothing = pack([], [])
    assert (len(nothing.token_P), len(nothing.response_T)) == (1, 0)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8)), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_packing_gives_each_response_its_own_logp(lengths: list[tuple[int, int]], seed: int) -> None:
    prompts, responses = sequences(seed, lengths)
    scorer = Scorer(model(FAMILIES["qwen3"], PACKED_ATTENTION), chunk_tokens=5)
    together, _ = scorer(pack(prompts, responses))
    alone = torch.cat([scorer(pack([p], [r]))[0] for p, r in zip(prompts, responses, strict=True)])
    torch.testing.assert_close(together, alone, rtol=0, atol=2e-6)


@pytest.mark.parametrize("chunk", [1, 3, 10, 100])
def test_chunked_logp_has_the_gradients_of_plain_log_softmax(chunk: int) -> None:
    torch.manual_seed(1)
    hidden, weight = torch.randn(10, 6, dtype=torch.float64), torch.randn(9, 6, dtype=torch.float64)
    target = torch.randint(9, (10,))
    ours = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    plain = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    logp, entropy = chunked_logp(*ours, target, chunk)
    full = (plain[0] @ plain[1].T).log_softmax(1)
    expected = full.gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(logp.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(entropy.double(), -(full.exp() * full).sum(1), rtol=0, atol=1e-6)
    upstream = torch.randn(10)
    logp.backward(upstream)
    expected.backward(upstream.double())
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-6)


def test_entropy_has_no_gradient() -> None:
    hidden = torch.randn(4, 6, requires_grad=True)
    _, entropy = chunked_logp(hidden, torch.randn(9, 6), torch.randint(9, (4,)), 2)
    assert not entropy.requires_grad


def test_capped_logits_have_the_gradients_of_plain_ones() -> None:
    torch.manual_seed(1)
    hidden, weight = torch.randn(10, 6, dtype=torch.float64), torch.randn(9, 6, dtype=torch.float64)
    target, upstream = torch.randint(9, (10,)), torch.randn(10)
    ours = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    plain = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    logp, entropy = chunked_logp(*ours, target, 3, cap=2.0)
    full = (2 * (plain[0] @ plain[1].T / 2).tanh()).log_softmax(1)
    expected = full.gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(logp.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(entropy.double(), -(full.exp() * full).sum(1), rtol=0, atol=1e-6)
    logp.backward(upstream)
    expected.backward(upstream.double())
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-6)


def test_a_model_without_a_linear_output_embedding_is_refused() -> None:
    changed = model(FAMILIES["llama"], PACKED_ATTENTION)
    changed.set_output_embeddings(torch.nn.Identity())
    with pytest.raises(DataError, match="a llama model has no linear output embedding"):
        Scorer(changed, 8)


def test_a_frozen_output_embedding_gets_no_gradient_and_takes_no_memory_for_one() -> None:
    class Multiplied(TorchDispatchMode):
        """Shapes that matrix products made."""

        def __init__(self) -> None:
            super().__init__()
            self.shapes: list[tuple[int, ...]] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm_.default):
                self.shapes.append(tuple(made.shape))
            return made

    torch.manual_seed(1)
    hidden_NE, weight_VE, target_N = torch.randn(10, 4), torch.randn(40, 4), torch.randint(40, (10,))
    grads, products = {}, {}
    for trained in (True, False):
        hidden, weight = hidden_NE.clone().requires_grad_(), weight_VE.clone().requires_grad_(trained)
        logp_N, _ = chunked_logp(hidden, weight, target_N, chunk=3)
        with Multiplied() as multiplied:
            logp_N.sum().backward()
        grads[trained], products[trained] = hidden.grad, multiplied.shapes.count((40, 4))
        assert (weight.grad is not None) is trained
    assert torch.equal(grads[True], grads[False])
    assert products == {True: 4, False: 0}
