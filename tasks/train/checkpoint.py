"""Save and restore training state: the policy and the optimizer between stages, and checkpoints inside a stage.

An interrupted stage continues from its checkpoint, bit for bit.

Weights, AdamW's moments and counts are stored in fp32 under the names of the parameters, whatever held them: another
backend or number of processes can continue from them. What follows from the stage's inputs and the number of updates is
derived again. Every process of a backend must make the same calls; the leader writes.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import numpy as arrays
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from tasks.errors import ArtifactError
from tasks.models.files import GENERATION, read_json
from tasks.models.loading import OPTIMIZER, folder_weights
from tasks.models.lora import ADAPTER, merge_adapters, save_adapters
from tasks.process.interruption import stop, stop_requested
from tasks.settings import LoraSettings, OperationSettings
from tasks.store.progress import Progress
from tasks.train import distributed
from tasks.train.backend import MOMENTS, Backend, Named
from tasks.train.results import StageResults

_MOMENTS = f"{OPTIMIZER}/moments.safetensors"
_PROGRESS = f"{OPTIMIZER}/progress.json"
_TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "chat_template*")
_PROCESSOR = "*processor_config.json"
"""Settings for images, without which vLLM does not load a policy that can see, such as Gemma 3."""
_COPIED_FILES = (*_TOKENIZER, _PROCESSOR, GENERATION, "*.py")
_WEIGHTS, _COLUMNS, _RESULTS = "weights.safetensors", "columns.safetensors", "results.json"
_TRAIN, _LOGP = "train", "logp"
"""Names of the parts of a stage's progress: checkpoints, and columns alone."""
Columns = dict[str, npt.NDArray[np.float32]]
"""Log-probabilities of response tokens, by policy."""


def save_policy(folder: Path, backend: Backend, previous: Path, lora: LoraSettings | None = None) -> None:
    """Write the model, and the files of the previous policy which training does not change.

    With ``lora`` the previous policy is the base policy; the adapters are written, and merged with its weights.
    """
    named = backend.weights() if lora is not None else chain(backend.weights(), backend.frozen())
    weights = distributed.gather_on_rank0(named)
    if distributed.rank() > 0:
        return
    if lora is not None:
        save_adapters(folder / ADAPTER, weights, lora)
        merged = dict(merge_adapters(folder_weights(previous), weights, lora))
        save_file(merged, folder / "model.safetensors", metadata={"format": "pt"})
        config = read_json(previous / "config.json")
    else:
        parameters = dict(backend.model.named_parameters(remove_duplicate=False))
        buffers = {name: value for name, value in backend.model.state_dict().items() if name not in parameters}
        # The generation settings are copied below: transformers refuses to write some that sampling here ignores.
        backend.model.generation_config = GenerationConfig()
        backend.model.save_pretrained(folder, state_dict={**buffers, **weights})
        (folder / GENERATION).unlink(missing_ok=True)
        config = read_json(folder / "config.json")
    config.pop("torch_dtype", None)
    # transformers would otherwise round the weights to the dtype of the base policy or of the forward pass.
    text = json.dumps(config | {"dtype": "float32"}, indent=2, sort_keys=True)
    (folder / "config.json").write_text(f"{text}\n")
    for pattern in _COPIED_FILES:
        for file in previous.glob(pattern):
            shutil.copyfile(file, folder / file.name)


def save_optimizer(folder: Path, backend: Backend, updates: int) -> None:
    """Write AdamW's moments under the names of the parameters."""
    _save_tensors(folder / _MOMENTS, backend.moments())
    if distributed.rank() == 0:
        (folder / _PROGRESS).write_text(json.dumps({"updates": updates}))


def _save_tensors(path: Path, named: Named) -> None:
    """Write the tensors of all processes; rank 0 has them in memory until this returns."""
    tensors = distributed.gather_on_rank0(named)
    if distributed.rank() == 0:
        path.parent.mkdir(exist_ok=True)
        save_file(tensors, path)


