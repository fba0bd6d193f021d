"""Updates over frozen rollouts by the trainer of the project and by that of TRL.

Both sum gradients over micro-batches, clip them and make one fused AdamW step. The trainer of the project sorts
responses by length and packs them up to a budget of tokens. TRL pads all responses of a generation to the longest one.
TRL gets its rollouts from a stub; the time of the stub and of the rewards is not counted.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from torch import Tensor

from tasks.models.packing import PACKED_ATTENTION
from tasks.models.scorer import Scorer
from tasks.settings import OptimizeSettings
from tasks.train.backend import open_backend
from tasks.train.results import StageResults
from tasks.train.trainer import Trainer
from tools.benchmarks.gpu.device import wait
from tools.benchmarks.trl.frozen import FrozenRollouts

OURS, DEFAULTS, BEST = "ours", "TRL, its defaults", "TRL, its best"
"""Names of the trainers in tables."""
LEARNING_RATE = 1e-6
PLAIN: dict[str, Any] = {
    "lr_scheduler_type": "constant",
    "report_to": "none",
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
}
"""Arguments of TRL with which it shows and saves nothing."""
ON_CPU: dict[str, Any] = {"bf16": False, "use_cpu": True}
"""Arguments of TRL for float32 on a CPU."""
EPSILON = 1e-4
"""Number that TRL adds to the standard deviation of a group's rewards."""
GRPO: dict[str, Any] = {
    "preset": "grpo",
    "objective": {
        "aggregation": "token_mean",
        "advantage": {"epsilon": EPSILON},
        "gate": {"low": 0.8, "high": 1.2},
    },
    "weight_decay": 0.0,
}
"""Settings of GRPO as in TRL with the loss_type dapo: the gate is [0.8, 1.2], and the loss is a mean over tokens."""


def settings(frozen: FrozenRollouts, budget: int, backend: dict[str, Any]) -> OptimizeSettings:
    """Return the settings of an update over frozen rollouts."""
    return OptimizeSettings.parse(
        {
            **GRPO,
            "responses_per_update": len(frozen.responses),
            "learning_rate": LEARNING_RATE,
            "tokens_per_micro_batch": budget,
            "max_logp_mismatch": 1e9,
            "backend": backend,
        }
    )


def _now() -> float:
    """Return the time in seconds, after a GPU has finished its work."""
    wait()
    return time.perf_counter()


class OurTrainer:
    """The trainer of the project, with frozen rollouts."""

    def __init__(self, frozen: FrozenRollouts, budget: int, checkpointing: bool = False, **backend: Any) -> None:
        optimize = settings(frozen, budget, {"gradient_checkpointing": checkpointing, **backend})
        scorer = Scorer(frozen.shape.model(PACKED_ATTENTION), optimize.logp_chunk_tokens)
        self.trainer = Trainer(open_backend(scorer, optimize), optimize, frozen.longest, phase=self._phase)
        self.seconds: dict[str, float] = defaultdict(float)
        """Seconds of the phases of the last update."""
        self._responses = frozen.as_responses()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = _now()
        yield
        self.seconds[name] += _now() - start

    def gradients(self) -> tuple[float, dict[str, Tensor]]:
        """Make an update, and return its loss and its gradients before they are clipped."""
        backend = self.trainer.backend
        step = backend.step
        gradients: dict[str, Tensor] = {}

        def copying_step(denominator: float, learning_rate: float) -> float:
            gradients.update({name: p.grad / denominator for name, p in backend.model.named_parameters()})
            return step(denominator, learning_rate)

        with patch.object(backend, "step", copying_step):
            results = self._train()
        return results.rows[-1]["loss"], gradients

    def update(self) -> float:
        """Make an update, and return its seconds without those of the log-probabilities before it."""
        self._train()
        return self.seconds["optimize"]

    def _train(self) -> StageResults:
        self.seconds.clear()
        return self.trainer.train(self._responses, [np.arange(len(self._responses.group_R))], 0)


