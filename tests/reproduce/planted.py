"""Runs whose causes are known: seconds are made from rates by a simulation that steps through every forward pass."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.artifacts.records import ArtifactRef, Manifest, Timings
from tasks.report.history import History, Stage
from tasks.report.ledger import make_ledger
from tasks.reproduce.runs import SystemRun
from tasks.reproduce.sampled import Call, Sampled
from tasks.settings import EngineSettings

PASS, TOKEN, LOOK = 0.01, 0.0004, 0.000002
"""Seconds of a forward pass, of a token in it, of a token that is looked at."""
PROMPT = 4
"""Tokens of every prompt; every response has its own prompt here."""
MANY = EngineSettings(batch_size=64)
"""Transformers' loop."""
PLACES = EngineSettings(kind="vllm", batch_size=4)


def passes(tokens: Sequence[int], engine: EngineSettings) -> list[list[int]]:
    """The rows of every forward pass of a call, each as the tokens that it has then; the first reads its prompt."""
    return (
        _continuous(list(tokens), engine.batch_size) if engine.kind == "vllm" else _batches(tokens, engine.batch_size)
    )


def _batches(tokens: Sequence[int], size: int) -> list[list[int]]:
    found = []
    for start in range(0, len(tokens), size):
        rows = list(tokens[start : start + size])
        made = 0
        while True:
            found.append([made] * len(rows))
            made += 1
            done = sum(row <= made for row in rows)
            if done == len(rows):
                break
            if done >= 0.25 * len(rows):
                rows = [row for row in rows if row > made]
    return found


def _continuous(waiting: list[int], places: int) -> list[list[int]]:
    found, rows = [], list[list[int]]()
    while waiting or rows:
        while waiting and len(rows) < places:
            rows.append([waiting.pop(0), 0])
        found.append([made for _, made in rows])
        rows = [[length, made + 1] for length, made in rows if made + 1 < length]
    return found


def work(tokens: Sequence[int], engine: EngineSettings) -> tuple[int, int, int]:
    """Passes, tokens computed, tokens looked at."""
    every = passes(tokens, engine)
    computed = sum(1 if made else PROMPT for rows in every for made in rows)
    looked_at = sum(PROMPT + made for rows in every for made in rows if made)
    return len(every), computed, looked_at


def seconds(tokens: Sequence[int], engine: EngineSettings) -> float:
    return float(np.dot(work(tokens, engine), (PASS, TOKEN, LOOK)))


def sampled(tokens: Sequence[int], calls: Sequence[int], engine: EngineSettings, slower: float = 1.0) -> Sampled:
    """Responses of these lengths, cut into calls of these sizes."""
    ends = np.cumsum(calls)
    assert ends[-1] == len(tokens)
    pieces = np.split(np.asarray(tokens), ends[:-1])
    return Sampled(
        prompt_R=np.arange(len(tokens)),
        prompt_tokens_R=np.full(len(tokens), PROMPT),
        tokens_R=np.asarray(tokens, dtype=np.int64),
        calls=[Call((len(piece),), slower * seconds(piece.tolist(), engine)) for piece in pieces],
        engine=engine,
    )


def planted(
    system: str, made: Sampled | None, seed: int = 0, updates: int = 8, settings: Any = None, **phases: float
) -> SystemRun:
    """A run of one stage in one process; ``rest`` is what it spent in no phase, the other phases are in its policy."""
    rest = phases.pop("rest", 0.0)
    if made is not None:
        phases.setdefault("generate", sum(call.seconds or 0.0 for call in made.calls))
    spent = sum(phases.values()) + rest
    policy = Manifest(
        schema_version=1,
        kind="policy",
        digest=f"{system} {seed}",
        files={},
        parents={},
        settings=settings or {},
        seed=seed,
        task="",
        code_version="",
        commit="",
        packages={},
        facts={"stage": 1, "updates": updates},
        timings=Timings(process="one", process_started=-1e6, started=0.0, finished=spent, phases=phases),
    )
    history = History(
        evaluated=[],
        stages=[Stage(1, 1, updates, policy, [], [])],
        updates={},
        histograms={},
        manifests={ArtifactRef(kind="policy", digest=policy.digest): policy},
        algorithm=system,
        updates_per_rollout=updates,
        seed=seed,
    )
    return SystemRun("tiny", system, seed, history, make_ledger(history), made)
