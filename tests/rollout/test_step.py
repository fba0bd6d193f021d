"""The rollouts of a shard: what ends a response, responses that cannot be generated, and what tells shards apart."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.errors import DataError
from tasks.evaluate.step import evaluate_policy
from tasks.models.loading import load_model
from tasks.process import interruption, resident
from tasks.process.logs import bar
from tasks.rollout.engine import MISSING, Request, Response
from tasks.rollout.step import LengthCount, generate_shard, progress_callback
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import EvaluationSettings, OptimizeSettings, RolloutSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import PROMPTS, VERDICTS, read_table
from tasks.train.stage import optimize_stage
from tasks.verify.step import verify_rollouts
from tests import prepared
from tests.cli.synthetic import write
from tests.llama import CHATML, TURN_END, byte_tokenizer, llama
from tests.prepared import Small, take_policy

GROUP = 4
LONG = "1+" * 30


def prompts(store: Store, *texts: str) -> ArtifactRef:
    """A shard of prompts named a, b, c, ..."""
    same = {"answer": "1", "chat": False, "level": 1}
    rows = [{"prompt_id": chr(97 + place), "prompt": text, **same} for place, text in enumerate(texts)]
    return write(store, "prompts", {"prompts.parquet": (rows, PROMPTS)})


def rollout(share: float = 0.0, limit: int = 12) -> RolloutSettings:
    counts = {"responses_per_prompt": GROUP, "responses_per_part": GROUP}
    return RolloutSettings(**counts, max_new_tokens=limit, max_missing_share=share)


def rows_of(store: Store, shard: ArtifactRef) -> list[dict[str, Any]]:
    return read_table(store.path(shard) / "rollouts.parquet").to_pylist()


def preferring(store: Store, folder: Path, *tokens: int) -> ArtifactRef:
    """The model in a folder, so changed that it often samples some tokens, and rarely another special one."""
    model = load_model(folder)
    with torch.no_grad():
        # What all hidden states share decides, whatever they are besides.
        model.model.embed_tokens.weight[:, 0] = 20.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[:] = 0
            layer.mlp.down_proj.weight[:] = 0
        model.lm_head.weight[:, 0] = 0
        model.lm_head.weight[:4, 0] = -4.0
        model.lm_head.weight[list(tokens), 0] = 1.2
    model.save_pretrained(folder)
    return take_policy(store, folder)


def test_the_end_of_a_turn_stops_where_generation_settings_name_another(store: Store, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(eos=TURN_END, template=CHATML)
    policy = preferring(store, llama(tmp_path / "llama", tokenizer), 1, 3)
    made = generate_shard(store, rollout(limit=40), policy, prompts(store, "1+1=", "2+2=", "3+3="), 0, 0)
    rows = rows_of(store, made)
    assert {row["response_token_ids"][-1] for row in rows if row["finish_reason"] == "stop"} == {1, 3}
    assert not any({1, 3} & set(row["response_token_ids"][:-1]) for row in rows)
    facts = store.manifest(made).facts
    assert "warning" not in facts
    assert (facts["stage"], facts["responses"]) == (1, len(rows))  # Stages count from 1, as a policy's do.
    assert facts["response_tokens"] == np.mean([len(row["response_token_ids"]) for row in rows])
    assert facts["truncated"] == np.mean([row["finish_reason"] == "length" for row in rows])


def test_a_warning_names_a_missing_stop_token(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = preferring(store, llama(tmp_path / "llama"), 3)
    made = generate_shard(store, rollout(limit=40), policy, prompts(store, "1+1=", "2+2=", "3+3=", "4+4="), 0, 0)
    warning = store.manifest(made).facts["warning"]
    assert "stage 1 generate: 100.0 % of 16 responses end at rollout.max_new_tokens 40" in warning
    assert "(</s> 1)" in warning
    assert "continue after <|im_end|> 3: to stop there, add 3 to eos_token_id in the generation_config.json" in warning
    assert capsys.readouterr().out.count(warning) == 1
    held_out = prepared.prepare_held_out(store, prepared.PROMPTS, 4)
    settings = EvaluationSettings(samples_per_problem=1, max_new_tokens=40)
    made = evaluate_policy(store, settings, prepared.VERIFY, policy, held_out, 0)
    assert "add 3 to eos_token_id" in store.manifest(made).facts["warning"]


@pytest.mark.parametrize(
    ("cut", "responses", "inside", "expected"),
    [
        (8, 10, [], None),
        (9, 10, [], "Raise rollout.max_new_tokens"),
        (1, 1, [], "Raise rollout.max_new_tokens"),
        (10, 10, [3], "add 3 to eos_token_id"),
        (10, 10, [2, 3], "add 2 to eos_token_id"),
        (0, 0, [], None),
    ],
)
def test_the_warning_begins_at_nine_tenths(cut: int, responses: int, inside: list[int], expected: str | None) -> None:
    ids = [70, *inside, 71]
    limit = LengthCount(byte_tokenizer(), [1], "rollout.max_new_tokens 4")
    for reason in ["length"] * cut + ["stop"] * (responses - cut):
        limit.add(np.array(ids, np.int32), reason)
    found = limit.facts("stage 1 generate").get("warning")
    assert (found is None) if expected is None else (expected in str(found))


def test_a_call_that_cannot_end_in_the_grace_period_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with bar("generate", 8) as progress, interruption.defer_sigterm():
        on_done = progress_callback(progress)
        on_done(1, 10)
        os.kill(os.getpid(), signal.SIGTERM)
        on_done(1, 10)  # The call may still end in time, and then its responses are saved.
        late = interruption.time.monotonic() + interruption.CALL_SECONDS + 1
        monkeypatch.setattr(interruption.time, "monotonic", lambda: late)
        with pytest.raises(interruption.Interrupted, match="after the last complete part"):
            on_done(0, 0)
    assert not interruption.stop_requested()


def test_equal_responses_at_another_limit_are_another_artifact(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a rollouts artifact is part of what it is: objectives divide by it."""

    def two_tokens(_engine: object, requests: Sequence[Request], *_: object) -> list[Response]:
        return [Response(np.array([5, 1], np.int32), np.array([-1, -1], np.float32), "stop") for _ in requests]

    monkeypatch.setattr(TransformersEngine, "generate", two_tokens)
    store, policy = small
    shard = prompts(store, "1+1=", "2+2=")
    short, long, again = (generate_shard(store, rollout(limit=limit), policy, shard, 0, 0) for limit in (8, 16, 8))
    assert again == short != long
    assert [store.manifest(ref).settings["max_new_tokens"] for ref in (short, long)] == [8, 16]
    assert rows_of(store, short) == rows_of(store, long)


