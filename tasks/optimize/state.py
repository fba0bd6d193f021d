"""What outlasts a stage: weights as a Hugging Face folder, AdamW's moments as safetensors, the number of updates."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from tasks.errors import ArtifactError
from tasks.policy.loading import OPTIMIZER

_MOMENTS = f"{OPTIMIZER}/moments.safetensors"
_PROGRESS = f"{OPTIMIZER}/progress.json"
_TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "chat_template*")


def save_policy(folder: Path, model: PreTrainedModel, previous: Path) -> None:
    """Writes the model, and the tokenizer files of the policy that it came from, unchanged."""
    model.save_pretrained(folder)
    for pattern in _TOKENIZER:
        for file in previous.glob(pattern):
            shutil.copyfile(file, folder / file.name)


def save_optimizer(folder: Path, model: PreTrainedModel, optimizer: torch.optim.AdamW, updates: int) -> None:
    """Writes AdamW's moments under the names of the parameters."""
    moments: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        moments[f"{name}.exp_avg"], moments[f"{name}.exp_avg_sq"] = state["exp_avg"], state["exp_avg_sq"]
    (folder / _MOMENTS).parent.mkdir()
    save_file(moments, folder / _MOMENTS)
    (folder / _PROGRESS).write_text(json.dumps({"updates": updates}))


def save_weights(path: Path, model: PreTrainedModel) -> None:
    """Writes the parameters alone, bit by bit."""
    save_file({name: parameter.detach() for name, parameter in model.named_parameters()}, path)


@torch.no_grad()
def load_weights(path: Path, model: PreTrainedModel) -> None:
    """Puts the parameters that ``save_weights`` wrote into a model."""
    weights = load_file(path)
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])


def load_optimizer(folder: Path, model: PreTrainedModel, optimizer: torch.optim.AdamW) -> int:
    """Restores AdamW's moments and step counts; returns the updates made so far, 0 for a base policy.

    Raises:
        ArtifactError: the moments are those of another model.
    """
    if not (folder / _PROGRESS).is_file():
        return 0
    updates = int(json.loads((folder / _PROGRESS).read_text())["updates"])
    moments: Mapping[str, Tensor] = load_file(folder / _MOMENTS)
    for name, parameter in model.named_parameters():
        first, second = moments.get(f"{name}.exp_avg"), moments.get(f"{name}.exp_avg_sq")
        if first is None or second is None or first.shape != parameter.shape:
            raise ArtifactError(f"{folder / _MOMENTS}: no moments of shape {tuple(parameter.shape)} for {name}.")
        optimizer.state[parameter] = {
            "step": torch.tensor(float(updates)),
            "exp_avg": first,
            "exp_avg_sq": second,
        }
    return updates
