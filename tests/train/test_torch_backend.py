"""The torch backend's copies in bfloat16, and where the state of its optimizer is."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, Qwen2Config

from tasks.errors import SettingsError
from tasks.models.loading import load_model
from tasks.models.packing import PACKED_ATTENTION
from tasks.models.scorer import Scorer, pack
from tasks.train.backend import MOMENTS
from tasks.train.stage import load_trainer
from tasks.train.torch_backend import TorchBackend
from tests.models.families import SHAPE, model
from tests.train.small import settings

TOKENS = 2500


def sharp_model() -> PreTrainedModel:
    """Random, with attention that looks at some tokens more than at others, as that of a trained one does."""
    changes = {"vocab_size": 200, "hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": TOKENS}
    sharp = model(Qwen2Config(**SHAPE | changes), PACKED_ATTENTION)
    for name, parameter in sharp.named_parameters():
        if "q_proj" in name or "k_proj" in name or "o_proj" in name:
            parameter.data.mul_(10)
    return sharp


def trained_by(model: PreTrainedModel, dtype: str) -> TorchBackend:
    return TorchBackend(Scorer(model, 500), settings(backend={"kind": "torch", "dtype": dtype}))


@torch.no_grad()
def test_bfloat16_is_as_near_at_the_end_of_a_long_response() -> None:
    exact = Scorer(sharp_model(), 500)
    random = np.random.default_rng(0)
    batch = pack([random.integers(1, 200, 4)], [random.integers(1, 200, TOKENS - 4)])
    exact_T, _ = exact(batch)
    backend = trained_by(sharp_model(), "bfloat16")
    far_T = (backend(batch)[0] - exact_T).abs()
    assert 0 < far_T[:500].mean() < 0.2
    assert far_T[-500:].mean() < 2 * far_T[:500].mean()
    assert {parameter.dtype for parameter in backend.model.parameters()} == {torch.bfloat16}
    for buffer, plain in zip(backend.model.buffers(), exact.model.buffers(), strict=True):
        assert torch.equal(buffer, plain)


@torch.no_grad()
def test_the_reference_of_a_kl_computes_as_the_policy_does(base: Path) -> None:
    kl = {"regulariser": {"kind": "reference_kl", "coefficient": 0.1}}
    trained = settings(preset="grpo", objective=kl, backend={"kind": "torch", "dtype": "bfloat16"})
    trainer = load_trainer(base, trained, 12, 0, base)
    random = np.random.default_rng(0)
    batch = pack([random.integers(2, 20, 4)], [random.integers(2, 20, 30)])
    assert torch.equal(trainer.backend(batch)[0], trainer.reference(batch)[0])
    for buffer, plain in zip(trainer.reference.model.buffers(), load_model(base).buffers(), strict=True):
        assert torch.equal(buffer, plain)


def test_a_gradient_that_is_not_finite_changes_no_weight(base: Path) -> None:
    backend = load_trainer(base, settings(), 12, 0).backend
    before = {name: weight.detach().clone() for name, weight in backend.weights()}
    backend.backward(backend.model.get_input_embeddings().weight.sum() * np.inf, last=True)
    assert not np.isfinite(backend.step(1.0, 1e-3))
    assert all(torch.equal(before[name], weight) for name, weight in backend.weights())


def test_the_state_of_a_weight_is_where_the_weight_is() -> None:
    """Kernels on a GPU want so; the device meta is another than the CPU on every machine."""
    made = trained_by(sharp_model(), "float32")
    shapes = made.shapes()
    moments = {f"{name}.{moment}": torch.zeros(size) for name, size in shapes.items() for moment in MOMENTS}
    backend = trained_by(sharp_model().to("meta"), "float32")
    backend.set_moments(moments, 7)
    states = list(backend.optimizer.state.values())
    assert len(states) == len(shapes)
    assert {tensor.device.type for state in states for tensor in state.values()} == {"meta"}


def test_state_of_the_optimizer_that_does_not_fit_is_named(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim, "AdamW", Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(SettingsError, match=r"optimize: out of memory\. Lower .*, or share the state over more proc"):
        load_trainer(base, settings(), 12, 0)
