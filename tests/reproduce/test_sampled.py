"""What is read of a run's rollouts: lengths, prompts in an engine's order, and the calls with their seconds."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tasks.artifacts import ArtifactRef, Store
from tasks.report.history import History, Stage
from tasks.reproduce.sampled import read_sampled
from tasks.rollout.step import generate_shard
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import ArithmeticSettings, EngineSettings, PromptsSettings, RolloutSettings
from tests.prepared import prepare_stage

PROMPTS = PromptsSettings(prompts_per_stage=12, prompts_per_shard=12, arithmetic=ArithmeticSettings(levels=[1, 2]))
ROLLOUT = RolloutSettings(
    responses_per_prompt=4, max_new_tokens=12, responses_per_part=16, engine=EngineSettings(batch_size=8)
)


@pytest.fixture
def copied(small: tuple[Store, ArtifactRef], tmp_path: Path) -> tuple[Store, ArtifactRef]:
    """A store of the test's own with a tiny policy."""
    store, policy = small
    shutil.copytree(store.root, tmp_path / "copied")
    return Store.open(tmp_path / "copied"), policy


def history_of(store: Store, policy: ArtifactRef, shards: list[ArtifactRef]) -> History:
    """Of one stage; nothing reads what its policy was."""
    stage = Stage(1, 1, 3, store.manifest(policy), [store.manifest(shard) for shard in shards], [])
    return History([], [stage], {}, {}, {}, [], "mu_grpo", 3, 0)


def test_the_calls_of_a_shard(copied: tuple[Store, ArtifactRef]) -> None:
    store, policy = copied
    (prompts,) = prepare_stage(store, PROMPTS, 0, 0)
    made = generate_shard(store, ROLLOUT, policy, prompts, 0, 0)
    sampled = read_sampled(store, history_of(store, policy, [made]))
    assert sampled is not None
    assert sampled.timed
    assert [call.shares for call in sampled.calls] == [(16,), (16,), (16,)]
    phases = store.manifest(made).timings.phases
    assert 0 < sum(call.seconds or 0.0 for call in sampled.calls) <= phases["generate"]
    assert sampled.engine == ROLLOUT.engine
    facts = store.manifest(made).facts
    assert sampled.tokens_R.mean() == pytest.approx(facts["response_tokens"])
    # Responses to a prompt are beside each other; numbers rise with the length of prompts.
    assert (sampled.prompt_R.reshape(12, 4) == sampled.prompt_R.reshape(12, 4)[:, :1]).all()
    in_order = np.argsort(sampled.prompt_R, kind="stable")
    assert (np.diff(sampled.prompt_tokens_R[in_order]) >= 0).all()
    assert sampled.sequence_tokens == sampled.prompt_tokens_R.sum() + sampled.tokens_R.sum()


def test_calls_whose_responses_were_found_have_no_seconds(
    copied: tuple[Store, ArtifactRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, policy = copied
    (prompts,) = prepare_stage(store, PROMPTS, 0, 0)
    kept = Store(store.ref, work="interrupted")
    asked = []
    inner = TransformersEngine.generate

    def generate(self, requests, *rest):
        asked.append(len(requests))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return inner(self, requests, *rest)

    monkeypatch.setattr(TransformersEngine, "generate", generate)
    with pytest.raises(KeyboardInterrupt):
        generate_shard(kept, ROLLOUT, policy, prompts, 0, 0)
    made = generate_shard(kept, ROLLOUT, policy, prompts, 0, 0)
    sampled = read_sampled(store, history_of(store, policy, [made]))
    assert sampled is not None
    assert [call.seconds is None for call in sampled.calls] == [True, True, False]
    assert not sampled.timed


def test_rollouts_from_before_calls_were_timed(copied: tuple[Store, ArtifactRef]) -> None:
    store, policy = copied
    (prompts,) = prepare_stage(store, PROMPTS, 0, 0)
    made = store.manifest(generate_shard(store, ROLLOUT, policy, prompts, 0, 0))
    facts = {name: value for name, value in made.facts.items() if name not in ("call_seconds", "engines")}
    stage = Stage(1, 1, 3, store.manifest(policy), [made.model_copy(update={"facts": facts})], [])
    sampled = read_sampled(store, History([], [stage], {}, {}, {}, [], "mu_grpo", 3, 0))
    assert sampled is not None
    assert [call.seconds for call in sampled.calls] == [None] * 3


def test_engines_share_the_prompts_of_a_refresh(copied: tuple[Store, ArtifactRef]) -> None:
    """As three processes do that alternate: of four prompts the first takes two."""
    store, policy = copied
    (prompts,) = prepare_stage(store, PROMPTS, 0, 0)
    made = store.manifest(generate_shard(store, ROLLOUT, policy, prompts, 0, 0))
    settings = {"updates_per_rollout": 1, "rollout": ROLLOUT.model_dump(mode="json")}
    trained = store.manifest(policy).model_copy(update={"settings": settings, "facts": {"updates_per_rollout": 1}})
    facts = {"call_seconds": [3.0, 2.0, 1.0], "engines": 3}
    stage = Stage(1, 1, 3, trained, [made.model_copy(update={"facts": facts})], [])
    sampled = read_sampled(store, History([], [stage], {}, {}, {}, [], "grpo", 1, 0))
    assert sampled is not None
    assert [(call.shares, call.seconds) for call in sampled.calls] == [((8, 4, 4), one) for one in (3.0, 2.0, 1.0)]


def test_a_run_without_a_stage_has_none(copied: tuple[Store, ArtifactRef]) -> None:
    store, _ = copied
    assert read_sampled(store, History([], [], {}, {}, {}, [], "base", 0, 0)) is None
