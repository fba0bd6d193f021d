"""Responses that cannot be generated: counted, named, kept out of the updates, and above a share an error."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import PROMPTS, VERDICTS, read_table, write_table
from tasks.errors import DataError
from tasks.resident import release
from tasks.rollout import step
from tasks.rollout.engine import MISSING, Engine, Request, Response, Sampling
from tasks.rollout.engines import load_engine
from tasks.rollout.step import generate_shard
from tasks.settings import OptimizeSettings, RolloutSettings, VerifySettings
from tasks.train.stage import optimize_stage
from tasks.verify.step import verify_rollouts

Small = tuple[Store, ArtifactRef]
GROUP = 4


def prompts(store: Store, *texts: str) -> ArtifactRef:
    """A shard of prompts named a, b, c, ..."""
    rows = [
        {"prompt_id": chr(97 + place), "prompt": text, "answer": "1", "chat": False, "level": 1}
        for place, text in enumerate(texts)
    ]
    with store.write("prompts", settings={}, parents={}, seed=0) as draft:
        write_table(draft.path / "prompts.parquet", rows, PROMPTS)
    return draft.ref


def rollout(share: float) -> RolloutSettings:
    return RolloutSettings(
        responses_per_prompt=GROUP, max_new_tokens=12, max_missing_share=share, responses_per_part=GROUP
    )


LONG = "1+" * 30


def test_a_prompt_that_does_not_fit_stops_the_shard_and_is_named(small: Small) -> None:
    store, policy = small
    before = store.manifests("rollouts")
    with pytest.raises(DataError, match=r"4 of the 8 responses cannot .*allows 0.0%.*prompt 'b': 60 tokens and"):
        generate_shard(store, rollout(0), policy, prompts(store, "1+1=", LONG), 0, 0)
    assert store.manifests("rollouts") == before


def test_up_to_a_share_it_is_counted_and_takes_no_part(small: Small) -> None:
    store, policy = small
    shard = generate_shard(store, rollout(0.5), policy, prompts(store, "1+1=", LONG, "2+3="), 0, 0)
    facts = store.manifest(shard).facts
    assert (facts["responses"], facts["missing"], facts["missing_prompts"]) == (12, 4, ["b"])
    rows = read_table(store.path(shard) / "rollouts.parquet").to_pylist()
    assert [row["prompt_id"] for row in rows] == [name for name in "abc" for _ in range(GROUP)]
    gone = [row for row in rows if row["finish_reason"] == "missing"]
    assert [row["prompt_id"] for row in gone] == ["b"] * GROUP
    assert all(row["response_token_ids"] == [] and row["engine_logp"] == [] for row in gone)
    verdicts = verify_rollouts(store, VerifySettings(workers=1), [shard], 0, 0)
    judged = store.manifest(verdicts)
    assert judged.facts["outcomes"]["missing"] == GROUP
    assert judged.facts["responses"] == 12
    without = read_table(store.path(verdicts) / "verdicts.parquet").to_pylist()[GROUP : 2 * GROUP]
    assert [(row["outcome"], row["reward"]) for row in without] == [("missing", None)] * GROUP


class GivingUp:
    """An engine that gives up every fifth request."""

    def __init__(self, engine: Engine) -> None:
        self.context_tokens, self.close, self._engine = engine.context_tokens, engine.close, engine
        self.work = engine.work

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_done: Callable[[int, int], None]
    ) -> list[Response]:
        made = self._engine.generate(requests, sampling, on_done)
        return [MISSING if place % 5 == 0 else response for place, response in enumerate(made)]


def test_what_the_engine_gives_up_is_counted(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def giving_up(folder: Path, _: str, settings: Any) -> GivingUp:
        return GivingUp(load_engine(folder, settings))

    monkeypatch.setattr(step, "engine_of", giving_up)
    store, policy = small
    texts = prompts(store, *[f"{number}+{number}=" for number in range(10, 18)])
    with pytest.raises(DataError, match=r"prompt 'b': the engine gave it up"):
        generate_shard(store, rollout(0.05), policy, texts, 0, 0)
    shard = generate_shard(store, rollout(0.5), policy, texts, 0, 0)
    facts = store.manifest(shard).facts
    assert (facts["missing"], facts["missing_prompts"]) == (8, list("abcdefgh"))
    # One of each group is missing: the others are learned from.
    rows = [
        {
            "prompt_id": row["prompt_id"],
            "sample_index": row["sample_index"],
            "outcome": "correct",
            "reward": None if row["finish_reason"] == "missing" else place % 2,
            "extracted": None,
            "shows_working": False,
        }
        for place, row in enumerate(read_table(store.path(shard) / "rollouts.parquet").to_pylist())
    ]
    with store.write("verdicts", settings={}, parents={}, seed=0) as draft:
        write_table(draft.path / "verdicts.parquet", rows, VERDICTS)
    settings = OptimizeSettings(preset="mu_grpo", responses_per_update=16, learning_rate=1e-4)
    made = optimize_stage(store, settings, policy, policy, [shard], draft.ref, 0, 0)
    updates = read_table(store.path(made) / "metrics.parquet").to_pylist()
    assert sum(row["responses"] for row in updates) == 24
    release()
