"""Every model gives a batch what its responses have alone, and their gradients: packed where it can, else padded."""

import pytest
import torch
from transformers import Qwen2Config

from tasks.errors import DataError
from tasks.policy.fitting import fitting_scorer
from tasks.policy.packing import PACKED_ATTENTION
from tasks.policy.scorer import Scorer, pack
from tests.policy.families import PACKABLE, PADDED, WINDOWED, made
from tests.policy.test_scorer import FAMILIES, SHAPE, model, plain_logp, sequences


@pytest.mark.parametrize("kind", [*PACKABLE, *PADDED])
def test_a_batch_gives_what_each_response_has_alone(kind: str) -> None:
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


def test_a_window_shorter_than_a_sequence_hides_what_is_before_it() -> None:
    windowed, wide = model(WINDOWED, PACKED_ATTENTION), model(Qwen2Config(**SHAPE), PACKED_ATTENTION)
    batch = pack(*sequences(1, [(3, 9)]))
    assert (Scorer(windowed, 8)(batch)[0] - Scorer(wide, 8)(batch)[0]).abs().max() > 1e-4


def test_a_model_that_is_scored_in_no_way_is_refused_with_what_each_gave() -> None:
    found = made(FAMILIES["llama"])
    found.lm_head.register_forward_hook(lambda _module, _arguments, logits_BLV: logits_BLV**3)
    with pytest.raises(DataError, match=r"llama model cannot .*packed: differ by .*; sdpa: differ .*; eager: differ"):
        fitting_scorer(found, 8)