def load_optimizer(folder: Path, backend: Backend) -> int:
    """Load AdamW's moments and step counts; return the run's updates so far, 0 for a base policy.

    Raises:
        ArtifactError: the moments are those of another model.
    """
    if not (folder / _PROGRESS).is_file():
        return 0
    updates = int(json.loads((folder / _PROGRESS).read_text())["updates"])
    moments = load_file(folder / _MOMENTS)
    for name, shape in backend.shapes().items():
        for moment in MOMENTS:
            stored = moments.get(f"{name}.{moment}")
            if stored is None or stored.shape != shape:
                raise ArtifactError(f"{folder / _MOMENTS}: no moments of shape {tuple(shape)} for {name}.")
    backend.set_moments(moments, updates)
    return updates


class Checkpoints:
    """Checkpoints of an unfinished stage: weights, moments, results, and the columns of the current responses.

    Columns are also saved alone, because to compute them may take as long as many updates. The engine's column is in
    the rollouts, and is not saved.

    Raises:
        ArtifactError: a method that reads does not find in this process what it found at rank 0.
    """

    def __init__(self, progress: Progress, operation: OperationSettings) -> None:
        self.columns: Columns = {}
        """Columns of the checkpoint that was restored."""
        self._progress = progress
        self._every, self._kept = operation.updates_per_checkpoint, operation.checkpoints_kept
        self._saved = 0

    def load_logp(self, earlier_updates: int) -> Columns:
        """Return the saved columns of responses, by the stage's updates before them; empty if none are saved."""
        number = earlier_updates
        folder = distributed.find_on_all_ranks(_LOGP, number, lambda: self._progress.get(_LOGP, number))
        return {} if folder is None else _map_columns(folder / _COLUMNS)

    def save_logp(self, earlier_updates: int, columns: Columns) -> None:
        """Save the columns of responses, by the stage's updates before them."""
        self._progress.put(_LOGP, earlier_updates, lambda folder: _save_columns(columns, folder / _COLUMNS))

    def due(self, done: int) -> bool:
        """Return whether to save after ``done`` of the stage's updates."""
        return done - self._saved >= self._every or distributed.any_rank(stop_requested())

    def save(self, backend: Backend, updates: int, results: StageResults, columns: Columns) -> None:
        """Save a checkpoint after an update, and delete those that are older than the ones kept.

        Raises:
            Interrupted: SIGTERM came.
        """

        def fill(folder: Path) -> None:
            _save_tensors(folder / _WEIGHTS, backend.weights())
            save_optimizer(folder, backend, updates)
            _save_columns(columns, folder / _COLUMNS)
            (folder / _RESULTS).write_text(json.dumps(asdict(results)))

        self._saved = len(results.rows)
        self._progress.put(_TRAIN, self._saved, fill)
        self._progress.keep_newest(_TRAIN, self._kept)
        if distributed.any_rank(stop_requested()):
            stop(f"update {updates}")

    def restore(self, backend: Backend, can_continue: Callable[[int], bool]) -> tuple[int, StageResults] | None:
        """Load the newest checkpoint into the backend, if ``can_continue`` accepts its number of the stage's updates.

        Returns:
            Updates of the run, and results of the stage so far; None if no checkpoint was loaded.
        """
        number, newest = self._progress.newest(_TRAIN) or (0, None)
        done = distributed.broadcast_int(number)
        folder = distributed.find_on_all_ranks(_TRAIN, done, lambda: newest if number == done else None)
        if folder is None:
            return None
        if not can_continue(done):
            self._progress.clear()
            return None
        backend.set_weights(load_file(folder / _WEIGHTS))
        self._saved, self.columns = done, _map_columns(folder / _COLUMNS)
        return load_optimizer(folder, backend), StageResults(**json.loads((folder / _RESULTS).read_text()))


def _save_columns(columns: Columns, path: Path) -> None:
    arrays.save_file({name: column for name, column in columns.items() if name != "engine"}, path)


def _map_columns(path: Path) -> Columns:
    # Torch's way of loading maps the file, numpy's reads it.
    return {name: column.numpy() for name, column in load_file(path).items()}
