"""Generator and trainer in one process: gates look at the whole stage, and nothing stays open."""

from pathlib import Path
from typing import Any

import pytest

from tasks.errors import GateError, SettingsError
from tasks.rollout.engine import Engine, load_engine
from tasks.settings import OptimizeSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import ROLLOUTS, to_table
from tasks.train import colocated as loops
from tasks.train.colocated import Colocated
from tasks.verify.step import verdict_table
from tasks.verify.verdicts import Outcome, Verdict
from tests.models.families import FAMILIES, brought
from tests.prepared import ROLLOUT, take_policy
from tests.train.small import Small

OPTIMIZE = OptimizeSettings(preset="grpo", responses_per_update=16)


def loop_of(
    store: Store, policy: ArtifactRef, shards: list[ArtifactRef], optimize: OptimizeSettings = OPTIMIZE
) -> Colocated:
    verify = VerifySettings(workers=1, max_failure_share=0.05)
    return Colocated(store, ROLLOUT, verify, optimize, 4, policy, policy, shards, 0, 0)


def test_failures_are_limited_over_a_stage_not_over_a_refresh(small: Small, shards: list[ArtifactRef]) -> None:
    alike = {"response_token_ids": [1], "finish_reason": "stop"}
    responses = [{"prompt_id": f"p{place // 4}", "sample_index": place % 4, **alike} for place in range(16)]
    table = to_table(responses, ROLLOUTS)
    judged = [Verdict(Outcome.WRONG, 0.0, "1", True)] * 14 + [Verdict(Outcome.TIMEOUT, None, "9", True)] * 2
    failing = verdict_table(responses, judged)
    loop = loop_of(*small, shards)
    loop.count(table, failing)  # 2 of 16, and of a stage of 64 less than 5 %
    with pytest.raises(GateError, match=r"4 timeouts and 0 crashes among 64 responses, a share of 0\.0625"):
        loop.count(table, failing)


def test_the_engine_rests_beside_the_trainer_and_is_closed_when_it_cannot_be_loaded(
    small: Small, shards: list[ArtifactRef], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, policy = small
    loop = loop_of(store, policy, shards)
    loop.refresh(0)
    assert not any(weight.numel() for weight in loop.engine._model.parameters())
    gpt2 = take_policy(store, brought(FAMILIES["gpt2"], store.path(policy), tmp_path / "gpt2"))
    engines: list[Engine] = []

    def watched(*arguments: Any, **options: Any) -> Engine:
        engines.append(load_engine(*arguments, **options))
        return engines[-1]

    monkeypatch.setattr(loops, "load_engine", watched)
    adapters = OptimizeSettings.parse({**OPTIMIZE.model_dump(mode="json"), "lora": {"rank": 2}})
    with pytest.raises(SettingsError, match=r"optimize\.lora: the linear layers of a gpt2 model .*Conv1D"):
        loop_of(store, gpt2, shards, adapters)
    (engine,) = engines
    with pytest.raises(AttributeError):  # It holds no model any more.
        engine.rest()
