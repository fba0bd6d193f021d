"""The finished runs of a comparison: their histories, response lengths and engine work."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tasks.evaluate.statistics import Values
from tasks.report.history import History, load_finished
from tasks.report.ledger import Ledger, make_ledger
from tasks.settings.experiment import NamedRun, PlannedRun
from tasks.settings.run import STAGES
from tasks.store import ArtifactRef, Store
from tasks.store.layout import ROLLOUTS_FILE
from tasks.store.records import Manifest
from tasks.store.tables import stream_table

_COLUMNS = ["prompt_token_ids", "response_token_ids"]


@dataclass(frozen=True)
class EngineWork:
    """Work of an engine's calls for one rollouts artifact, multiplied by the number of devices.

    Legend of shapes: F features of work, which are forward passes and rows in them.
    """

    engine: tuple[Any, ...]
    """Identity of the engine. Equal engines take the same time for a pass and for a row."""
    seconds: float
    """Seconds inside the calls."""
    work_F: Values
    """Work of the calls, as if every engine had made as many passes as the slowest one."""
    needed_F: Values
    """Work for the same tokens if every row of a batch were busy in each pass."""


@dataclass(frozen=True)
class SystemRun(NamedRun):
    """A finished run of a comparison."""

    history: History
    ledger: Ledger
    response_tokens: int = 0
    sequence_tokens: int = 0
    """Tokens of prompts and responses, as in training."""
    calls: Sequence[EngineWork] = ()
    """Work of the engines, one entry per rollouts artifact; empty if the work of some calls is unknown."""
    report: str = ""
    """Report of the run, as ``report/0123abcd``."""


def load_run(store: Store, named: NamedRun, report: ArtifactRef) -> SystemRun:
    """Load a run from its report, with the number of tokens of its responses.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
    """
    history = load_finished(store, store.manifest(report))
    shards = [shard for stage in history.stages for shard in stage.rollouts]
    responses, sequences = np.sum([tokens_of(store, shard) for shard in shards], axis=0).tolist()
    calls = [engine_work(shard) for shard in shards]
    known = [work for work in calls if work is not None]
    return SystemRun(
        model=named.model,
        system=named.system,
        seed=named.seed,
        history=history,
        ledger=make_ledger(history),
        response_tokens=responses,
        sequence_tokens=sequences,
        calls=known if len(known) == len(calls) else (),
        report=str(report),
    )


def tokens_of(store: Store, shard: Manifest) -> tuple[int, int]:
    """Return two numbers of tokens of rollouts: those of the responses, and those of responses and prompts.

    Only rollouts whose facts lack the numbers are read: those of all runs can be larger than the disk.
    """
    if {"tokens", "prompt_tokens"} <= shard.facts.keys():
        return shard.facts["tokens"], shard.facts["tokens"] + shard.facts["prompt_tokens"]
    responses = prompts = 0
    for table in stream_table(store.file(shard, ROLLOUTS_FILE), _COLUMNS):
        prompt_R, response_R = (pc.fill_null(pc.list_value_length(table[name]), 0) for name in _COLUMNS)
        responses += pc.sum(response_R).as_py()
        prompts += pc.sum(prompt_R.filter(pc.greater(response_R, 0))).as_py() or 0
    return responses, responses + prompts


def engine_work(shard: Manifest) -> EngineWork | None:
    """Return the work that the engines counted for rollouts; None if an interrupted attempt made some of them."""
    seconds, work = shard.facts.get("call_seconds"), shard.facts.get("engine_work")
    if not seconds or None in seconds or not work:
        return None
    # Plain values, because this code may not read settings that another version of it wrote.
    kind, dtype, parallel = (shard.settings["engine"][name] for name in ("kind", "dtype", "tensor_parallel"))
    devices = len(work) * parallel
    slowest = max(work, key=lambda one: one["passes"])
    needed = [parallel * sum(one[name] for one in work) for name in ("full_passes", "tokens")]
    return EngineWork(
        engine=(kind, dtype, parallel),
        seconds=devices * sum(seconds),
        work_F=devices * np.array([slowest["passes"], slowest["rows"]], dtype=float),
        needed_F=np.array(needed, dtype=float),
    )


def by_system(runs: Sequence[SystemRun]) -> dict[tuple[str, str], list[SystemRun]]:
    """Return the runs by model and system."""
    groups: dict[tuple[str, str], list[SystemRun]] = {}
    for run in runs:
        groups.setdefault((run.model, run.system), []).append(run)
    return groups


Pair = tuple[SystemRun, SystemRun]
"""A run of the reference and a run of a baseline, with the same model and seed."""


def pairs_of(runs: Sequence[SystemRun], model: str, reference: str, baseline: str) -> list[Pair]:
    """Return the pairs of runs of both systems with one model, one pair per common seed."""
    ours = {run.seed: run for run in runs if (run.model, run.system) == (model, reference)}
    theirs = [run for run in runs if (run.model, run.system) == (model, baseline)]
    return [(ours[run.seed], run) for run in theirs if run.seed in ours]


def pairs_by_baseline(
    runs: Sequence[SystemRun], reference: str, baselines: Sequence[str]
) -> Iterator[tuple[str, str, list[Pair]]]:
    """Yield every model and baseline that have pairs, with these pairs."""
    for model in dict.fromkeys(run.model for run in runs):
        for baseline in baselines:
            if pairs := pairs_of(runs, model, reference, baseline):
                yield model, baseline, pairs


def match_reports(store: Store, planned: Sequence[PlannedRun]) -> list[ArtifactRef | None]:
    """Find the report of every planned run by its settings; None for a run that is not finished.

    A run with another number of stages, or with stages of another run, is not a planned one.

    Raises:
        ArtifactError: the store cannot be read.
    """
    stored = [
        (report.ref, report.settings)
        for report in store.manifests("report")
        if len(report.parents["evaluations"]) == STAGES + 1 and not report.known_facts.get("trained_from")
    ]
    wanted = [run.settings.result_values() for run in planned]
    return [next((ref for ref, settings in stored if _fits(one, settings)), None) for one in wanted]


def _fits(planned: Any, actual: Any) -> bool:
    """Return whether settings match the planned ones. A planned source without a commit matches any commit."""
    if isinstance(planned, dict) and isinstance(actual, dict):
        return all(_fits(value, actual.get(name)) for name, value in planned.items() if (name, value) != ("commit", ""))
    if isinstance(planned, list) and isinstance(actual, list):
        return len(planned) == len(actual) and all(map(_fits, planned, actual))
    return bool(planned == actual)
