"""Backends, which hold a policy's weights while it is trained: plain torch in one process, or DeepSpeed in several."""

from typing import TYPE_CHECKING

from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from tasks.models.loading import apply_liger, check_liger
from tasks.models.scorer import Scorer
from tasks.train.backends.backend import Backend

if TYPE_CHECKING:  # so that a machine with torch and transformers alone can measure this
    from tasks.settings import OptimizeSettings

__all__ = ["Backend", "open_backend"]


def open_backend(scorer: Scorer, settings: "OptimizeSettings") -> Backend:
    """Make the backend that the settings name, with fp32 weights taken from the scorer's model.

    Raises:
        SettingsError: a package that the settings ask for is not installed, or does not fit the model or the machine.
    """
    if settings.backend.liger:
        check_liger()
        apply_liger(scorer.model)
    if settings.backend.gradient_checkpointing:
        _compute_layers_again(scorer.model)
    if settings.backend.kind == "deepspeed":
        from tasks.train.backends.deepspeed_backend import DeepSpeedBackend

        return DeepSpeedBackend(scorer, settings)
    from tasks.train.backends.torch_backend import TorchBackend

    return TorchBackend(scorer, settings)


def _compute_layers_again(model: PreTrainedModel) -> None:
    """Turn on gradient checkpointing, without putting dropout or anything else into training mode."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True
            # Layers with dropout of their own look at the same flag, so it is off while the layer computes.
            module.register_forward_pre_hook(lambda layer, _: setattr(layer, "training", False))
            module.register_forward_hook(lambda layer, *_: setattr(layer, "training", True), always_call=True)
