"""Generator and trainer in one process: gates look at the whole stage, and nothing stays open."""

from contextlib import closing
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tasks.errors import GateError, SettingsError
from tasks.models.loading import load_tokenizer
from tasks.rollout.engine import Engine, load_engine
from tasks.settings import OptimizeSettings, RolloutSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import ROLLOUTS, to_table
from tasks.train import colocated as loops
from tasks.train.colocated import Colocated
from tasks.verify.step import verdict_table
from tasks.verify.verdicts import Outcome, Verdict
from tests.train.small import Small

ROLLOUT = RolloutSettings(responses_per_prompt=4, max_new_tokens=2)
OPTIMIZE = OptimizeSettings(preset="grpo", responses_per_update=16)


def loop_of(
    store: Store, policy: ArtifactRef, shards: list[ArtifactRef], optimize: OptimizeSettings = OPTIMIZE
) -> Colocated:
    verify = VerifySettings(workers=1, max_failure_share=0.05)
    return Colocated(store, ROLLOUT, verify, optimize, 4, policy, policy, shards, 0, 0)


def test_the_verifier_may_fail_so_often_in_a_stage_not_in_a_refresh(small: Small, shards: list[ArtifactRef]) -> None:
    responses = [
        {"prompt_id": f"p{row}", "sample_index": sample, "response_token_ids": [1], "finish_reason": "stop"}
        for row in range(4)
        for sample in range(4)
    ]
    table = to_table(responses, ROLLOUTS)
    judged = [Verdict(Outcome.WRONG, 0.0, "1", True)] * 14 + [Verdict(Outcome.TIMEOUT, None, "9", True)] * 2
    failing = verdict_table(responses, judged)
    with closing(loop_of(*small, shards)) as loop:
        loop.count(table, failing)  # 2 of 16, and of a stage of 64 less than 5 %
        with pytest.raises(GateError, match=r"4 timeouts and 0 crashes among 64 responses, a share of 0\.0625"):
            loop.count(table, failing)


@pytest.mark.filterwarnings("ignore")
def test_the_engine_is_closed_when_the_trainer_cannot_be_loaded(
    small: Small, shards: list[ArtifactRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, policy = small
    tokenizer = load_tokenizer(store.path(policy))
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=4, n_positions=64, eos_token_id=1)
    torch.manual_seed(0)
    with store.write("policy", settings={}, parents={}, seed=0) as draft:
        GPT2LMHeadModel(config).save_pretrained(draft.path)
        tokenizer.save_pretrained(draft.path)
    engines: list[Engine] = []

    def watched(*arguments: Any, **options: Any) -> Engine:
        engines.append(load_engine(*arguments, **options))
        return engines[-1]

    monkeypatch.setattr(loops, "load_engine", watched)
    adapters = OptimizeSettings.parse({**OPTIMIZE.model_dump(mode="json"), "lora": {"rank": 2}})
    with pytest.raises(SettingsError, match="Conv1D"):
        loop_of(store, draft.ref, shards, adapters)
    (engine,) = engines
    with pytest.raises(AttributeError):  # It holds no model any more.
        engine.rest()
