"""The protocol of a backend, which holds a policy's weights while it is trained, and how one is opened.

There are two: plain torch in one process, and DeepSpeed in several.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from tasks.models.loading import apply_liger, check_liger
from tasks.models.scorer import MicroBatch, Scorer

if TYPE_CHECKING:  # so that a machine with torch and transformers alone can measure this
    from tasks.settings import OptimizeSettings

Named = Iterator[tuple[str, Tensor]]
MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's moments, as torch names them."""


def trainable(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Return the parameters that updates change, by name: all of them, or adapters alone."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def adamw(weights: Iterable[nn.Parameter], settings: "OptimizeSettings") -> torch.optim.AdamW:
    """Make the optimizer that every backend uses."""
    return torch.optim.AdamW(
        weights,
        lr=settings.learning_rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        weight_decay=settings.weight_decay,
        fused=True,
    )


def convert_parameters(model: PreTrainedModel, dtype: str) -> None:
    """Convert a model's parameters to a dtype, which is float32 or bfloat16.

    Buffers are kept: rounded frequencies of rotary embeddings would misplace the tokens of long responses.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, dtype))


def frozen_parameters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Return the parameters that updates do not change, by name: all beside adapters, or the model's own."""
    return {name: parameter for name, parameter in model.named_parameters() if not parameter.requires_grad}


class Backend(Protocol):
    """A policy that is being trained, by this process or by several together.

    With several, each has a share of an update's micro-batches, and all must make the same calls in the same order.
    """

    model: PreTrainedModel
    """The model that computes. Where its weights are partitioned, ``weights`` returns them whole."""
    packed: bool
    """True if responses are packed; otherwise each is padded to the longest of its micro-batch."""

    def __call__(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Return logp_T, differentiable, and entropy_T of a micro-batch's response tokens, in fp32."""

    def backward(self, loss_sum: Tensor, last: bool) -> None:
        """Add the gradients of a micro-batch; ``last`` says that it is the last one of the update."""

    def step(self, denominator: float, learning_rate: float) -> float:
        """Divide the gradients, summed over micro-batches and processes, clip them and make an AdamW step.

        Args:
            denominator: of the whole update, over all processes; with 0 the gradients are not divided.
            learning_rate: the learning rate of this step.

        Returns:
            The norm of the divided gradients before they were clipped; when it is not finite, the weights are lost.
        """

    def shapes(self) -> dict[str, torch.Size]:
        """Return the shape of every trainable parameter, by name."""

    def weights(self) -> Named:
        """Yield every trainable parameter, whole, in fp32, under the model's name for it."""

    def frozen(self) -> Named:
        """Yield every other parameter, whole, in the dtype of the forward pass, under the model's name for it."""

    def moments(self) -> Named:
        """Yield the moments of every trainable parameter, whole, in fp32: ``<name>.exp_avg``, ``<name>.exp_avg_sq``."""

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace every trainable parameter."""

    def set_moments(self, moments: Mapping[str, Tensor], updates: int) -> None:
        """Replace AdamW's moments and its count of steps."""


def open_backend(scorer: Scorer, settings: "OptimizeSettings") -> Backend:
    """Make the backend that the settings name, with fp32 weights taken from the scorer's model.

    Raises:
        SettingsError: a package that the settings ask for is not installed, or does not fit the model or the machine.
    """
    if settings.backend.liger:
        check_liger()
        apply_liger(scorer.model)
    if settings.backend.gradient_checkpointing:
        _enable_gradient_checkpointing(scorer.model)
    if settings.backend.kind == "deepspeed":
        from tasks.train.deepspeed_backend import DeepSpeedBackend

        return DeepSpeedBackend(scorer, settings)
    from tasks.train.torch_backend import TorchBackend

    return TorchBackend(scorer, settings)


def _enable_gradient_checkpointing(model: PreTrainedModel) -> None:
    """Compute layers again in the backward pass, without putting dropout or anything else into training mode."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True
            # Layers with dropout of their own look at the same flag, so it is off while the layer computes.
            module.register_forward_pre_hook(lambda layer, _: setattr(layer, "training", False))
            module.register_forward_hook(lambda layer, *_: setattr(layer, "training", True), always_call=True)
