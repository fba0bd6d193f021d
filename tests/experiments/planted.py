"""Runs whose causes are known, with seconds that are made from rates for the passes and rows of each call; studies."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tasks.experiments.runs import EngineWork, SystemRun
from tasks.report.history import History, Stage
from tasks.report.ledger import make_ledger
from tasks.store import ArtifactRef, Store
from tasks.store.layout import CURVE_FILE, METRICS_FILE
from tasks.store.records import Manifest, Timings
from tasks.store.tables import CURVE, save_table, write_table

PASS, ROW = 0.01, 0.0004
"""Seconds of a forward pass, and of a row in it."""
PROMPT = 4
"""Tokens of every prompt."""


class Sampled(NamedTuple):
    """What a run generated; without calls their work is not known."""

    response_tokens: int = 0
    sequence_tokens: int = 0
    calls: Sequence[EngineWork] = ()


def call(tokens: Sequence[int], places: int, slower: float = 1.0) -> EngineWork:
    """A call of an engine that decodes so many responses at once, each batch until its longest one ends."""
    batches = [tokens[start : start + places] for start in range(0, len(tokens), places)]
    work_F = np.array([sum(max(one) for one in batches), sum(len(one) * max(one) for one in batches)], float)
    needed_F = np.array([sum(sum(one) / len(one) for one in batches), sum(tokens)], float)
    return EngineWork(("engine",), slower * float(work_F @ (PASS, ROW)), work_F, needed_F)


def sampled(tokens: Sequence[int], calls: Sequence[int], places: int = 64, slower: float = 1.0) -> Sampled:
    """Responses of these lengths, cut into calls of these sizes."""
    ends = [0, *np.cumsum(calls).tolist()]
    assert ends[-1] == len(tokens)
    made = [call(list(tokens[start:end]), places, slower) for start, end in pairwise(ends)]
    return Sampled(sum(tokens), sum(tokens) + PROMPT * len(tokens), made)


def planted(
    system: str, made: Sampled, seed: int = 0, updates: int = 8, settings: Any = None, **phases: float
) -> SystemRun:
    """A run of one stage in one process; ``rest`` is what it spent in no phase, the other phases are in its policy."""
    rest = phases.pop("rest", 0.0)
    phases.setdefault("generate", sum(call.seconds for call in made.calls))
    finished = sum(phases.values()) + rest
    timings = Timings(process="one", process_started=-1e6, started=0.0, finished=finished, phases=phases)
    name = {"kind": "policy", "digest": f"{system} {seed}", "seed": seed, "parents": {}, "task": ""}
    facts = {"stage": 1, "updates": updates}
    policy = Manifest.model_construct(**name, settings=settings or {}, facts=facts, timings=timings)
    verdicts = policy.model_copy(update={"timings": timings.model_copy(update={"finished": 0.0, "phases": {}})})
    stage = Stage(1, 1, updates, policy, [], verdicts)
    history = History([], [stage], {}, {}, {policy.ref: policy}, system, updates, seed)
    return SystemRun("tiny", system, seed, history, make_ledger(history), *made)


def study(store: Store, seed: int, solved: list[float], last: int = 8, peak: float = 0.5) -> ArtifactRef:
    """A study of 8 updates, evaluated after every second, or one that collapsed after ``last`` of them."""
    accuracies = {0: seed / 16, 2: 0.5, 4: peak, 6: 0.5, last: sum(solved) / len(solved)}
    rest = {"problem_accuracy": solved, "working": None, "response_tokens": 1.0}
    rows = [{"update": update, "accuracy": accuracy, **rest} for update, accuracy in accuracies.items()]
    metrics = {"tokens": [100, 300], "veto_fraction": [peak, None], "clip_fraction": [0.2, 0.4]}
    with store.write("study", settings={}, parents={}, seed=seed) as draft:
        write_table(draft.path / CURVE_FILE, rows, CURVE)
        save_table(draft.path / METRICS_FILE, pa.table(metrics))
        draft.facts.update(stopped="" if last == 8 else "a gate")
    return draft.ref
