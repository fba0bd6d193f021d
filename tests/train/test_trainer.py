"""The trainer: splits change nothing, state outlasts stages, gates stop, damaged rollouts are refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.errors import ArtifactError, CollapseError, DataError, GateError, NothingToLearnError
from tasks.models.loading import load_model, stop_token_ids
from tasks.settings import OperationSettings
from tasks.store import Store
from tasks.store.tables import ROLLOUTS, to_table
from tasks.train.batches import Ragged, Responses, collect, group_order, micro_batches, plan_batches
from tasks.train.checkpoint import Checkpoints, load_optimizer, save_optimizer, save_policy
from tasks.train.results import StageResults
from tasks.train.stage import load_trainer
from tests.train.small import GROUP, LONGEST, Small, batches, responses_with, settings, train, trainer_of, verdicts

ORDER = "it does not have 4 responses in the order of sample_index"


def test_rows_have_stage_update_and_staleness(small: Small, responses: Responses) -> None:
    _, results, _ = train(small, responses, warmup_updates=3)
    places = [(row["stage"], row["update"], row["staleness"]) for row in results.rows]
    assert places == [(1, 1, 0), (1, 2, 1), (1, 3, 2)]
    assert [row["learning_rate"] for row in results.rows] == pytest.approx([2.5e-4, 5e-4, 7.5e-4])
    assert sum(row["responses"] for row in results.rows) == 48
    assert sum(row["tokens"] for row in results.rows) == len(responses.response_tokens.flat)


def test_the_mismatch_is_a_mean_over_the_tokens_of_all_refreshes(small: Small, responses: Responses) -> None:
    trainer, results = trainer_of(small, objective={"data": {"zero_variance": "drop"}}), StageResults(96, 6)
    trainer.train(engine_of(responses, responses.engine_logp.flat + np.float32(0.01)), batches(responses), 0, results)
    mean = results.facts()["logp_mismatch"]
    all_correct = replace(responses, reward_R=np.ones_like(responses.reward_R))  # No token is left.
    trainer.train(all_correct, batches(responses), 0, results)
    assert results.logp_mismatch_max > results.facts()["logp_mismatch"] == mean == pytest.approx(0.01, rel=1e-3)


def test_the_split_into_micro_batches_changes_nothing(small: Small, responses: Responses) -> None:
    objective = {"denominator": "kept", "veto": {"kappa": 1.1}}
    whole = train(small, responses, tokens_per_micro_batch=100_000, objective=objective)[1].rows
    split = train(small, responses, tokens_per_micro_batch=40, objective=objective)[1].rows
    # Only the first update is compared closely: AdamW divides by the gradient's size, so it enlarges rounding.
    for row, other, (rel, absolute) in zip(whole, split, [(1e-5, 1e-6), *[(5e-3, 1e-4)] * 2], strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            close = None if other[name] is None else pytest.approx(other[name], rel=rel, abs=absolute)
            assert value == close, name


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 16}])
def test_training_resumes_from_saved_state_with_equal_bits(
    small: Small, responses: Responses, store: Store, tmp_path: Path, lora: dict[str, int] | None
) -> None:
    base, (straight, _, _) = small[0].path(small[1]), train(small, responses, updates=2, lora=lora)
    save_policy(tmp_path, straight.backend, base, straight.settings.lora)
    save_optimizer(tmp_path, straight.backend, straight.updates)
    resumed = load_trainer(tmp_path, straight.settings, LONGEST, 0, base)
    resumed.checkpoints = Checkpoints(Store(store.ref, work="k").progress, OperationSettings(updates_per_checkpoint=1))
    for trainer in (straight, resumed):
        trainer.train(responses, batches(responses)[2:], 1, StageResults(96, 2))
    assert resumed.updates == straight.updates == 3
    assert [path.name for path in store.root.glob("progress/k/train-*")] == ["train-000001"], "not of this stage"
    for ours, theirs in zip(straight.backend.weights(), resumed.backend.weights(), strict=True):
        assert torch.equal(ours[1], theirs[1])
    assert {float(state["step"]) for state in resumed.backend.optimizer.state.values()} == {3.0}
    assert all((".lora_" in name) is bool(lora) for name in load_file(tmp_path / "optimizer/moments.safetensors"))


def test_moments_of_another_model_are_refused(small: Small, responses: Responses, tmp_path: Path) -> None:
    trainer, _, _ = train(small, responses, updates=1)
    save_optimizer(tmp_path, trainer.backend, 1)
    moments = load_file(tmp_path / "optimizer/moments.safetensors")
    del moments["model.norm.weight.exp_avg_sq"]
    for other in ({}, {"model.norm.weight.exp_avg_sq": torch.zeros(3)}):
        save_file(moments | other, tmp_path / "optimizer/moments.safetensors")
        with pytest.raises(ArtifactError, match=r"no moments of shape \(32,\) for model.norm.weight"):
            load_optimizer(tmp_path, trainer.backend)


def engine_of(responses: Responses, flat: np.ndarray) -> Responses:
    """The responses with other log-probabilities by the engine."""
    return replace(responses, engine_logp=Ragged(flat, responses.engine_logp.offsets))


def spoiled(responses: Responses, *rows: int) -> Responses:
    """The responses with log-probabilities of some of them that are not finite."""
    flat = responses.engine_logp.flat.copy()
    flat[responses.engine_logp.offsets[list(rows)]] = [np.nan, np.inf][: len(rows)]
    return engine_of(responses, flat)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"truncated_R": np.ones(48, bool)}, r"of the 12 groups of 3 .* a larger rollout\.max_new"),
        ({"reward_R": np.full(48, np.nan, np.float32)}, "none of the 48 responses has a reward; the outcomes of the"),
    ],
    ids=["cut off", "without a reward"],
)
def test_a_stage_that_teaches_nothing_stops(small: Small, responses: Responses, change: dict, message: str) -> None:
    with pytest.raises(NothingToLearnError, match=message):
        train(small, replace(responses, **change), objective={"data": {"truncated": "mask"}})


def test_an_update_takes_whole_groups_and_a_stage_every_response_once(responses: Responses) -> None:
    plan = plan_batches(responses, 16, (3, 1))
    assert sorted(np.concatenate(plan)) == list(range(48))
    for rows in plan:
        groups, counts = np.unique(responses.group_R[rows], return_counts=True)
        assert (len(groups), set(counts)) == (4, {GROUP})
    assert [rows.tolist() for rows in plan] == [rows.tolist() for rows in plan_batches(responses, 16, (3, 1))]
    assert responses.truncated_R.tolist() == [responses.response_tokens[row][-1] != 1 for row in range(48)]
    assert group_order(12, (3, 1)).tolist() != group_order(12, (3, 2)).tolist()
    for size in (6, 20):  # It would cut a group, or leave a rest.
        with pytest.raises(DataError, match=f"responses_per_update: {size} does not cut 48 responses"):
            plan_batches(responses, size, (0, 0))


def test_micro_batches_keep_to_their_budget() -> None:
    tokens = np.array([5, 50, 7, 3, 9, 30])
    assert [part.tolist() for part in micro_batches(tokens, 12)] == [[3, 0], [2], [4], [5], [1]]
    assert [tokens[part].tolist() for part in micro_batches(tokens, 21, padded=True)] == [[3, 5, 7], [9], [30], [50]]


def rows(count: int = 8) -> list[dict]:
    made = {"prompt_token_ids": [1, 2], "response_token_ids": [3], "engine_logp": [-0.5], "finish_reason": "stop"}
    return [{"prompt_id": f"p{i // GROUP}", "sample_index": i % GROUP, **made} for i in range(count)]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ([rows()[0], {**rows()[1], "sample_index": 3}, *rows()[2:]], f"prompt p0: {ORDER}"),
        ([*rows(4), *rows(7)[5:]], f"prompt p1: {ORDER}"),
        (rows(7), f"prompt p1: {ORDER}"),
        ([*rows(7), rows()[7] | {"engine_logp": [-0.5] * 2}], "prompt p1: 2 log-probabilities of 1 response tokens"),
    ],
    ids=["another order", "no first response", "no last response", "one logp too many"],
)
def test_damaged_rollouts_are_refused(damaged: list[dict], message: str) -> None:
    with pytest.raises(DataError, match=message):
        responses_with(damaged, np.zeros(len(damaged)))


def test_responses_with_logp_that_is_not_finite_are_dropped(small: Small, responses: Responses, monkeypatch) -> None:
    monkeypatch.setattr("tasks.train.scoring._AT_ONCE", 20)  # Row 7 is not in the first part.
    some, all_of_them = spoiled(responses, 0, 7), engine_of(responses, responses.engine_logp.flat * np.nan)
    for damaged, dropped in ((some, r"2 of 48 responses \(4.2 %\)"), (all_of_them, r"48 of 48 responses \(100.0 %\)")):
        with pytest.raises(GateError, match=rf"{dropped}.*max_dropped_share allows 1.0 %") as caught:
            train(small, damaged)
        assert isinstance(caught.value, CollapseError) is (damaged is all_of_them)  # A study stores a collapse.
    broken = trainer_of(small)
    broken.backend.model.get_input_embeddings().weight.data.fill_(np.nan)
    with pytest.raises(CollapseError, match=r"48 of 48 responses \(100.0 %\)"):
        broken.train(responses, batches(responses), 0)
    _, results, weights = train(small, some, max_dropped_share=0.05)
    assert results.dropped == results.unscored == 2
    assert sum(row["responses"] for row in results.rows) == 46
    assert all(weight.isfinite().all() for weight in weights.values())
    damaged, trainer, plan = spoiled(responses, 0), trainer_of(small), batches(responses)
    results = trainer.train(damaged, plan, 0, StageResults(100, 6))  # The limit is a share of the whole stage.
    assert results.dropped == 1
    with pytest.raises(GateError, match=r"2 of 100 responses \(2.0 %\)"):
        trainer.train(damaged, plan, 0, results)


def test_zero_advantages_are_an_error_at_the_end_of_a_stage_alone(small: Small, responses: Responses) -> None:
    trainer, plan = trainer_of(small), batches(responses)
    correct, wrong = (replace(responses, reward_R=np.float32([reward] * 47 + [np.nan])) for reward in (1, 0))
    results = trainer.train(correct, plan[:1], 0, StageResults(96, 2))
    assert (results.groups, results.zero_variance_groups) == (12, 12)
    assert results.rows[0]["grad_norm"] == 0
    with pytest.raises(NothingToLearnError, match=r"24 of the 24 groups of 2 updates .*mean reward is 0\.500"):
        trainer.train(wrong, plan[:1], 0, replace(results, rows=[*results.rows]))
    trainer.train(responses, plan[:1], 0, results)
    assert (results.groups, results.has_signal, len(results.rows)) == (24, True, 2)


@pytest.mark.parametrize("judged", [rows()[:4], rows()[::-1]], ids=["fewer", "another order"])
def test_verdicts_on_other_rollouts_are_refused(judged: list[dict]) -> None:
    with pytest.raises(DataError, match=r"from response 0 on, verdicts name other responses .*: verify again"):
        collect([to_table(rows(), ROLLOUTS)], [verdicts(judged, np.zeros(len(judged)))], GROUP)


@pytest.mark.parametrize(
    "generation",
    [
        {"do_sample": False, "temperature": 0.6, "top_p": 0.95, "eos_token_id": [1, 2]},
        {"do_sample": True, "temperature": 0.0, "eos_token_id": [1, 2]},
        {"pad_token_id": -1, "eos_token_id": [1]},
        None,
    ],
)
def test_generation_settings_are_copied_unchanged(base: Path, tmp_path: Path, generation: dict | None) -> None:
    other, saved = tmp_path / "other", tmp_path / "saved"
    shutil.copytree(base, other)
    saved.mkdir()
    file = other / "generation_config.json"
    file.unlink(missing_ok=True)
    if generation is not None:
        file.write_text(json.dumps(generation))
    of_tokenizer = ("chat_template.jinja", "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json")
    for name in (copied := (*of_tokenizer, "preprocessor_config.json", "own.py")):
        (other / name).write_text("{}")
    save_policy(saved, load_trainer(other, settings(), LONGEST, 0).backend, other)
    assert stop_token_ids(saved) == stop_token_ids(other)
    copy = saved / file.name
    assert copy.read_bytes() == file.read_bytes() if generation is not None else not copy.exists()
    assert all((saved / name).read_text() == "{}" for name in copied)
    load_model(saved)
