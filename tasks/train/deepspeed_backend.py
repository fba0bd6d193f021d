"""DeepSpeed ZeRO 1, 2 and 3: processes partition the moments (1), gradients (2) and weights (3) of a policy."""

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tasks.errors import SettingsError, check_extra
from tasks.models.scorer import MicroBatch, Scorer
from tasks.settings import OptimizeSettings
from tasks.train import distributed
from tasks.train.backend import MOMENTS, Named, adamw, frozen_parameters, trainable


class DeepSpeedBackend:
    """A policy in a DeepSpeed engine; ``torch.distributed`` must be initialised.

    Raises:
        SettingsError: DeepSpeed is not installed, or refuses its configuration.
    """

    def __init__(self, scorer: Scorer, settings: OptimizeSettings) -> None:
        check_extra("deepspeed", "optimize.backend.kind", ", or set optimize.backend.kind: torch")
        import deepspeed

        warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
        deepspeed.logger.setLevel(logging.WARNING)
        # This operator for CPUs would be compiled here; gloo does the same.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self.model: PreTrainedModel = scorer.model
        self.packed = scorer.packed
        self._shapes = {name: p.shape for name, p in trainable(self.model).items()}
        rounded = settings.backend.dtype != "float32"
        # DeepSpeed rounds into new tensors, so these keep the fp32 values.
        full = {name: p.detach() for name, p in trainable(self.model).items()} if rounded else {}
        optimizer = adamw(trainable(self.model).values(), settings)
        try:
            self._engine: Any = deepspeed.initialize(model=scorer, optimizer=optimizer, config=config(settings))[0]
        except (AssertionError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise SettingsError(f"optimize.backend.deepspeed: {reason}. Correct DeepSpeed's configuration.") from error
        self._stage = settings.backend.zero_stage
        if rounded:
            self.set_weights(full)  # DeepSpeed's fp32 weights are made of its rounded 16-bit copy.

    def __call__(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        logp_T, entropy_T = self._engine(batch)
        return logp_T, entropy_T

    def backward(self, loss_sum: Tensor, last: bool) -> None:
        self._engine.optimizer.override_loss_scale(1.0)
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss_sum)

    def step(self, denominator: float, learning_rate: float) -> float:
        # DeepSpeed computes the mean over processes and divides it by the loss scale.
        self._engine.optimizer.override_loss_scale((denominator or 1.0) / distributed.world_size())
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def shapes(self) -> dict[str, torch.Size]:
        return self._shapes

    def weights(self) -> Named:
        from deepspeed.utils import safe_get_full_fp32_param

        for name, parameter in trainable(self.model).items():
            yield name, safe_get_full_fp32_param(parameter)

    def frozen(self) -> Named:
        from deepspeed.runtime.zero import GatheredParameters

        for name, parameter in frozen_parameters(self.model).items():
            with GatheredParameters([parameter], enabled=self._stage == 3):
                weight = parameter.detach().clone() if self._stage == 3 else parameter.detach()
            yield name, weight

    def moments(self) -> Named:
        from deepspeed.utils import safe_get_full_optimizer_state

        for name, parameter in trainable(self.model).items():
            for moment in MOMENTS:
                yield f"{name}.{moment}", safe_get_full_optimizer_state(parameter, moment)

    @torch.no_grad()
    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        from deepspeed.runtime.zero import GatheredParameters

        for name, parameter in trainable(self.model).items():
            weight = weights[name].to(parameter.device)
            with GatheredParameters([parameter], modifier_rank=0, enabled=self._stage == 3):
                parameter.copy_(weight)
            self._set(parameter, weight)

    def set_moments(self, moments: Mapping[str, Tensor], updates: int) -> None:
        self._make_moments()
        for name, parameter in trainable(self.model).items():
            for moment in MOMENTS:
                self._set(parameter, moments[f"{name}.{moment}"].to(parameter.device), moment)
        for state in self._engine.optimizer.optimizer.state.values():
            state["step"] = torch.tensor(float(updates), device=state["exp_avg"].device)

    def _set(self, parameter: nn.Parameter, value: Tensor, moment: str | None = None) -> None:
        """Write this process's partition of a whole fp32 weight or moment."""
        from deepspeed import utils

        if self._stage == 3:
            # DeepSpeed's setter of whole values fails where the partitions end in padding.
            part = -(-value.numel() // distributed.world_size())
            padded = torch.nn.functional.pad(value.flatten(), (0, part * distributed.world_size() - value.numel()))
            value = padded[part * distributed.rank() : part * (distributed.rank() + 1)]
        weight = utils.safe_set_local_fp32_param if self._stage == 3 else utils.safe_set_full_fp32_param
        state = utils.safe_set_local_optimizer_state if self._stage == 3 else utils.safe_set_full_optimizer_state
        weight(parameter, value) if moment is None else state(parameter, value, moment)

    def _make_moments(self) -> None:
        """Make AdamW's state of DeepSpeed's flat partitions, as its first step would."""
        from deepspeed.utils import lazy_init_hp_params_optimizer_state

        zero = self._engine.optimizer
        partitions: list[Tensor] = (
            zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups
        )
        for partition in partitions:
            zero.optimizer.state[partition] = {
                "step": torch.tensor(0.0, device=partition.device),
                **{moment: torch.zeros_like(partition) for moment in MOMENTS},
            }
        if self._stage < 3:
            for group, partition in zip(zero.bit16_groups, partitions, strict=True):
                lazy_init_hp_params_optimizer_state(group, partition, zero.optimizer.state)


def config(settings: OptimizeSettings) -> dict[str, Any]:
    """Return DeepSpeed's configuration: the settings', and what the trainer's loop relies on."""
    backend = settings.backend
    return {
        **backend.deepspeed_config,
        "bf16": {"enabled": backend.dtype == "bfloat16"},
        "data_types": {"grad_accum_dtype": "fp32"},
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,  # the trainer says which micro-batch is an update's last
        "gradient_clipping": settings.max_grad_norm,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
    }
