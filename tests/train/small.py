"""The trainer of the small policy, and responses that this policy sampled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from tasks.models.loading import load_tokenizer
from tasks.rollout.step import sample, tokenise_all
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import EngineSettings, OptimizeSettings, RolloutSettings
from tasks.store.tables import ROLLOUTS, VERDICTS, to_table
from tasks.train.batches import Responses, collect, plan_batches
from tasks.train.results import StageResults
from tasks.train.stage import load_trainer
from tasks.train.trainer import Trainer
from tests.prepared import Small as Small
from tools import ROOT

GROUP = 4
LONGEST = 12
LORA = {"rank": 4, "alpha": 16}


def settings(**changes: object) -> OptimizeSettings:
    values = {"preset": "mu_grpo", "responses_per_update": 16, "learning_rate": 1e-3, "tokens_per_micro_batch": 64}
    return OptimizeSettings.parse({**values, **changes})


def zero(stage: str, **changes: object) -> dict[str, Any]:
    """A DeepSpeed backend of two processes."""
    file = ROOT / f"configs/deepspeed/zero{stage}.json"
    return {"kind": "deepspeed", "deepspeed": str(file), "processes": 2, **changes}


def sample_rows(folder: Path, problems: Sequence[str], most: int, engine: EngineSettings) -> list[dict[str, Any]]:
    """Rows of a rollouts table, by the policy in a folder."""
    prompts = [{"prompt_id": f"p{i}", "prompt": text, "answer": "1", "chat": False} for i, text in enumerate(problems)]
    rollout = RolloutSettings(responses_per_prompt=GROUP, max_new_tokens=most)
    loaded, tokenizer = TransformersEngine.load(folder, engine), load_tokenizer(folder)
    ids = tokenise_all(tokenizer, prompts, loaded.context_tokens, most)
    return sample(loaded, tokenizer, rollout, prompts, ids, "x", 0, 0)


def verdicts(rows: list[dict[str, Any]], rewards: Sequence[float]) -> pa.Table:
    return to_table([{**row, "reward": reward} for row, reward in zip(rows, rewards, strict=True)], VERDICTS)


def responses_with(rows: list[dict[str, Any]], rewards: Sequence[float]) -> Responses:
    return collect([to_table(rows, ROLLOUTS)], [verdicts(rows, rewards)], GROUP)


def batches(responses: Responses) -> list[np.ndarray]:
    """The rows of three updates."""
    return plan_batches(responses, 16, (0, 0))


def trainer_of(small: Small, **changes: object) -> Trainer:
    return load_trainer(small[0].path(small[1]), settings(**changes), LONGEST, 0)


def train(
    small: Small, responses: Responses, updates: int = 3, **changes: object
) -> tuple[Trainer, StageResults, dict[str, torch.Tensor]]:
    trainer = trainer_of(small, **changes)
    results = trainer.train(responses, batches(responses)[:updates], 0)
    return trainer, results, {name: p.detach().clone() for name, p in trainer.backend.model.named_parameters()}
