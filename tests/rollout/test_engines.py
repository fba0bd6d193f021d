"""The contract of every engine that is installed here: ids, log-probabilities, seeds, limits, counts of its work."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Literal
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tasks.errors import DataError, DeviceError, SettingsError, UserError
from tasks.models.loading import enough_memory, load_model, load_tokenizer, stop_token_ids
from tasks.models.step import prepare_policy
from tasks.process.resident import release
from tasks.rollout import vllm_engine
from tasks.rollout.engine import Engine, Request, Response, Sampling, engine_of, load_engine
from tasks.rollout.step import build_requests, sampling_seed, tokenise_all
from tasks.rollout.transformers_engine import TransformersEngine, _choose
from tasks.settings import ArithmeticSettings, EngineSettings, PolicySettings
from tasks.settings.devices import VllmSettings
from tasks.store import Store
from tests.conftest import SMALL
from tests.models.families import SHAPE, brought, made, shaped

TWENTY = Sampling(20)
PROMPTS = ["12+3*4=", "5*6=", "(2+3)*4-5=", "99+9*9=", "7="]
KINDS = ["transformers", *(["vllm"] if find_spec("vllm") else [])]


def fast(kind: str) -> dict[str, object]:
    """Settings with which an engine of a kind starts fast."""
    return {"kind": kind, "eager": True} if kind == "vllm" else {"kind": kind}


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny policy with attention heads as wide as vLLM needs them on a CPU."""
    store = Store.open(tmp_path_factory.mktemp("engines") / "store")
    settings = PolicySettings(tiny=SMALL.model_copy(update={"hidden_size": 64}))
    return store.path(prepare_policy(store, settings, ArithmeticSettings(), "", 0))


