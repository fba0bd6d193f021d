"""The trainer's and the engine's numbers on a GPU beside those on the CPU (make test-gpu).

Tolerances: float32 without TF32 within 1e-4 of the CPU; bfloat16 within 0.05 in every log-probability of a model with
logits of ordinary size, and gradients that point the same way within a cosine of 0.999.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import PretrainedConfig, PreTrainedModel, Qwen2Config, Qwen3Config

from tasks.errors import SettingsError
from tasks.models.loading import enough_memory
from tasks.models.packing import PACKED_ATTENTION
from tasks.models.scorer import MicroBatch, Scorer, pack
from tasks.rollout.engine import Request, Sampling
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.train.torch_backend import TorchBackend
from tests.models.families import SHAPE as SMALL
from tests.models.families import model as initialised

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
GPU = torch.device("cuda")
SIZES = {"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4}
SHAPE = {**SMALL, **SIZES, "max_position_embeddings": 512, "eos_token_id": 0}
QWEN3 = Qwen3Config(**SHAPE, head_dim=64)
QWEN2 = Qwen2Config(**SHAPE)
of_each_model = pytest.mark.parametrize("config", [QWEN2, QWEN3], ids=["qwen2", "qwen3"])
LENGTHS = [(20, 7), (33, 160), (5, 64), (12, 1), (40, 250)]
FLOAT32, COSINE, BFLOAT16 = 1e-4, 0.999, 0.05


@pytest.fixture(autouse=True)
def _exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


def model(config: PretrainedConfig, attention: str = PACKED_ATTENTION) -> PreTrainedModel:
    return initialised(config, attention).float()


def batch(lengths: list[tuple[int, int]] = LENGTHS) -> MicroBatch:
    random = np.random.default_rng(0)
    return pack([random.integers(1, 1000, p) for p, _ in lengths], [random.integers(1, 1000, r) for _, r in lengths])


def scored(scorer: Scorer, given: MicroBatch) -> tuple[Tensor, Tensor]:
    """logp_T and all gradients of a loss in one row, on the CPU."""
    scorer.zero_grad()
    logp_T, _ = scorer(given)
    weight_T = torch.linspace(-1, 1, len(logp_T), device=logp_T.device)
    (logp_T * weight_T).mean().backward()
    gradients = [one.grad.flatten().float().cpu() for one in scorer.parameters() if one.grad is not None]
    return logp_T.detach().cpu(), torch.cat(gradients)


@of_each_model
def test_float32_equals_the_cpu(config: PretrainedConfig) -> None:
    here = scored(Scorer(model(config), 100), batch())
    there = scored(Scorer(model(config).to(GPU), 100), batch())
    for ours, theirs in zip(there, here, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=FLOAT32, atol=FLOAT32)


@of_each_model
def test_flash_attention_in_bfloat16_is_near_padded_attention_in_float32(config: PretrainedConfig) -> None:
    here = scored(Scorer(model(config), 100), batch())
    there = scored(Scorer(model(config).to(GPU, torch.bfloat16), 100), batch())
    torch.testing.assert_close(there[0], here[0], rtol=0, atol=BFLOAT16)
    assert cosine_similarity(there[1], here[1], dim=0) > COSINE


def test_a_window_is_kept_by_flash_attention() -> None:
    config = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=16, max_window_layers=0)
    scorer = Scorer(model(config).to(GPU, torch.bfloat16), 100)
    reference = model(config, "eager")
    given = batch([(20, 100)])
    logits = reference(input_ids=given.token_P[None]).logits[0].log_softmax(-1)
    expected = logits[given.predictor_T].gather(1, given.target_T[:, None]).squeeze(1)
    torch.testing.assert_close(scorer(given)[0].cpu(), expected, rtol=0, atol=BFLOAT16)


def trainer(dtype: str) -> TorchBackend:
    adamw = {"learning_rate": 1e-4, "adam_beta1": 0.9, "adam_beta2": 0.999, "weight_decay": 0.0}
    settings = SimpleNamespace(backend=SimpleNamespace(dtype=dtype), max_grad_norm=1.0, **adamw)
    return TorchBackend(Scorer(model(QWEN3).to(GPU), 100), settings)  # type: ignore[arg-type]  # what it reads


def train(backend: TorchBackend, updates: int) -> None:
    for _ in range(updates):
        logp_T, _ = backend(batch())
        backend.backward(-logp_T.sum(), last=True)
        backend.step(float(len(logp_T)), 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_goes_on_from_a_state(dtype: str) -> None:
    straight, before, after = (trainer(dtype) for _ in range(3))
    train(straight, 6)
    train(before, 3)
    after.set_weights({name: weight.cpu() for name, weight in before.weights()})
    after.set_moments({name: moment.cpu() for name, moment in before.moments()}, 3)
    train(after, 3)
    expected = dict(straight.weights())
    for name, weight in after.weights():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=2e-5)


def test_bfloat16_learns_as_float32_does() -> None:
    """Twenty AdamW steps towards the same tokens: the float32 weights behind the copy move alike."""
    likelihoods = {}
    for dtype in ("float32", "bfloat16"):
        backend = trainer(dtype)
        train(backend, 20)
        likelihoods[dtype] = float(backend(batch())[0].mean())
    start = float(Scorer(model(QWEN3), 100)(batch())[0].mean())
    assert likelihoods["float32"] > start + 0.5
    assert likelihoods["bfloat16"] - start == pytest.approx(likelihoods["float32"] - start, rel=0.05)


def test_engine_and_trainer_give_equal_log_probabilities() -> None:
    engine = TransformersEngine(model(QWEN3, "sdpa").to(GPU), [0], 8)
    prompts = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
    requests = [Request("p", i, prompt, i) for i, prompt in enumerate(prompts)]
    responses = engine.generate(requests, Sampling(64), lambda *_: None)
    logp_T, _ = Scorer(model(QWEN3).to(GPU), 100)(pack(prompts, [one.token_ids for one in responses]))
    told = torch.from_numpy(np.concatenate([one.logp for one in responses]))
    torch.testing.assert_close(logp_T.detach().cpu(), told, rtol=0, atol=1e-3)
    again = engine.generate(requests, Sampling(64), lambda *_: None)
    assert all((a.token_ids == b.token_ids).all() for a, b in zip(responses, again, strict=True))


def test_out_of_memory_names_the_setting() -> None:
    with pytest.raises(SettingsError, match=r"optimize: out of memory. Lower"), enough_memory("optimize", "Lower it."):
        torch.empty(2**50, dtype=torch.uint8, device=GPU)
