"""Updates per second and reward of GRPO by the project and by TRL, with the same base policy and prompts.

    python -m tools.benchmarks grpo

Both sample 8 responses to every prompt in float32, judge them with math-verify, and make the same number of updates of
as many responses, with new rollouts every four updates. The project also writes rollouts, verdicts, policy and
optimizer to a store; TRL writes nothing.
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
from tools.benchmarks.measurement import Measurement, Values, measure_interleaved, ratio
from tools.benchmarks.rollouts import PROBLEMS, policy_and_prompts
from tools.benchmarks.trl.trainers import BEST, DEFAULTS, GRPO, ON_CPU, OURS, PLAIN

MU, GROUP, PER_UPDATE = 4, 8, 64
NEW_TOKENS = 32
LEARNING_RATE = 1e-4
ROLLOUT = RolloutSettings(responses_per_prompt=GROUP, max_new_tokens=NEW_TOKENS)
OPTIMIZE = OptimizeSettings.parse({**GRPO, "responses_per_update": PER_UPDATE, "learning_rate": LEARNING_RATE})


def our_training(store: Store, policy: ArtifactRef, prompts: ArtifactRef, rewards: Values) -> Callable[[], float]:
    """Return a function that trains with the project and returns the seconds of the whole step."""
    numbers = itertools.count()

    def train() -> float:
        own = Store(store.ref, "alternate", "benchmark", str(next(numbers)))
        began = time.perf_counter()
        trained = train_alternating(own, ROLLOUT, VerifySettings(), OPTIMIZE, MU, policy, policy, [prompts], 0, 0)
        seconds = time.perf_counter() - began
        rows = read_table(store.path(trained) / "metrics.parquet").to_pylist()
        rewards[:] = [row["reward"] for row in rows]
        return seconds

    return train


def trl_training(policy: Path, rows: list[dict[str, Any]], best: bool, rewards: Values) -> Callable[[], float]:
    """Return a function that trains with TRL and returns the seconds, with those of making the trainer.

    With ``best``, every update is one micro-batch of 64 responses without gradient checkpointing. Otherwise TRL has its
    defaults: micro-batches of 8 responses with gradient checkpointing.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        golds = [math_verify.parse(rf"\boxed{{{one}}}") for one in answer]
        correct = [
            float(math_verify.verify(gold, math_verify.parse(text)))
            for gold, text in zip(golds, completions, strict=True)
        ]
        rewards.append(float(np.mean(correct)))
        return correct

    def train() -> float:
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

    return train


def measure(repeats: int) -> Measurement:
    """Measure all three."""
    rewards: dict[str, Values] = {OURS: [], DEFAULTS: [], BEST: []}
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(str(Path(folder) / "store"))
        policy, prompts = policy_and_prompts(store)
        rows = read_table(store.path(prompts) / "prompts.parquet").select(["prompt", "answer"]).to_pylist()
        weights = store.path(policy, without=OPTIMIZER)
        ways = {
            OURS: our_training(store, policy, prompts, rewards[OURS]),
            DEFAULTS: trl_training(weights, rows, False, rewards[DEFAULTS]),
            BEST: trl_training(weights, rows, True, rewards[BEST]),
        }
        ways[OURS]()  # This warms up.
        seconds = measure_interleaved(ways, repeats, "grpo")
    last = {name: float(np.mean(values[-max(1, len(values) // 4) :])) for name, values in rewards.items()}
    updates = len(PROBLEMS) * GROUP // PER_UPDATE
    rates = {name: [updates / one for one in values] for name, values in seconds.items()}
    return Measurement(
        name="grpo",
        what=f"{updates} updates of GRPO with mu = {MU} on a tiny policy, with their generation and verification.",
        unit="updates/s",
        ways=rates,
        ratios=[ratio(rates, OURS, BEST, 1.5), ratio(rates, OURS, DEFAULTS)],
        facts={"mean reward of the last quarter": last, "threads": torch.get_num_threads()},
    )