@dataclass
class TrlTrainer:
    """The trainer of TRL, with frozen rollouts and the defaults of all other arguments."""

    frozen: FrozenRollouts
    folder: Path
    micro_batch: int = 8
    checkpointing: bool = True
    max_grad_norm: float = 1.0
    arguments: Mapping[str, Any] = field(default_factory=lambda: ON_CPU)
    """Other arguments of TRL."""
    seconds: float = 0.0
    """Seconds of the last update."""
    trainer: Any = field(init=False)
    _rollout_seconds: float = 0.0
    _start: float = 0.0
    _copies_gradients: bool = False
    _losses: list[Tensor] = field(default_factory=list)
    _gradients: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from datasets import Dataset
        from transformers import PrinterCallback, TrainerCallback

        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        from trl import GRPOConfig, GRPOTrainer

        frozen, outer = self.frozen, self
        count = len(frozen.responses)

        class Rollouts:
            def __call__(self, prompts: list[str], _: Any) -> dict[str, Any]:
                rows = []
                used: dict[str, int] = defaultdict(int)
                for prompt in prompts:
                    rows.append(int(prompt) * frozen.group_size + used[prompt])
                    used[prompt] += 1
                self.rows = rows
                return {
                    "prompt_ids": [frozen.prompts[row].tolist() for row in rows],
                    "completion_ids": [frozen.responses[row].tolist() for row in rows],
                    "logprobs": None,
                }

        rollouts = Rollouts()

        def reward(**_: Any) -> list[float]:
            return [frozen.reward(row) for row in rollouts.rows]

        class TimedTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types here
            def compute_loss(self, *arguments: Any, **named: Any) -> Any:
                loss = super().compute_loss(*arguments, **named)
                outer._losses.append(loss.detach())
                return loss

            def _generate_and_score_completions(self, inputs: Any) -> Any:
                start = _now()
                completions = super()._generate_and_score_completions(inputs)
                outer._rollout_seconds += _now() - start
                return completions

        class Clock(TrainerCallback):  # type: ignore[misc]  # TRL has no types here
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                outer._losses.clear()
                outer._rollout_seconds, outer._start = 0.0, _now()

            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                if outer._copies_gradients:
                    named = outer.trainer.model.named_parameters()
                    outer._gradients = {name: parameter.grad.clone() for name, parameter in named}

            def on_step_end(self, *_: Any, **__: Any) -> None:
                outer.seconds = _now() - outer._start - outer._rollout_seconds

        assert count % self.micro_batch == 0
        arguments = GRPOConfig(
            output_dir=str(self.folder),
            per_device_train_batch_size=self.micro_batch,
            gradient_accumulation_steps=count // self.micro_batch,
            num_generations=frozen.group_size,
            max_completion_length=frozen.longest,
            gradient_checkpointing=self.checkpointing,
            learning_rate=LEARNING_RATE,
            max_grad_norm=self.max_grad_norm,
            max_steps=1,
            shuffle_dataset=False,
            **PLAIN,
            **self.arguments,
        )
        self.trainer = TimedTrainer(
            model=frozen.shape.model("sdpa"),
            reward_funcs=reward,
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(frozen.groups)]}),
            processing_class=frozen.shape.tokenizer(),
            rollout_func=rollouts,
            callbacks=[Clock()],
        )
        self.trainer.remove_callback(PrinterCallback)

    def gradients(self) -> tuple[float, dict[str, Tensor]]:
        """Make an update, and return its loss and its gradients after clipping.

        ``max_grad_norm`` must be so large that clipping changes nothing.
        """
        self._copies_gradients = True
        self.update()
        self._copies_gradients = False
        return float(sum(self._losses)), self._gradients

    def update(self) -> float:
        """Make an update, and return its seconds."""
        self.trainer._step, self.trainer._buffered_inputs = 0, None
        self.trainer.train()
        return self.seconds
