"""What outlasts a stage: weights as a Hugging Face folder, AdamW's moments as safetensors, the number of updates.

All of it is in fp32 under the names of the parameters, whatever held it: another backend or number of processes goes on
from it. Every process of a backend must make the same calls; the leader writes.
"""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from tasks.errors import ArtifactError
from tasks.optimize import processes
from tasks.optimize.backends import Backend
from tasks.optimize.backends.backend import MOMENTS
from tasks.policy.files import GENERATION
from tasks.policy.loading import OPTIMIZER, folder_weights
from tasks.policy.lora import ADAPTER, merged, save_adapters
from tasks.settings import LoraSettings

_MOMENTS = f"{OPTIMIZER}/moments.safetensors"
_PROGRESS = f"{OPTIMIZER}/progress.json"
_TAKEN_ALONG = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    GENERATION,
    "*.py",
)


def save_policy(folder: Path, backend: Backend, previous: Path, lora: LoraSettings | None = None) -> None:
    """Writes the model, and the files of the policy that it came from which training does not change.

    Args:
        folder: to write to.
        backend: that holds the weights.
        previous: the policy that it came from; with ``lora`` the base policy.
        lora: what is trained are such adapters: they are written, and merged with the base policy's weights.
    """
    weights = processes.kept_by_leader(backend.weights())
    if processes.rank() > 0:
        return
    if lora is not None:
        save_adapters(folder / ADAPTER, weights, lora)
        whole = dict(merged(folder_weights(previous), weights, lora))
        save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        parameters = dict(backend.model.named_parameters(remove_duplicate=False))
        buffers = {name: value for name, value in backend.model.state_dict().items() if name not in parameters}
        # Settings of generation go along as they came: some that sampling here ignores, transformers would not write.
        backend.model.generation_config = GenerationConfig()
        backend.model.save_pretrained(folder, state_dict={**buffers, **weights})
        (folder / GENERATION).unlink(missing_ok=True)
    for pattern in _TAKEN_ALONG if lora is None else (*_TAKEN_ALONG, "config.json"):
        for file in previous.glob(pattern):
            shutil.copyfile(file, folder / file.name)


def save_optimizer(folder: Path, backend: Backend, updates: int) -> None:
    """Writes AdamW's moments under the names of the parameters."""
    moments = processes.kept_by_leader(backend.moments())
    if processes.rank() > 0:
        return
    (folder / _MOMENTS).parent.mkdir()
    save_file(moments, folder / _MOMENTS)
    (folder / _PROGRESS).write_text(json.dumps({"updates": updates}))


def save_weights(path: Path, backend: Backend) -> None:
    """Writes the parameters alone, bit by bit."""
    weights = processes.kept_by_leader(backend.weights())
    if processes.rank() == 0:
        save_file(weights, path)


def load_weights(path: Path, backend: Backend) -> None:
    """Puts the parameters that ``save_weights`` wrote into a backend."""
    backend.set_weights(load_file(path))


def load_optimizer(folder: Path, backend: Backend) -> int:
    """Restores AdamW's moments and step counts; returns the updates made so far, 0 for a base policy.

    Raises:
        ArtifactError: the moments are those of another model.
    """
    if not (folder / _PROGRESS).is_file():
        return 0
    updates = int(json.loads((folder / _PROGRESS).read_text())["updates"])
    moments = load_file(folder / _MOMENTS)
    for name, shape in backend.shapes().items():
        for moment in MOMENTS:
            found = moments.get(f"{name}.{moment}")
            if found is None or found.shape != shape:
                raise ArtifactError(f"{folder / _MOMENTS}: no moments of shape {tuple(shape)} for {name}.")
    backend.set_moments(moments, updates)
    return updates
