"""An engine that is given another policy's weights is that policy's engine, for every engine that is installed here."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.errors import SettingsError
from tasks.models.loading import load_model, load_tokenizer
from tasks.models.step import prepare_policy
from tasks.rollout.engine import Engine, Request, Response, load_engine
from tasks.rollout.step import build_requests, tokenise_all
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import ArithmeticSettings, EngineSettings, PolicySettings
from tasks.store import Store
from tests.conftest import SMALL
from tests.rollout.test_engines import KINDS, fast, run, same

LONG = "+".join(["12*34"] * 50)
"""More tokens than two blocks of vLLM's KV cache on a CPU."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    store = Store.open(tmp_path_factory.mktemp("updates") / "store")
    settings = PolicySettings(tiny=SMALL.model_copy(update={"hidden_size": 64, "context_tokens": 400}))
    first, second = (store.path(prepare_policy(store, settings, ArithmeticSettings(), "", seed)) for seed in (0, 1))
    return first, second


@pytest.fixture(scope="module")
def requests(folders: tuple[Path, Path]) -> list[Request]:
    rows = [{"prompt_id": text, "prompt": text, "chat": False} for text in ("12+3*4=", "7=", f"{LONG}=")]
    return build_requests(tokenise_all(load_tokenizer(folders[0]), rows, 400, 20), range(4), "stage 0", 0)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(kind: str, folders: tuple[Path, Path], requests: list[Request]) -> list[list[Response]]:
    """What engines give that were loaded from the policies' folders."""
    made = []
    for folder in folders:
        engine = load_engine(folder, EngineSettings.parse(fast(kind)))
        made.append(run(engine, requests))
        engine.close()
    return made


@pytest.fixture(scope="module")
def engine(kind: str, folders: tuple[Path, Path], expected: list[list[Response]]) -> Iterator[Engine]:
    engine = load_engine(folders[0], EngineSettings.parse(fast(kind)), colocated=True)
    yield engine
    engine.close()


def weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """A policy's, as a trainer gives them."""
    yield from load_model(folder).named_parameters()


def alike(ours: list[Response], theirs: list[Response]) -> bool:
    """The same tokens, with log-probabilities that are equal but for rounding."""
    pairs = zip(ours, theirs, strict=True)
    return all(same(our, their) and np.allclose(our.logp, their.logp, rtol=0, atol=1e-3) for our, their in pairs)


def test_weights_are_loaded_released_and_loaded_again(
    engine: Engine, folders: tuple[Path, Path], requests: list[Request], expected: list[list[Response]]
) -> None:
    first, second = expected
    assert alike(run(engine, requests), first)
    assert not alike(first, second)
    engine.update_weights(weights(folders[1]))
    assert alike(run(engine, requests), second)
    for place in (0, 1, 0):
        engine.rest()
        engine.update_weights(weights(folders[place]))
        assert alike(run(engine, requests), expected[place])


def test_vllm_forgets_the_keys_and_values_of_other_weights(
    kind: str, engine: Engine, folders: tuple[Path, Path], requests: list[Request]
) -> None:
    if kind != "vllm":
        pytest.skip("transformers keep no keys and values from call to call")
    for folder in folders:
        engine.update_weights(weights(folder))
        assert [_cached(engine, requests[-1]) for _ in range(2)] == [0, 256]


def _cached(engine: Engine, request: Request) -> int:
    """Prompt tokens that vLLM did not read because it had their keys and values."""
    llm = engine._llm  # type: ignore[attr-defined]  # of VllmEngine alone
    return int(llm.generate([{"prompt_token_ids": request.prompt_token_ids}], use_tqdm=False)[0].num_cached_tokens)


def test_vllm_is_given_no_weights_under_names_that_it_does_not_know(kind: str, engine: Engine) -> None:
    if kind != "vllm":
        pytest.skip("transformers load weights under the names that they train them under")
    with pytest.raises(SettingsError, match=r"vllm cannot be given model.experts of this .*allowed: transformers"):
        engine.update_weights([("model.experts", torch.zeros(1))])


def test_transformers_share_the_weights_they_are_given(folders: tuple[Path, Path]) -> None:
    engine = TransformersEngine.load(folders[0], EngineSettings())
    trained = load_model(folders[1])
    engine.rest()
    held = dict(engine._model.named_parameters())
    assert sum(parameter.numel() for parameter in held.values()) == 0
    engine.update_weights(trained.named_parameters())
    assert all(held[name].data_ptr() == parameter.data_ptr() for name, parameter in trained.named_parameters())


def test_an_update_without_all_weights_is_an_error(folders: tuple[Path, Path]) -> None:
    engine = TransformersEngine.load(folders[0], EngineSettings())
    with pytest.raises(ValueError, match=r"no weights for model.norm.weight"):
        engine.update_weights([pair for pair in weights(folders[1]) if pair[0] != "model.norm.weight"])


def test_an_engine_computes_in_its_own_type(folders: tuple[Path, Path]) -> None:
    engine = TransformersEngine.load(folders[0], EngineSettings(dtype="bfloat16"))
    engine.rest()
    engine.update_weights(weights(folders[1]))
    assert {parameter.dtype for parameter in engine._model.parameters()} == {torch.bfloat16}
