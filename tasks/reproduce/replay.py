"""Generation replayed from the lengths of its responses: the forward passes that an engine makes, and what is in them.

A forward pass reads all weights, computes a token for every row in it, and looks at every row's tokens so far. The
first pass of a response reads its prompt, once for all responses to it, and gives its first token; each further pass
gives one token more. What the same passes would be if all rows were at work in all of them is the *full* part;
the rest is the *barrier*: passes that go on for the longest responses alone, rows that are done and still computed,
and engines that wait for others.

Legend of shapes: R responses of one engine, B rows of a batch, F features of work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from tasks.reproduce.sampled import Call, Ints, Sampled
from tasks.rollout.engine import LEAVE_SHARE
from tasks.settings import EngineSettings

Work = npt.NDArray[np.float64]
"""[F]: forward passes; tokens that they compute; tokens that rows look at."""
FEATURES = ("a pass", "a token", "a token looked at")


@dataclass(frozen=True)
class Replayed:
    """The work of a call, in that of one device: what several engines do side by side is summed."""

    full: Work
    barrier: Work
    slowest: Work
    """Of the engine that the others wait for: what the seconds of the call were spent on."""


def replay(responses: Sampled, made_as: Sampled | None = None) -> list[Replayed]:
    """The calls in which the responses of a run were generated, or would have been by another run's engine and calls.

    Args:
        responses: of the run.
        made_as: whose calls and engine; its own without it. Where responses are left after the last call, calls begin
            again with the first.
    """
    made_as = made_as or responses
    return [_call(responses, shares, made_as.engine) for shares in _cut(len(responses.tokens_R), made_as.calls)]


def total(calls: Sequence[Replayed], part: str) -> Work:
    """The sum over calls of ``full`` or ``barrier``."""
    return np.sum([getattr(call, part) for call in calls], axis=0) if calls else np.zeros(len(FEATURES))


def _cut(responses: int, calls: Sequence[Call]) -> Iterator[list[slice]]:
    """The rows of every engine, call by call."""
    start = 0
    while start < responses:
        for call in calls:
            shares = []
            for size in call.shares:
                shares.append(slice(start, min(start + size, responses)))
                start = shares[-1].stop
            yield shares
            if start >= responses:
                return


def _call(responses: Sampled, shares: Sequence[slice], engine: EngineSettings) -> Replayed:
    work = [_engine(responses, share, engine) for share in shares]
    slowest = max((whole for whole, _ in work), key=lambda whole: tuple(whole))
    full = np.sum([full for _, full in work], axis=0)
    devices = engine.tensor_parallel
    return Replayed(devices * full, devices * (len(shares) * slowest - full), slowest)


def _engine(responses: Sampled, share: slice, engine: EngineSettings) -> tuple[Work, Work]:
    """All work of an engine for some responses, and the full part of it."""
    there = responses.tokens_R[share] > 0
    prompt_R, tokens_R = responses.prompt_R[share][there], responses.tokens_R[share][there]
    prompt_tokens_R = responses.prompt_tokens_R[share][there]
    whole, full = np.zeros(len(FEATURES)), np.zeros(len(FEATURES))
    if not len(tokens_R):
        return whole, full
    if engine.kind == "vllm":
        order = np.argsort(-prompt_tokens_R, kind="stable")
        batches = [(order, _continuous(tokens_R[order], engine.batch_size), tokens_R[order] - 1)]
    else:
        order = np.argsort(prompt_R, kind="stable")
        places = [order[start : start + engine.batch_size] for start in range(0, len(order), engine.batch_size)]
        batches = [(place, int(tokens_R[place].max()), _stays(tokens_R[place])) for place in places]
    for place, passes, stay_B in batches:
        read = _prompts(prompt_R[place], prompt_tokens_R[place])
        width = min(engine.batch_size, len(place))
        whole += [passes, read + stay_B.sum(), _looked_at(prompt_tokens_R[place], stay_B)]
        made_B = tokens_R[place] - 1
        full += [tokens_R[place].sum() / width, read + made_B.sum(), _looked_at(prompt_tokens_R[place], made_B)]
    return whole, full


def _prompts(prompt_B: Ints, prompt_tokens_B: Ints) -> int:
    """Tokens of different prompts."""
    _, first = np.unique(prompt_B, return_index=True)
    return int(prompt_tokens_B[first].sum())


def _looked_at(prompt_tokens_B: Ints, passes_B: Ints) -> int:
    """Tokens that rows look at in their passes after the first: the prompt, and one more with every pass."""
    return int((passes_B * prompt_tokens_B + passes_B * (passes_B + 1) // 2).sum())


def _stays(tokens_B: Ints) -> Ints:
    """Passes after the first that a row of transformers' loop is part of: rows that are done leave together."""
    order = np.argsort(tokens_B, kind="stable")
    ordered = tokens_B[order]
    size, left = len(ordered), 0
    stay_B = np.full(size, ordered[-1] - 1)
    ends = np.searchsorted(ordered, np.unique(ordered), side="right")
    for end in ends[:-1]:
        if end - left >= LEAVE_SHARE * (size - left):
            stay_B[left:end] = ordered[end - 1] - 1
            left = end
    stays_B = np.empty(size, dtype=np.int64)
    stays_B[order] = stay_B
    return stays_B


def _continuous(tokens_R: Ints, rows: int) -> int:
    """Passes of an engine that gives a row's place to the next response as soon as it is done (vLLM)."""
    if len(tokens_R) <= rows:
        return int(tokens_R.max())
    free = tokens_R[:rows].tolist()
    heapify(free)
    for tokens in tokens_R[rows:].tolist():
        heapreplace(free, free[0] + tokens)
    return int(max(free))
