"""A stage that is stopped and started again makes the very updates that it would have made, bit by bit."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.process.interruption import Interrupted, defer_sigterm
from tasks.settings import OperationSettings
from tasks.store import Store
from tasks.train.batches import Responses, plan_batches
from tasks.train.checkpoint import Checkpoints
from tasks.train.results import Row, StageResults
from tasks.train.stage import load_trainer, make_updates
from tests.faults.steps import Killed
from tests.train.small import LONGEST, Small, settings

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def responses(responses: Responses) -> Responses:
    """One of four is correct, so that red_drop leaves out some of the others by chance."""
    return replace(responses, reward_R=np.tile(np.float32([1, 0, 0, 0]), len(responses.group_R) // 4))


def attempt(
    small: Small,
    responses: Responses,
    store: Store | None,
    after: Callable[[int], object] = lambda _: None,
    every: int = 1,
    **changes: Any,
) -> tuple[StageResults, Weights, list[int]]:
    """Trains in what could be a new process; returns the updates that were made here besides the results."""
    base, policy = small
    chosen = settings(**{"responses_per_update": 8, "tokens_per_micro_batch": 100, **changes})
    trainer = load_trainer(base.path(policy), chosen, LONGEST, 0, base.path(policy))
    made: list[int] = []
    update = trainer._update

    def counted(*inputs: Any) -> Row:
        row = update(*inputs)
        made.append(trainer.updates)
        return row

    trainer._update = counted
    trainer.after_update = lambda row: after(row["update"])
    if store is not None:
        trainer.checkpoints = Checkpoints(store.progress, OperationSettings(updates_per_checkpoint=every))
    plan = plan_batches(responses, 8, (0, 0))
    results = make_updates(trainer, 0, lambda _: (responses, plan), 1, len(plan), len(responses.group_R))
    return results, {name: p.detach().clone() for name, p in trainer.backend.model.named_parameters()}, made


def killed_at(update: int) -> Callable[[int], None]:
    def after(done: int) -> None:
        if done == update:
            raise Killed

    return after


@pytest.fixture
def working(tmp_path: Path) -> Store:
    return Store(Store.open(tmp_path / "working").ref, work="key")


@pytest.mark.parametrize(
    "changes",
    [
        *({"preset": name} for name in ("mu_grpo", "red_drop", "m2po", "off_policy_grpo")),
        {"preset": "mu_grpo", "warmup_updates": 4},
        {"preset": "mu_grpo", "modifier": "mis"},
        {"preset": "mu_grpo", "learning_rate": 0.01, "backend": {"kind": "torch", "dtype": "bfloat16"}},
        {"preset": "decoupled_ppo", "objective": {"schedule": {"batches_per_proximal": 4}}},
        {"preset": "grpo", "objective": {"regulariser": {"kind": "reference_kl", "coefficient": 0.1}}},
    ],
    ids=lambda changes: changes["preset"] + str(len(changes)),
)
def test_killed_and_started_again_the_weights_are_the_same_bits(
    small: Small, responses: Responses, working: Store, changes: dict[str, Any]
) -> None:
    results, weights, all_of_them = attempt(small, responses, None, **changes)
    with pytest.raises(Killed):
        attempt(small, responses, working, killed_at(3), every=2, **changes)
    with pytest.raises(Killed):
        attempt(small, responses, working, killed_at(5), every=1, **changes)
    assert {path.name for path in working.root.glob("progress/key/train-*")} == {"train-000003", "train-000004"}
    shown = list[int]()
    again, resumed, made = attempt(small, responses, working, shown.append, every=2, **changes)
    assert made == [update for update in all_of_them if update > 4]
    assert shown == all_of_them, "a tracker lacks the updates of earlier attempts"
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
    assert again == results


def test_sigterm_saves_the_state_and_stops(small: Small, responses: Responses, working: Store) -> None:
    def ask(update: int) -> None:
        if update == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with defer_sigterm(), pytest.raises(Interrupted, match="after update 3"):
        attempt(small, responses, working, ask, every=1000)
    _, _, made = attempt(small, responses, working, every=1000)
    assert made == [4, 5, 6]
