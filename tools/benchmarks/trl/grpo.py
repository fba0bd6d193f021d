"""GRPO from one policy through the same prompts, by the project's alternating step and by TRL: seconds, and reward.

    python -m tools.benchmarks grpo

Both sample 8 responses to every prompt in float32, judge them with math-verify, and make the same number of updates of
as many responses, with new rollouts every four updates. Ours writes rollouts, verdicts, policy and optimizer to a store
besides; TRL writes nothing.
"""

import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import math_verify
import numpy as np
import torch

from tasks.models.loading import OPTIMIZER
from tasks.settings import OptimizeSettings, RolloutSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tasks.train.colocated import train_alternating
from tools.benchmarks.measured import Measured, Values, in_turn, ratio
from tools.benchmarks.rollouts import PROMPT_COUNT, policy_and_prompts
from tools.benchmarks.trl.sides import EPSILON, ON_CPU, PLAIN

MU, GROUP, PER_UPDATE = 4, 8, 64
NEW_TOKENS = 32
LEARNING_RATE = 1e-4
OURS, DEFAULTS, BEST = "ours", "TRL, its defaults", "TRL, its best"
ROLLOUT = RolloutSettings(responses_per_prompt=GROUP, max_new_tokens=NEW_TOKENS)
OPTIMIZE = OptimizeSettings.parse(
    {
        "preset": "grpo",
        "objective": {
            "aggregation": "token_mean",
            "gate": {"low": 0.8, "high": 1.2},
            "advantage": {"epsilon": EPSILON},
        },
        "responses_per_update": PER_UPDATE,
        "learning_rate": LEARNING_RATE,
        "weight_decay": 0.0,
    }
)


def ours(store: Store, policy: ArtifactRef, prompts: ArtifactRef, rewards: Values) -> Callable[[], float]:
    """Seconds of the whole step."""
    numbers = itertools.count()

    def work() -> float:
        fresh = Store(store.ref, "alternate", "benchmark", str(next(numbers)))
        began = time.perf_counter()
        made = train_alternating(fresh, ROLLOUT, VerifySettings(), OPTIMIZE, MU, policy, policy, [prompts], 0, 0)
        took = time.perf_counter() - began
        rows = read_table(store.path(made) / "metrics.parquet").to_pylist()
        rewards[:] = [row["reward"] for row in rows]
        return took

    return work


def theirs(policy: Path, rows: list[dict[str, Any]], best: bool, rewards: Values) -> Callable[[], float]:
    """Seconds of the trainer from its making to its last update.

    Its best: one pass over 64 responses per update without recomputing activations; its defaults: 8 at a time.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        golds = [math_verify.parse(rf"\boxed{{{one}}}") for one in answer]
        right = [
            float(math_verify.verify(gold, math_verify.parse(text)))
            for gold, text in zip(golds, completions, strict=True)
        ]
        rewards.append(float(np.mean(right)))
        return right

    def work() -> float:
        rewards.clear()
        began = time.perf_counter()
        size = PER_UPDATE if best else 8
        with tempfile.TemporaryDirectory() as folder:
            trainer = GRPOTrainer(
                model=str(policy),
                reward_funcs=reward,
                train_dataset=Dataset.from_list(rows),
                args=GRPOConfig(
                    output_dir=folder,
                    per_device_train_batch_size=size,
                    gradient_accumulation_steps=PER_UPDATE // size,
                    steps_per_generation=MU * PER_UPDATE // size,
                    num_generations=GROUP,
                    max_completion_length=NEW_TOKENS,
                    gradient_checkpointing=not best,
                    learning_rate=LEARNING_RATE,
                    max_steps=len(rows) * GROUP // PER_UPDATE,
                    **PLAIN,
                    **ON_CPU,
                ),
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        return time.perf_counter() - began

    return work


def measure(repeats: int) -> Measured:
    """All three in turn."""
    rewards: dict[str, Values] = {OURS: [], DEFAULTS: [], BEST: []}
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(str(Path(folder) / "store"))
        policy, prompts = policy_and_prompts(store)
        rows = read_table(store.path(prompts) / "prompts.parquet").select(["prompt", "answer"]).to_pylist()
        weights = store.path(policy, without=OPTIMIZER)
        ways = {
            OURS: ours(store, policy, prompts, rewards[OURS]),
            DEFAULTS: theirs(weights, rows, False, rewards[DEFAULTS]),
            BEST: theirs(weights, rows, True, rewards[BEST]),
        }
        ways[OURS]()
        seconds = in_turn(ways, repeats, "grpo")
    last = {name: float(np.mean(values[-max(1, len(values) // 4) :])) for name, values in rewards.items()}
    updates = PROMPT_COUNT * GROUP // PER_UPDATE
    rates = {name: [updates / one for one in values] for name, values in seconds.items()}
    return Measured(
        name="grpo",
        what=f"{updates} updates of GRPO with mu = {MU} on a tiny policy, from generation to the last update.",
        unit="updates/s",
        ways=rates,
        ratios=[ratio(rates, OURS, BEST, 1.5), ratio(rates, OURS, DEFAULTS)],
        facts={"mean reward of the last quarter": last, "threads": torch.get_num_threads()},
    )