@pytest.fixture(scope="module", params=KINDS)
def engine(policy_folder: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    few = {"batch_tokens": 64} if request.param == "vllm" else {}  # Fewer than the prompts of a batch have.
    engine = load_engine(policy_folder, EngineSettings.parse({**fast(request.param), "batch_size": 16, **few}))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def requests(policy_folder: Path) -> list[Request]:
    rows = [{"prompt_id": text, "prompt": text, "chat": False} for text in PROMPTS]
    return build_requests(tokenise_all(load_tokenizer(policy_folder), rows, 64, 20), range(5), "stage 0", 0)


def run(engine: Engine, requests: Sequence[Request], sampling: Sampling = TWENTY) -> list[Response]:
    return engine.generate(requests, sampling, lambda *_: None)


# This test is the first one, because vLLM takes its environment from an engine that is open in the same process.
@pytest.mark.skipif("vllm" not in KINDS, reason="vLLM is not installed here")
def test_vllm_whose_process_is_killed_is_an_error(
    policy_folder: Path, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")  # as on a GPU
    engine = load_engine(policy_folder, EngineSettings.parse(fast("vllm")))

    def kill(_responses: int, _tokens: int) -> None:
        for child in active_children():
            child.kill()

    with pytest.raises(DeviceError, match="vLLM's process ended while it generated"):
        engine.generate(requests, TWENTY, kill)
    engine.close()


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_tokens_and_logp_are_those_of_a_full_forward_pass(
    engine: Engine, requests: list[Request], policy_folder: Path, temperature: float
) -> None:
    model = load_model(policy_folder)
    for request, response in zip(requests, run(engine, requests, Sampling(20, temperature)), strict=True):
        ids = torch.tensor([request.prompt_token_ids + response.token_ids.tolist()])
        start = len(request.prompt_token_ids)
        with torch.no_grad():
            full = model(input_ids=ids).logits[0, start - 1 : -1].log_softmax(-1)
        if temperature == 0:
            assert full.argmax(1).tolist() == response.token_ids.tolist()
            continue
        expected = full.gather(1, ids[0, start:, None]).squeeze(1).numpy()
        np.testing.assert_allclose(response.logp, expected, rtol=0, atol=1e-4)


def test_a_response_ends_at_a_stop_token_or_limit(engine: Engine, requests: list[Request], policy_folder: Path) -> None:
    stop = set(stop_token_ids(policy_folder))
    responses = run(engine, requests)
    assert {response.finish_reason for response in responses} == {"stop", "length"}
    for response in responses:
        assert len(response.token_ids) == len(response.logp)
        assert not stop & set(response.token_ids[:-1].tolist())
        assert (response.token_ids[-1] in stop) is (response.finish_reason == "stop")
        assert response.finish_reason == "stop" or len(response.token_ids) == 20


def same(first: Response, second: Response) -> bool:
    return first.token_ids.tolist() == second.token_ids.tolist() and first.finish_reason == second.finish_reason


def test_seeds_repeat_and_what_else_is_in_the_batch_changes_no_token(engine: Engine, requests: list[Request]) -> None:
    together = run(engine, requests)
    assert len({tuple(response.token_ids) for response in together[:5]}) > 1
    alone = [run(engine, [request])[0] for request in requests]
    for other in (run(engine, requests), alone, run(engine, requests[::-1])[::-1]):
        assert all(same(*pair) for pair in zip(together, other, strict=True))


def test_sampled_tokens_follow_the_distribution(engine: Engine, requests: list[Request]) -> None:
    many = [Request("p", i, requests[0].prompt_token_ids, sampling_seed(0, "x", "p", i)) for i in range(4000)]
    responses = run(engine, many, Sampling(1))
    counts = np.bincount([response.token_ids[0] for response in responses], minlength=22)
    share = {int(response.token_ids[0]): float(np.exp(response.logp[0])) for response in responses}
    for token, probability in share.items():
        assert abs(counts[token] / 4000 - probability) < 4 * np.sqrt(probability * (1 - probability) / 4000) + 1e-3
    token_B, logp_B = _choose(torch.tensor([[1.0, 4.0]] * 4).log(), 2.0, torch.tensor([0.0, 0.3, 0.36, 0.99]))
    assert [*token_B.tolist(), *logp_B.exp().tolist()] == pytest.approx([0, 0, 1, 1, 1 / 3, 1 / 3, 2 / 3, 2 / 3])


def test_reported_progress_adds_up_to_all_responses(engine: Engine, requests: list[Request]) -> None:
    seen: list[tuple[int, int]] = []
    responses = engine.generate(requests, TWENTY, lambda *done: seen.append(done))
    assert np.sum(seen, axis=0).tolist() == [len(requests), sum(len(one.token_ids) for one in responses)]
    assert run(engine, []) == []


def test_work_is_counted_as_the_model_does_it(policy_folder: Path) -> None:
    engine = load_engine(policy_folder, EngineSettings(batch_size=8))
    seen: Counter[str] = Counter()

    def count(_module: object, _inputs: object, named: dict[str, object]) -> None:
        seen["passes"] += 1
        seen["rows"] += len(named["input_ids"])  # type: ignore[arg-type]  # a tensor

    engine._model.register_forward_pre_hook(count, with_kwargs=True)  # type: ignore[attr-defined]  # of this engine
    prompts = [[5, 6, 7], [5, 9, 7], [8, 6, 7]]
    requests = [Request(str(n), index, ids, 31 * n + index) for n, ids in enumerate(prompts) for index in range(7)]
    lengths = [len(one.token_ids) for one in run(engine, requests, Sampling(24))]
    assert len(set(lengths)) > 3
    # Batches of 8, 8 and 5 rows; a first pass reads each prompt of a batch once, for all of its responses.
    first_passes = 8 + 8 + 5 - (2 + 2 + 1)
    assert (engine.work.passes, engine.work.rows) == (seen["passes"], seen["rows"] + first_passes)
    assert engine.work.tokens == sum(lengths) <= engine.work.rows
    means = [np.mean(lengths[start : start + 8]) for start in (0, 8, 16)]
    assert engine.work.full_passes == pytest.approx(sum(means))


class Own:
    """An engine from outside of the package."""

    @classmethod
    def load(cls, folder: Path, settings: EngineSettings, colocated: bool) -> "Own":
        return cls()


def test_a_new_engine_is_a_class_of_settings(tmp_path: Path) -> None:
    class OwnSettings(EngineSettings):
        path = f"{__name__}:Own"
        kind: Literal["own"] = "own"
        beams: int = 1

    settings = EngineSettings.parse({"kind": "own", "tensor_parallel": 2, "beams": 3})
    assert isinstance(load_engine(tmp_path, settings), Own)
    OwnSettings.path = "nowhere:Own"
    with pytest.raises(SettingsError, match=r"own is nowhere:Own, which cannot be imported.*PYTHONPATH"):
        load_engine(tmp_path, settings)
    del settings, OwnSettings
    gc.collect()
    assert set(EngineSettings.kinds()) == {"transformers", "vllm"}
    with pytest.raises(SettingsError, match=r"engine.kind: got 'own'; should be 'transformers' or 'vllm'"):
        EngineSettings.parse({"kind": "own"})


def test_generation_without_memory_says_what_to_lower_and_other_errors_pass(policy_folder: Path) -> None:
    engine = load_engine(policy_folder, EngineSettings())
    with pytest.raises(SettingsError, match=r"generate: out of memory. Lower .*batch_size.*can't allocate memory"):
        run(engine, [Request("a", 0, [1, 2, 3], 0)], Sampling(2**55))
    with pytest.raises(RuntimeError, match="size of tensor"), enough_memory("work", "Lower it."):
        torch.ones(2) + torch.ones(3)


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_stays_until_another_is_needed(kind: str, policy_folder: Path, requests: list[Request]) -> None:
    settings = EngineSettings.parse(fast(kind))
    first = engine_of(policy_folder, "one", settings)
    before = run(first, requests)
    assert engine_of(policy_folder, "one", settings) is first
    assert engine_of(policy_folder, "one", settings.model_copy(update={"batch_size": 3})) is not first
    other = engine_of(policy_folder, "two", settings)
    assert other is not first
    assert all(same(*pair) for pair in zip(before, run(other, requests), strict=True))
    release()
    with pytest.raises(AttributeError):
        run(other, requests)


@pytest.mark.skipif("vllm" in KINDS, reason="vLLM is installed here")
def test_an_engine_that_is_not_installed_is_named(policy_folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"engine.kind: vllm is not installed here.*set rollout.engine.kind"):
        load_engine(policy_folder, EngineSettings(kind="vllm"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("max_num_batched_tokens is too small"), SettingsError),
        (RuntimeError("Engine core initialization failed. See root cause above."), DeviceError),
        (torch.OutOfMemoryError("CUDA out of memory"), DeviceError),
    ],
)
def test_vllm_that_does_not_start_is_tried_again_unless_its_settings_are_wrong(
    monkeypatch: pytest.MonkeyPatch, policy_folder: Path, error: Exception, kind: type[UserError]
) -> None:
    monkeypatch.setattr("tasks.errors.find_spec", lambda _: True)
    monkeypatch.setattr(vllm_engine.os, "environ", dict(os.environ))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=Mock(side_effect=error)))
    with pytest.raises(kind, match=rf"vllm cannot load .*: {error}") as raised:
        vllm_engine.VllmEngine(policy_folder, VllmSettings(kind="vllm"))
    assert raised.value.recoverable == (kind is DeviceError)


