"""LoRA (arXiv 2106.09685): small trainable matrices beside frozen weights, merged into them for generation.

A trained policy holds the merged weights, which every engine loads like those of any policy, and the adapters in peft's
format, from which the next stage continues.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Linear
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tasks.errors import ArtifactError, DataError, SettingsError, check_extra, explain
from tasks.models.files import ADAPTER_CONFIG, read_json
from tasks.settings import LoraSettings

ADAPTER = "adapter"
"""Name of the folder in a policy that holds its adapters."""
_FILE = "adapter_model.safetensors"
_ADAPTER_SUFFIX, _PEFT_SUFFIX = ".default.weight", ".weight"
_PREFIX = "base_model.model."
_BASE_LAYER = ".base_layer."
"""Part of the name of a weight that has an adapter."""


def add_adapters(model: PreTrainedModel, settings: LoraSettings, seed: int) -> None:
    """Freeze a model and put adapters beside all its linear layers but the output embedding.

    They do not change the model's output at first, since one of the two matrices is 0.

    Raises:
        SettingsError: peft is not installed, or the model's linear layers are transformers' Conv1D.
        DataError: peft refuses the model, or would fail when it is used.
    """
    if any(isinstance(layer, Conv1D) for layer in model.modules()):
        raise SettingsError(
            f"optimize.lora: the linear layers of a {model.config.model_type} model are stored transposed (Conv1D), "
            "and adapters would not merge. Leave optimize.lora out, or choose another policy."
        )
    check_extra("peft", "optimize.lora")
    from peft import inject_adapter_in_model

    refusal = f"optimize.lora: peft cannot add adapters to a {model.config.model_type} model"
    with torch.random.fork_rng(devices=[]), explain(refusal, "Leave optimize.lora out, or choose another policy."):
        if any(isinstance(layer, Linear) and "Router" in type(layer).__name__ for layer in model.modules()):
            raise TypeError("its router is a linear layer with two outputs")
        torch.manual_seed(seed)
        inject_adapter_in_model(_config(settings), model)


def save_adapters(folder: Path, adapters: Mapping[str, Tensor], settings: LoraSettings) -> None:
    """Write adapters, by the model's names for them, into a new folder that ``PeftModel.from_pretrained`` reads."""
    folder.mkdir(parents=True)
    named = {_PREFIX + name.removesuffix(_ADAPTER_SUFFIX) + _PEFT_SUFFIX: tensor for name, tensor in adapters.items()}
    save_file(named, folder / _FILE, metadata={"format": "pt"})
    _config(settings).save_pretrained(str(folder))


@torch.no_grad()
def load_adapters(folder: Path, model: PreTrainedModel, settings: LoraSettings) -> None:
    """Load saved adapters into a model to which adapters were added.

    Raises:
        ArtifactError: the adapters are of another model, rank or alpha.
    """
    if (alpha := read_json(folder / ADAPTER_CONFIG)["lora_alpha"]) != settings.alpha:
        raise ArtifactError(
            f"{folder}: adapters made with optimize.lora.alpha {alpha:g}; {settings.alpha:g} would scale what they "
            "have learned. Set the former, or start again from the base policy."
        )
    adapters = load_file(folder / _FILE)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            saved = adapters.get(_PREFIX + name.removesuffix(_ADAPTER_SUFFIX) + _PEFT_SUFFIX)
            if saved is None or saved.shape != parameter.shape:
                raise ArtifactError(
                    f"{folder / _FILE}: no adapter of shape {tuple(parameter.shape)} for {name}. Train with the "
                    "optimize.lora that it was made with, or start again from the base policy."
                )
            parameter.copy_(saved)


def merge_adapters(
    weights: Iterable[tuple[str, Tensor]], adapters: Mapping[str, Tensor], settings: LoraSettings
) -> Iterator[tuple[str, Tensor]]:
    """Merge adapters, by the model's names for them, into the base policy's weights, in fp32.

    ``weights`` have the names of the base policy's folder, or those of a model to which adapters were added; the
    result has the names of the folder.

    Raises:
        DataError: some adapters belong to none of the weights.
    """
    remaining = dict(adapters)
    for inner, weight in weights:
        name, whole = inner.replace(_BASE_LAYER, "."), weight.float()
        layer = name.removesuffix(".weight")
        if (down := remaining.pop(f"{layer}.lora_A{_ADAPTER_SUFFIX}", None)) is not None:
            up = remaining.pop(f"{layer}.lora_B{_ADAPTER_SUFFIX}")
            whole = whole + settings.alpha / settings.rank * (up.float() @ down.float())
        yield name, whole
    check_merges(remaining, ())


def check_merges(adapters: Iterable[str], weights: Collection[str]) -> None:
    """Check that every adapter, by the model's name for it, belongs to one of a folder's weights.

    Raises:
        DataError: some do not, because the folder has other names than the model.
    """
    layers = sorted({name.partition(".lora_")[0] for name in adapters})
    if unknown := [layer for layer in layers if f"{layer}.weight" not in weights]:
        raise DataError(
            f"optimize.lora: {len(unknown)} of the weights that get adapters are not in the policy's folder by the "
            f"model's names, such as {unknown[0]}.weight, so the adapters could not be merged. Load the model with "
            "AutoModelForCausalLM, save it with save_pretrained and name that folder, or leave optimize.lora out, as "
            "for a model with experts, whose weights have other names in every folder."
        )


def _config(settings: LoraSettings) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, target_modules="all-linear", task_type="CAUSAL_LM", lora_dropout=0.0
    )
