"""Liger kernels give what the model's own layers give, and stay in the model they were put into.

Without a GPU they run in Triton's interpreter (make test-liger).
"""

import importlib.util
import os

import numpy as np
import pytest
import torch

from tasks.errors import SettingsError
from tasks.models.loading import apply_liger
from tasks.models.packing import PACKED_ATTENTION
from tasks.models.scorer import Scorer, pack
from tasks.settings import OptimizeSettings
from tasks.train.backend import open_backend
from tests.models.families import FAMILIES, model, sequences

INSTALLED = importlib.util.find_spec("liger_kernel") is not None
needs_liger = pytest.mark.skipif(not INSTALLED, reason="liger-kernel is not installed: make test-liger")
FAMILIES_OF_LIGER = ["qwen3", "qwen2", "llama"]


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets Triton's interpreter run Liger's kernels: it knows neither float arguments nor CUDA's own rsqrt."""
    if not INSTALLED or torch.cuda.is_available():
        return
    assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1, as make test-liger does"
    import liger_kernel.ops.rms_norm as norm
    import triton.language as tl
    from triton.runtime import interpreter

    known = interpreter._implicit_cvt

    def convert(argument: object) -> object:
        if isinstance(argument, float):
            return tl.tensor(interpreter.TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
        return known(argument)

    monkeypatch.setattr(interpreter, "_implicit_cvt", convert)
    monkeypatch.setattr(norm, "rsqrt", lambda x: 1.0 / tl.sqrt(x))


@needs_liger
@pytest.mark.parametrize("family", FAMILIES_OF_LIGER)
def test_the_same_log_probabilities_and_gradients(family: str) -> None:
    plain, ligers = (model(FAMILIES[family], PACKED_ATTENTION) for _ in range(2))
    apply_liger(ligers)
    kinds = {module._get_name() for module in ligers.modules()}
    assert {"LigerRMSNorm", "LigerSwiGLUMLP"} & kinds
    given = pack(*sequences(1, [(3, 5), (7, 1), (4, 4)]))
    results = []
    for one in (plain, ligers):
        logp_T, _ = Scorer(one, chunk_tokens=7)(given)
        (logp_T * torch.linspace(-1, 1, len(logp_T))).mean().backward()
        results.append((logp_T, [parameter.grad for parameter in one.parameters()]))
    (expected, gradients), (logp_T, ours) = results
    torch.testing.assert_close(logp_T, expected, rtol=0, atol=1e-6)
    for gradient, other in zip(ours, gradients, strict=True):
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-6)


@needs_liger
def test_models_made_later_have_their_own_layers() -> None:
    apply_liger(model(FAMILIES["qwen3"], PACKED_ATTENTION))
    later = model(FAMILIES["qwen3"], PACKED_ATTENTION)
    assert not [module for module in later.modules() if "Liger" in module._get_name()]


@needs_liger
def test_a_model_without_kernels_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"has no kernels for a gpt2 model; allowed: .*qwen3"):
        apply_liger(model(FAMILIES["gpt2"], PACKED_ATTENTION))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_they_are_refused() -> None:
    settings = OptimizeSettings.parse({"preset": "mu_grpo", "responses_per_update": 4, "backend": {"liger": True}})
    message = "there is no GPU here" if INSTALLED else "liger-kernel is not installed here"
    with pytest.raises(SettingsError, match=f"optimize.backend.liger: {message}"):
        open_backend(Scorer(model(FAMILIES["qwen3"], PACKED_ATTENTION), 8), settings)
