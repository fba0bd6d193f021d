"""The protocol of an engine, which samples responses to requests, and how one is loaded.

A new engine is a file with a class that follows ``Engine``, and a subclass of ``EngineSettings`` in
tasks/settings/devices.py.
"""

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasks.errors import SettingsError
from tasks.process.resident import load_resident

if TYPE_CHECKING:  # so that a machine with torch and transformers alone can measure an engine
    from tasks.settings import EngineSettings


@dataclass(frozen=True)
class Request:
    """One response to sample."""

    prompt_id: str
    sample_index: int
    prompt_token_ids: list[int]
    seed: int
    """0 to 2**64 - 1. It alone determines the response to this prompt, whatever else is generated with it."""


@dataclass(frozen=True)
class Sampling:
    """Parameters of sampling. With ``temperature`` 0, every token is the most probable one."""

    max_new_tokens: int
    temperature: float = 1.0


@dataclass(frozen=True)
class Response:
    """A sampled response, with the stop token at its end. A missing response has no tokens."""

    token_ids: npt.NDArray[np.int32]
    logp: npt.NDArray[np.float32]
    """Log-probabilities of the tokens under the distribution they were sampled from."""
    finish_reason: Literal["stop", "length", "missing"]


OnDone = Callable[[int, int], None]
"""A callback that takes the numbers of responses and tokens that were completed since its last call."""
MISSING = Response(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32), "missing")
"""The response to a request that the engine could not serve."""


class Work(NamedTuple):
    """The forward passes of an engine."""

    passes: int = 0
    """Forward passes, each of which reads all weights."""
    rows: int = 0
    """Rows of all passes, including those of complete responses that the batch still computes."""
    tokens: int = 0
    """Response tokens, which is the number of rows that were needed."""
    full_passes: float = 0.0
    """Number of passes for the same tokens if every pass had as many rows as the batch can hold."""

    def plus(self, passes: int, rows: int, tokens: int, width: int) -> "Work":
        """Return this work plus that of a batch whose widest pass had ``width`` rows."""
        full = self.full_passes + tokens / width
        return Work(self.passes + passes, self.rows + rows, self.tokens + tokens, full)


class Engine(Protocol):
    """A policy that is loaded for generation."""

    context_tokens: int
    """Longest prompt plus response."""
    work: Work
    """Work since the engine was loaded, or since this was reset; ``generate`` adds to it."""

    @classmethod
    def load(cls, folder: Path, settings: "EngineSettings", colocated: bool) -> "Engine":
        """Load a policy from its folder.

        With ``colocated`` this process trains too: it gives weights to the engine, and needs the device's memory while
        the engine rests.

        Raises:
            SettingsError: the engine is not installed, or it asks for more than the machine has.
            DeviceError: the engine does not start, and may start on another machine.
        """

    def generate(self, requests: Sequence[Request], sampling: Sampling, on_done: OnDone) -> list[Response]:
        """Sample one response per request, in the order of the requests.

        ``on_done`` is called at short intervals, also with zeros. It raises an exception if the call must end.
        """

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Load all weights of another policy of the same shape, whole, on any device, by their names in its folder.

        This ends a rest. The engine may share the tensors, so it must be given all weights again after they changed.
        """

    def rest(self) -> None:
        """Release memory for the trainer, until ``update_weights``."""

    def close(self) -> None:
        """Release the memory of the engine, which cannot generate afterwards."""


def ignore_progress(_responses: int, _tokens: int) -> None:
    """Do nothing; for callers that show no progress."""


def engine_of(folder: Path, policy_digest: str, settings: "EngineSettings") -> Engine:
    """Return the engine of a policy folder, loaded unless this process holds it already; see ``Engine.load``."""
    return load_resident("engine", (policy_digest, settings.model_dump_json()), lambda: load_engine(folder, settings))


def load_engine(folder: Path, settings: "EngineSettings", colocated: bool = False) -> Engine:
    """Load an engine, which the caller closes; see ``Engine.load``.

    Raises:
        SettingsError: the module or the class of the engine is not found; or see ``Engine.load``.
    """
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()  # An engine in another process needs the memory that training has cached here.
    try:
        engine: type[Engine] = resolve_name(settings.path)
    except (ImportError, AttributeError) as error:
        raise SettingsError(
            f"engine.kind: {settings.kind} is {settings.path}, which cannot be imported: {error}. To fix it: install "
            "its package, or add its folder to PYTHONPATH; in a pod, the image needs it."
        ) from error
    return engine.load(folder, settings, colocated)
