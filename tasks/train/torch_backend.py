"""Plain torch: one process, one device."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from tasks.models.scorer import MicroBatch, Scorer
from tasks.train.backend import MOMENTS, Named, adamw, convert_parameters, frozen_parameters, trainable

if TYPE_CHECKING:  # so that a machine with torch and transformers alone can measure this
    from tasks.settings import OptimizeSettings


class TorchBackend:
    """Weights, gradients and moments in fp32; with dtype bfloat16 a copy of the weights in that type computes."""

    def __init__(self, scorer: Scorer, settings: "OptimizeSettings") -> None:
        self.model: PreTrainedModel = scorer.model
        self.packed = scorer.packed
        self._scorer = scorer
        self._max_grad_norm = settings.max_grad_norm
        self._weights = trainable(self.model)
        self._copied = settings.backend.dtype == "bfloat16"
        if self._copied:
            self._weights = {name: nn.Parameter(p.detach().clone()) for name, p in self._weights.items()}
            convert_parameters(self.model, settings.backend.dtype)
            for name, parameter in trainable(self.model).items():
                parameter.register_post_accumulate_grad_hook(partial(_collect, self._weights[name]))
        self.optimizer = adamw(self._weights.values(), settings)

    def __call__(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        scored: tuple[Tensor, Tensor] = self._scorer(batch)
        return scored

    def backward(self, loss_sum: Tensor, last: bool) -> None:  # noqa: ARG002 - gradients are not sent anywhere
        loss_sum.backward()

    def step(self, denominator: float, learning_rate: float) -> float:
        for parameter in self._weights.values():
            if parameter.grad is None:
                # AdamW passes over parameters without one, and its step count must stay that of the updates.
                parameter.grad = torch.zeros_like(parameter)
            elif denominator > 0:
                parameter.grad.div_(denominator)
        norm = float(clip_grad_norm_(self._weights.values(), self._max_grad_norm))
        if norm < float("inf"):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            self.optimizer.step()
            self._copy()
        self.optimizer.zero_grad()
        return norm

    def shapes(self) -> dict[str, torch.Size]:
        return {name: parameter.shape for name, parameter in self._weights.items()}

    def weights(self) -> Named:
        yield from self._weights.items()

    def frozen(self) -> Named:
        yield from frozen_parameters(self.model).items()

    def moments(self) -> Named:
        for name, parameter in self._weights.items():
            for moment in MOMENTS:
                yield f"{name}.{moment}", self.optimizer.state[parameter][moment]

    @torch.no_grad()
    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        for name, parameter in self._weights.items():
            parameter.copy_(weights[name])
        self._copy()

    def set_moments(self, moments: Mapping[str, Tensor], updates: int) -> None:
        for name, parameter in self._weights.items():
            own = {moment: moments[f"{name}.{moment}"].to(parameter.device) for moment in MOMENTS}
            # Fused kernels want all of a parameter's state where it is.
            self.optimizer.state[parameter] = {"step": torch.tensor(float(updates), device=parameter.device), **own}

    @torch.no_grad()
    def _copy(self) -> None:
        if self._copied:
            for name, parameter in trainable(self.model).items():
                parameter.copy_(self._weights[name])


def _collect(weight: nn.Parameter, parameter: nn.Parameter) -> None:
    """Add the gradient of a 16-bit copy to that of its fp32 weight, as soon as it is computed."""
    assert parameter.grad is not None
    gradient = parameter.grad.float()
    weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
    parameter.grad = None
