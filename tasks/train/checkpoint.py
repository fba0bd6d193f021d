"""What outlasts a stage, and where training stands inside one, so that an interrupted stage goes on with the same bits.

Weights, AdamW's moments and counts are stored in fp32 under the names of the parameters, whatever held them: another
backend or number of processes goes on from them. What follows from the stage's inputs and the number of updates is
derived again. Every process of a backend must make the same calls; the leader writes.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file as save_columns
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from tasks.artifacts.progress import Progress
from tasks.errors import ArtifactError
from tasks.interruption import asked, stop
from tasks.policy.files import GENERATION
from tasks.policy.loading import OPTIMIZER, folder_weights
from tasks.policy.lora import ADAPTER, merged, save_adapters
from tasks.settings import LoraSettings, OperationSettings
from tasks.train import distributed
from tasks.train.backends import Backend
from tasks.train.backends.backend import MOMENTS
from tasks.train.outcome import Outcome

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
    """Write the model, and the files of the policy that it came from which training does not change.

    Args:
        folder: to write to.
        backend: that holds the weights.
        previous: the policy that it came from; with ``lora`` the base policy.
        lora: what is trained are such adapters: they are written, and merged with the base policy's weights.
    """
    weights = distributed.gather_on_rank0(backend.weights())
    if distributed.rank() > 0:
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
    """Write AdamW's moments under the names of the parameters."""
    moments = distributed.gather_on_rank0(backend.moments())
    if distributed.rank() > 0:
        return
    (folder / _MOMENTS).parent.mkdir()
    save_file(moments, folder / _MOMENTS)
    (folder / _PROGRESS).write_text(json.dumps({"updates": updates}))


def save_weights(path: Path, backend: Backend) -> None:
    """Write the parameters alone, bit by bit."""
    weights = distributed.gather_on_rank0(backend.weights())
    if distributed.rank() == 0:
        save_file(weights, path)


def load_weights(path: Path, backend: Backend) -> None:
    """Load the parameters that ``save_weights`` wrote into a backend."""
    backend.set_weights(load_file(path))


def load_optimizer(folder: Path, backend: Backend) -> int:
    """Load AdamW's moments and step counts; return the updates made so far, 0 for a base policy.

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


Columns = dict[str, npt.NDArray[np.float32]]
_WEIGHTS, _COLUMNS, _STATE = "weights.safetensors", "columns.safetensors", "state.json"
Found = TypeVar("Found")
_TRAIN, _LOGP = "train", "logp"


class Resume:
    """Reads and writes the states of an unfinished stage."""

    def __init__(self, progress: Progress, operation: OperationSettings) -> None:
        self.progress = progress
        self._every, self._kept = operation.updates_per_checkpoint, operation.checkpoints_kept

    def logp(self) -> Columns:
        """Return log-probabilities of the stage's tokens that were computed before; empty when there are none."""
        folder = self.load_on_all_ranks(_LOGP, 0, lambda: self.progress.get(_LOGP, 0))
        return {} if folder is None else _mapped(folder / _COLUMNS)

    def keep_logp(self, columns: Columns) -> None:
        """Save log-probabilities of the stage's tokens, by policy."""
        self.progress.put(_LOGP, 0, lambda folder: save_columns(columns, folder / _COLUMNS))

    def due(self, done: int, total: int, saved: int = 0) -> bool:
        """Return whether to save after ``done`` of the stage's updates, when the last state is of ``saved`` updates."""
        return done < total and (done - saved >= self._every or bool(distributed.broadcast_int(asked())))

    def save(
        self,
        done: int,
        backend: Backend,
        updates: int,
        outcomes: Sequence[Outcome],
        columns: Columns,
    ) -> None:
        """Save the state after ``done`` updates of the stage, and delete states that are older than those kept.

        Raises:
            Interrupted: a stop was asked for.
        """

        def fill(folder: Path) -> None:
            save_weights(folder / _WEIGHTS, backend)
            save_optimizer(folder, backend, updates)
            save_columns(columns, folder / _COLUMNS)
            (folder / _STATE).write_text(json.dumps([asdict(outcome) for outcome in outcomes]))

        self.progress.put(_TRAIN, done, fill)
        self.progress.keep_newest(_TRAIN, self._kept)
        if distributed.broadcast_int(asked()):
            stop(f"update {updates}")

    def done(self) -> int:
        """Return how many updates of the stage the newest state includes; 0 when there is none."""
        newest = self.progress.newest(_TRAIN)
        return newest[0] if newest else 0

    def restore(self, backend: Backend) -> "tuple[int, int, list[Outcome], Columns] | None":
        """Load the newest state into the backend.

        Returns:
            Updates done of the stage, updates done of the run, what training gave so far, and columns of tokens; None
            when there is no state.
        """
        newest = self.progress.newest(_TRAIN)
        done = distributed.broadcast_int(newest[0] if newest else 0)
        folder = self.load_on_all_ranks(_TRAIN, done, lambda: newest[1] if newest and newest[0] == done else None)
        if folder is None:
            return None
        load_weights(folder / _WEIGHTS, backend)
        updates = load_optimizer(folder, backend)
        outcomes = [Outcome(**plain) for plain in json.loads((folder / _STATE).read_text())]
        return done, updates, outcomes, _mapped(folder / _COLUMNS)

    def load_on_all_ranks(self, name: str, number: int, find: Callable[[], Found | None]) -> Found | None:
        """Find a part at rank 0 and then in every process; None when rank 0 does not find it.

        Raises:
            ArtifactError: the leader finds it, and this process does not.
        """
        found = find() if distributed.rank() == 0 else None
        if not distributed.broadcast_int(found is not None):
            return None
        if distributed.rank() > 0:
            found = find()
        if found is None:
            raise ArtifactError(
                f"{name} {number}: process {distributed.rank()} does not find what the "
                "leader found. Give all processes the same store."
            )
        return found


def _mapped(path: Path) -> Columns:
    # Torch's way of loading maps the file, numpy's reads it.
    return {name: column.numpy() for name, column in load_file(path).items()}
