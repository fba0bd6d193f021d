"""Every model gives a batch what its responses have alone, and their gradients: packed where it can, else padded."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tasks.errors import DataError
from tasks.models.fitting import fitting_scorer
from tasks.models.packing import PACKED_ATTENTION, _has_kernels
from tasks.models.scorer import chunked_logp, pack
from tasks.train.backend import convert_parameters
from tests.models.families import FAMILIES, PACKABLE, PADDED, made, plain_logp, sequences


@pytest.mark.parametrize("kind", [*PACKABLE, *PADDED])
def test_a_batch_gives_each_response_its_own_log_probabilities(kind: str) -> None:
    config = {**PACKABLE, **PADDED}[kind]
    scorer, reference = fitting_scorer(made(config), 7), made(config, "eager")
    assert (scorer.model.config._attn_implementation == PACKED_ATTENTION) is (kind in PACKABLE)
    prompts, responses = sequences(1, [(3, 5), (7, 1), (1, 9), (4, 4)])
    logp_T, _ = scorer(pack(prompts, responses))
    expected_T = torch.cat([plain_logp(reference, p, r) for p, r in zip(prompts, responses, strict=True)])
    torch.testing.assert_close(logp_T, expected_T, rtol=0, atol=1e-5)
    (logp_T * torch.linspace(-1, 1, len(logp_T))).mean().backward()
    (expected_T * torch.linspace(-1, 1, len(logp_T))).mean().backward()
    for (name, ours), theirs in zip(scorer.model.named_parameters(), reference.parameters(), strict=True):
        if theirs.grad is None:
            assert ours.grad is None or not ours.grad.any()
            continue
        largest = float(theirs.grad.abs().max())
        message = f"{name}: gradients up to {largest}"
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-5 * max(1, largest), msg=message)


def test_layers_that_hand_on_fp32_are_scored_in_bfloat16_too() -> None:
    scorer = fitting_scorer(made(PADDED["convolution and recurrence"]), 7)
    batch = pack(*sequences(1, [(3, 5), (7, 1)]))
    expected_T, _ = scorer(batch)
    convert_parameters(scorer.model, "bfloat16")
    torch.testing.assert_close(scorer(batch)[0], expected_T, rtol=0, atol=0.1)


def test_a_model_that_fits_no_scoring_mode_is_refused() -> None:
    found = made(FAMILIES["llama"])
    found.lm_head.register_forward_hook(lambda _module, _arguments, logits_BLV: logits_BLV**3)
    with pytest.raises(DataError, match=r"llama model cannot .*packed: differ by .*; sdpa: differ .*; eager: differ"):
        fitting_scorer(found, 8)


@pytest.mark.parametrize(("width", "of_values"), [(128, 128), (192, 128), (100, 100)])
def test_kernels_take_heads_of_one_width_that_8_divides(width: int, of_values: int) -> None:
    with FakeTensorMode():
        query, value = (torch.empty(3, 2, size, dtype=torch.bfloat16, device="cuda") for size in (width, of_values))
    assert _has_kernels(query, value) is (width == 128)


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("chunk", [1, 3, 10, 100])
def test_chunked_logp_has_the_gradients_of_plain_log_softmax(chunk: int, cap: float | None) -> None:
    torch.manual_seed(1)
    hidden, weight = torch.randn(10, 6, dtype=torch.float64), torch.randn(9, 6, dtype=torch.float64)
    target, upstream = torch.randint(9, (10,)), torch.randn(10)
    ours, plain = ([one.clone().requires_grad_() for one in (hidden, weight)] for _ in range(2))
    logp, entropy = chunked_logp(*ours, target, chunk, cap)
    logits = plain[0] @ plain[1].T
    full = (logits if cap is None else cap * (logits / cap).tanh()).log_softmax(1)
    expected = full.gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(logp.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(entropy.double(), -(full.exp() * full).sum(1), rtol=0, atol=1e-6)
    assert not entropy.requires_grad
    logp.backward(upstream)
    expected.backward(upstream.double())
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-6)


def test_a_model_without_a_linear_output_embedding_is_refused() -> None:
    changed = made(FAMILIES["llama"])
    changed.set_output_embeddings(torch.nn.Sequential(changed.lm_head, torch.nn.Tanh()))
    with pytest.raises(DataError, match=r"a llama model cannot be trained.* 'Sequential' object has no .*weight"):
        fitting_scorer(changed, 8)


def test_a_frozen_output_embedding_gets_no_gradient_and_takes_no_memory_for_one() -> None:
    shapes: list[tuple[int, ...]] = []

    class Multiplied(TorchDispatchMode):
        """Notes the shapes that matrix products make."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm_.default):
                shapes.append(tuple(made.shape))
            return made

    torch.manual_seed(1)
    hidden_NE, weight_VE, target_N = torch.randn(10, 4), torch.randn(40, 4), torch.randint(40, (10,))
    grads, products = {}, {}
    for trained in (True, False):
        hidden, weight = hidden_NE.clone().requires_grad_(), weight_VE.clone().requires_grad_(trained)
        logp_N, _ = chunked_logp(hidden, weight, target_N, chunk=3)
        shapes.clear()
        with Multiplied():
            logp_N.sum().backward()
        grads[trained], products[trained] = hidden.grad, shapes.count((40, 4))
        assert (weight.grad is not None) is trained
    assert torch.equal(grads[True], grads[False])
    assert products == {True: 4, False: 0}