def test_up_to_a_share_missing_responses_are_counted_and_left_out(small: Small) -> None:
    store, policy = small
    before = store.manifests("rollouts")
    with pytest.raises(DataError, match=r"4 of the 8 responses cannot .*allows 0.0 %.*prompt 'b': 60 tokens and"):
        generate_shard(store, rollout(), policy, prompts(store, "1+1=", LONG), 0, 0)
    assert store.manifests("rollouts") == before
    shard = generate_shard(store, rollout(1 / 3), policy, prompts(store, "1+1=", LONG, "2+3="), 0, 0)
    facts = store.manifest(shard).facts
    assert (facts["responses"], facts["missing"], facts["missing_prompts"]) == (12, 4, ["b"])
    rows = rows_of(store, shard)
    assert [row["prompt_id"] for row in rows] == [name for name in "abc" for _ in range(GROUP)]
    gone = [row for row in rows if row["finish_reason"] == "missing"]
    assert [row["prompt_id"] for row in gone] == ["b"] * GROUP
    assert all(row["response_token_ids"] == [] and row["engine_logp"] == [] for row in gone)
    verdicts = verify_rollouts(store, VerifySettings(workers=1), [shard], 0, 0)
    judged = store.manifest(verdicts)
    assert (judged.facts["outcomes"]["missing"], judged.facts["responses"]) == (GROUP, 12)
    mean = np.mean([len(row["response_token_ids"]) for row in rows if row not in gone])
    assert facts["response_tokens"] == judged.facts["response_tokens"] == mean
    cut = np.mean([row["finish_reason"] == "length" for row in rows if row not in gone])
    assert facts["truncated"] == judged.facts["truncated"] == cut > 0
    assert 0 < facts["call_seconds"][0] <= store.manifest(shard).timings.phases["generate"]
    later = generate_shard(store, rollout(), policy, prompts(store, "3+3="), 0, 0)
    for made in (shard, later):  # One engine made both, and each has its own work.
        tokens = sum(len(row["response_token_ids"]) for row in rows_of(store, made))
        assert store.manifest(made).facts["engine_work"][0]["tokens"] == tokens
    without = read_table(store.path(verdicts) / "verdicts.parquet").to_pylist()[GROUP : 2 * GROUP]
    assert [(row["outcome"], row["reward"]) for row in without] == [("missing", None)] * GROUP


def test_what_the_engine_gives_up_is_counted(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = TransformersEngine.generate

    def without_every_fifth(engine: TransformersEngine, *inputs: Any) -> list[Response]:
        return [MISSING if place % 5 == 0 else one for place, one in enumerate(generate(engine, *inputs))]

    monkeypatch.setattr(TransformersEngine, "generate", without_every_fifth)
    store, policy = small
    texts = prompts(store, *[f"{number}+{number}=" for number in range(10, 18)])
    with pytest.raises(DataError, match=r"prompt 'b': the engine did not complete it"):
        generate_shard(store, rollout(0.05), policy, texts, 0, 0)
    shard = generate_shard(store, rollout(0.5), policy, texts, 0, 0)
    facts = store.manifest(shard).facts
    assert (facts["missing"], facts["missing_prompts"]) == (8, list("abcdefgh"))
    # One of each group is missing: the others are learned from.
    rows = [
        {**row, "outcome": "correct", "reward": None if row["finish_reason"] == "missing" else place % 2}
        for place, row in enumerate(rows_of(store, shard))
    ]
    verdicts = write(store, "verdicts", {"verdicts.parquet": (rows, VERDICTS)})
    settings = OptimizeSettings(preset="mu_grpo", responses_per_update=16, learning_rate=1e-4)
    made = optimize_stage(store, settings, policy, policy, [shard], verdicts, 0, 0)
    assert "engine" not in resident._held, "the trainer needs its memory"
    updates = read_table(store.path(made) / "metrics.parquet").to_pylist()
    assert sum(row["responses"] for row in updates) == 24
    assert [row["response_tokens"] for row in updates] == [row["tokens"] / row["responses"] for row in updates]
    sampler, other = policy.digest[:16], made.digest[:16]
    with pytest.raises(DataError, match=f"sampled by policy {sampler}, but policy {other} .* Generate again"):
        optimize_stage(store, settings, policy, made, [shard], verdicts, 0, 0)
    resident.release()