@pytest.mark.parametrize("kind", ["rwkv", "recurrent_gemma"])
def test_models_whose_state_is_not_in_the_cache_are_refused(kind: str) -> None:
    config = shaped(kind, **SHAPE, attention_hidden_size=32, lru_width=32, block_types=["recurrent", "attention"])
    with pytest.raises(DataError, match=f"a {kind} model keeps the state of earlier tokens where the transformers"):
        TransformersEngine(made(config), [1], 4)


@pytest.mark.parametrize("asked", [None, 64, 20])
def test_longrope_ends_where_a_longer_sequence_would_change_all_positions(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None
) -> None:
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 10000.0}
    config = shaped("phi3", **SHAPE, original_max_position_embeddings=32, rope_parameters=rope)
    folder = brought(config, policy_folder, tmp_path / "phi")
    assert load_engine(folder, EngineSettings()).context_tokens == 32
    started = Mock(side_effect=ValueError)
    monkeypatch.setattr("tasks.errors.find_spec", lambda _: True)
    monkeypatch.setattr(vllm_engine.os, "environ", dict(os.environ))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=started))
    with pytest.raises(SettingsError):
        load_engine(folder, VllmSettings(max_model_len=asked))
    assert started.call_args.kwargs["max_model_len"] == min(32, asked or 32)


@pytest.mark.skipif("vllm" not in KINDS, reason="vLLM is not installed here")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel": 64}, r"engine.tensor_parallel: 64 GPUs, but this machine has \d+. Lower"),
        ({"max_model_len": 10**6}, r"(?s)vllm cannot load .*'max_model_len': 1000000.*max_model_len"),
        ({"batch_tokens": 1, "batch_size": 8}, r"(?s)vllm cannot load .*'batch_tokens': 1.*max_num_batched_tokens"),
    ],
)
def test_impossible_settings_of_vllm_are_refused(policy_folder: Path, settings: dict[str, int], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_engine(policy_folder, EngineSettings.parse({"kind": "vllm", "eager": True, **settings}))


@pytest.mark.skipif("vllm" not in KINDS, reason="vLLM is not installed here")
def test_vllm_reserves_for_sequences_of_the_length_that_is_asked_for(policy_folder: Path) -> None:
    engine = load_engine(policy_folder, EngineSettings.parse({**fast("vllm"), "max_model_len": 40}))
    assert engine.context_tokens == 40
    engine.close()
