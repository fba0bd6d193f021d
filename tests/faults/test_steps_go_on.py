"""Every long step, stopped after any of its parts was saved and started again, makes the same artifact."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.evaluate.step import evaluate_policy
from tasks.rollout.step import generate_shard
from tasks.settings import OperationSettings
from tasks.store import ArtifactRef, Store
from tasks.train.colocated import train_alternating
from tasks.train.stage import optimize_stage
from tasks.verify.step import verify_rollouts
from tests import prepared
from tests.faults.steps import Killed, kill_after
from tests.prepared import EVALUATE, IN_PARTS, OPTIMIZE, PROMPTS, VERIFY, Small

Step = Callable[[Store], ArtifactRef]
OFTEN = OperationSettings(updates_per_checkpoint=1)
STEPS = {"generate": 4, "verify": 2, "optimize": 4, "alternate": 7, "evaluate": 3}
"""The number of parts that each step saves."""


def step_of(name: str, learner: Small) -> Step:
    base, policy = learner
    if name == "generate":
        shard, *_ = prepared.prepare_prompts(base, PROMPTS, 0, 0)
        return lambda store: generate_shard(store, IN_PARTS, policy, shard, 0, 0)
    if name == "alternate":
        shards = prepared.prepare_prompts(base, PROMPTS, 0, 0)
        inputs = (IN_PARTS, VERIFY, OPTIMIZE, 2, policy, policy, shards, 0, 0, OFTEN)
        return lambda store: train_alternating(store, *inputs)
    if name == "evaluate":
        held_out = prepared.prepare_held_out(base, PROMPTS, 12)
        return lambda store: evaluate_policy(store, EVALUATE, VERIFY, policy, held_out, 0)
    rollouts, verdicts = prepared.prepare_verdicts(base, policy, rollout=IN_PARTS)
    if name == "verify":
        return lambda store: verify_rollouts(store, VERIFY, rollouts, 0, 0)
    return lambda store: optimize_stage(store, OPTIMIZE, policy, policy, rollouts, verdicts, 0, 0, OFTEN)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("name", "parts"), STEPS.items())
def test_a_step_stopped_after_any_part_makes_the_same_artifact(learner: Small, name: str, parts: int) -> None:
    base, _ = learner
    step = step_of(name, learner)
    undisturbed = step(base)
    for after in range(1, parts + 1):
        store = Store(base.ref, work=f"{name}{after}")
        before = list[int]()
        if after < parts:
            with kill_after(after) as before, pytest.raises(Killed):
                step(store)
        with kill_after(10**6) as saved:
            assert step(store) == undisturbed
        assert len(before) + len(saved) == parts, "a part that was saved was made again"
        store.progress.clear()


@pytest.mark.parametrize("refresh", [0, 1])
def test_damaged_rollouts_of_a_colocated_stage_are_made_again(learner: Small, refresh: int) -> None:
    """The newest state is that before the second update on the second refresh."""
    base, _ = learner
    step, store = step_of("alternate", learner), Store(base.ref, work=f"damaged-{refresh}")
    undisturbed = step(store)
    for table in Path(base.root / f"progress/damaged-{refresh}").glob(f"refresh-00000{refresh}/*.parquet"):
        table.write_bytes(b"")
    with kill_after(2), pytest.raises(Killed):
        step(store)
    with kill_after(10**6) as saved:
        assert step(store) == undisturbed
    assert len(saved) == STEPS["alternate"] - 2, "the states of damaged rollouts were kept"


def test_the_warning_of_an_evaluation_counts_the_responses_of_all_attempts(learner: Small) -> None:
    base, policy = learner
    held_out, store = prepared.prepare_held_out(base, PROMPTS, 12), Store(base.ref, work="cut")
    settings = EVALUATE.model_copy(update={"max_new_tokens": 1})
    with kill_after(2), pytest.raises(Killed):
        evaluate_policy(store, settings, VERIFY, policy, held_out, 0)
    made = store.manifest(evaluate_policy(store, settings, VERIFY, policy, held_out, 0))
    responses = 12 * (settings.samples_per_problem + settings.greedy)
    assert f"100.0 % of {responses} responses end at evaluate.max_new_tokens 1," in made.facts["warning"]
