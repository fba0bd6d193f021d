"""What an engine is: requests with token ids and seeds in, responses with log-probabilities out."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

LEAVE_SHARE = 0.25
"""In transformers' loop finished rows leave a batch once they are this share of it: each leave copies the KV cache."""


@dataclass(frozen=True)
class Request:
    """One response to sample."""

    prompt_id: str
    sample_index: int
    prompt_token_ids: list[int]
    seed: int


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; ``temperature`` 0 takes the most probable one."""

    max_new_tokens: int
    temperature: float = 1.0


@dataclass(frozen=True)
class Response:
    """A sampled response; a stop token at its end is part of it. One that is missing has no tokens."""

    token_ids: npt.NDArray[np.int32]
    logp: npt.NDArray[np.float32]
    """Log-probabilities of the tokens under the distribution they were sampled from."""
    finish_reason: Literal["stop", "length", "missing"]


MISSING = Response(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32), "missing")
"""What stands for a response that could not be generated."""


class Engine(Protocol):
    """A policy that is loaded for generation."""

    context_tokens: int
    """Longest prompt plus response."""

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_done: Callable[[int, int], None]
    ) -> list[Response]:
        """One response per request, in the order of the requests.

        ``on_done`` is called with the numbers of responses and tokens that were finished since its last call.
        """
        ...

    def update_weights(self, weights: "Iterable[tuple[str, Tensor]]") -> None:
        """Takes the weights of another policy of the same shape in place of its own; a rest ends.

        Args:
            weights: all of them, whole, on any device, by the names that parameters have in the policy's folder. The
                engine may keep the tensors themselves: after a change of them it is to be given all again.
        """
        ...

    def rest(self) -> None:
        """Gives back memory while others need it; only after ``update_weights`` it generates again."""
        ...

    def close(self) -> None:
        """Gives back the memory that the engine holds; it cannot generate afterwards."""
        ...


def sampling_seed(run_seed: int, purpose: str, prompt_id: str, sample_index: int) -> int:
    """The seed of one response: the same on every machine, whatever else is in its batch.

    Args:
        run_seed: of the run.
        purpose: ``stage 0``, ``stage 1``, ..., or ``evaluate``.
        prompt_id: of the prompt.
        sample_index: counts the prompt's responses.
    """
    text = f"{run_seed}/{purpose}/{prompt_id}/{sample_index}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
