"""An engine counts the forward passes that it makes, and a new engine is one file and one row."""

import gc
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest

from tasks.errors import SettingsError
from tasks.rollout.engine import Request, Sampling, Work, load_engine
from tasks.settings import EngineSettings
from tasks.store import ArtifactRef, Store


def test_the_counts_are_those_of_the_model(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    engine = load_engine(store.path(policy), EngineSettings(batch_size=8))
    seen: Counter[str] = Counter()

    def count(_module: object, _inputs: object, named: dict[str, object]) -> None:
        seen["passes"] += 1
        seen["rows"] += len(named["input_ids"])  # type: ignore[arg-type]  # a tensor

    engine._model.register_forward_pre_hook(count, with_kwargs=True)  # type: ignore[attr-defined]  # of this engine
    prompts = [[5, 6, 7], [5, 9, 7], [8, 6, 7]]
    requests = [Request(str(n), index, ids, 31 * n + index) for n, ids in enumerate(prompts) for index in range(7)]
    lengths = [len(one.token_ids) for one in engine.generate(requests, Sampling(24), lambda _responses, _tokens: None)]
    assert len(set(lengths)) > 3
    # Batches of 8, 8 and 5 rows; a first pass reads each prompt of a batch once, for all of its responses.
    first_passes = 8 + 8 + 5 - (2 + 2 + 1)
    assert (engine.work.passes, engine.work.rows) == (seen["passes"], seen["rows"] + first_passes)
    assert engine.work.tokens == sum(lengths) <= engine.work.rows
    assert engine.work.full_passes <= engine.work.passes
    engine.work = Work()
    engine.generate(requests[:1], Sampling(24), lambda _responses, _tokens: None)
    assert engine.work == pytest.approx(Work(*[lengths[0]] * 4))


class Own:
    """An engine from outside of the package."""

    @classmethod
    def load(cls, folder: Path, settings: EngineSettings, takes_turns: bool) -> "Own":
        return cls()


def test_a_new_engine_is_a_class_of_settings(tmp_path: Path) -> None:
    class OwnSettings(EngineSettings):
        path = f"{__name__}:Own"
        kind: Literal["own"] = "own"
        beams: int = 1

    settings = EngineSettings.parse({"kind": "own", "tensor_parallel": 2, "beams": 3})
    assert isinstance(settings, OwnSettings)
    assert isinstance(load_engine(tmp_path, settings), Own)
    del settings, OwnSettings
    gc.collect()
    assert set(EngineSettings.kinds()) == {"transformers", "vllm"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "own"}, "engine.kind: got 'own'; should be 'transformers' or 'vllm'"),
        ({"tensor_parallel": 2}, "tensor_parallel 2 with kind transformers; allowed: 1, or kind vllm"),
    ],
)
def test_what_an_engine_does_not_allow_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        EngineSettings.parse(values)
