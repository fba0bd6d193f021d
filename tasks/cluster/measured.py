"""Rates that are measured in a finished run, for the plan of another run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.cluster.rates import EngineRates, Pool, Rates, passes
from tasks.cluster.steps import evaluation_calls
from tasks.errors import DataError
from tasks.settings import EngineSettings, RunSettings
from tasks.settings.base import flat, names_that_differ

if TYPE_CHECKING:  # A plan without a store imports neither numpy nor pyarrow.
    from tasks.report.history import History
    from tasks.store import Store
    from tasks.store.records import Manifest

Point = tuple[float, float, float]
"""Two amounts of work, and the seconds of both together."""
_ALIKE = 0.97
"""Squared cosine above which two amounts are collinear, so that a fit cannot separate their seconds."""
_SAME = (
    *("policy.path", "policy.tiny", "rollout.engine.kind", "rollout.engine.dtype"),
    *("optimize.backend.kind", "optimize.backend.dtype", "optimize.lora"),
)
"""Settings that both runs must share, without which rates do not apply."""


def measure_rates(run: RunSettings, store: "Store", pool: Pool) -> tuple[Rates, str]:
    """Return the rates of the latest finished run in a store, for a run on a pool, and the name of the finished run.

    Runs of the workflow of the planned run come first.

    Raises:
        DataError: the store has no finished run, or its run has another policy, engine or backend.
    """
    from tasks.report.history import load_finished
    from tasks.stored.runs import find_reports

    uri, reports = store.ref.uri, find_reports(store)
    report = next(
        (one for one in reports if (one.settings.get("updates_per_rollout") is not None) == run.alternates), reports[0]
    )
    history = load_finished(store, report)
    name = f"{history.algorithm}, mu {history.updates_per_rollout}, seed {history.seed}, {report.ref}"
    return read_rates(run, history, pool, uri), name


def read_rates(run: RunSettings, history: "History", pool: Pool, uri: str) -> Rates:
    """Return the rates of a finished run, for a planned run on a pool.

    Raises:
        DataError: the finished run has another policy, engine or backend, or settings that this version cannot read.
    """
    from tasks.report.ledger import make_ledger

    measured = RunSettings.parse_stored(history.settings, uri)
    _check_same_kind(run, measured, uri)
    engine, stages, everything = measured.rollout.engine, history.stages, history.manifests.values()
    trained, last, evaluated = [one.policy for one in stages], stages[-1].verdicts, history.of_kind("evaluation")
    # On all nodes; older runs record only the processes on a node.
    processes: int = trained[-1].facts.get("processes", measured.optimize.backend.processes)
    (step, row), (verifier, answer) = _decoding_rates(measured, history, processes), _verification_rates(history)
    tokens = sum(_tokens(one.verdicts.facts) for one in stages)
    assumed, scale = pool.costs.assumptions, processes / pool.training_gpus
    (trained_passes, scored_passes), before = passes(measured.optimize), 1 + measured.optimize.objective.needs_reference
    forward = _phase_seconds("logp", everything) / (before * tokens)
    # The other forward passes, such as those of a proximal policy, are in phase optimize.
    update = max(0.0, _phase_seconds("optimize", everything) / tokens - (scored_passes - before) * forward)
    ledger, started = make_ledger(history).seconds, {one.timings.process for one in everything}
    stored = sum(file.bytes for stage in stages for one in stage.rollouts for file in one.files.values())
    # Evaluations of a policy in one process share an engine.
    engines = {(one.timings.process, one.parents["policy"][0].digest) for one in evaluated}
    engine_start = _phase_seconds("load", evaluated) / len(engines)
    # An alternating task starts the trainer and an engine, unless the engine uses the trainer's weights.
    both = measured.alternates and engine.own_weights
    amounts = {
        # The last stage is the best estimate of later stages.
        "response_share": min(1.0, _tokens(last.facts) / last.facts["responses"] / run.rollout.max_new_tokens),
        "prompt_tokens": 0.0,  # Included in the seconds of a response.
        "pod_start_seconds": ledger.get("start", 0.0) / len(started)
        + (assumed.pod_start_seconds if pool.gpus else 0.0),
        "engine_start_seconds": engine_start,
        "trainer_start_seconds": max(0.0, _phase_seconds("load", trained) / len(stages) - both * engine_start),
        "update_seconds": 0.0,  # Included in the seconds of the tokens.
        "answer_seconds": answer * last.settings["workers"],
        "verifier_start_seconds": verifier,
        "store_gb_per_second": math.inf,  # Transfers are included in the seconds of the steps.
        "bytes_per_token": stored / tokens,
    }
    if measured.alternates:
        updates = stages[-1].last_update - stages[0].first_update + 1
        amounts["switch_seconds"] = _phase_seconds("switch", trained) * measured.mu / updates
    elif not run.rollout.engine.own_weights:
        assumed = assumed.model_copy(update={"switch_seconds": 0.0})  # The engine uses the trainer's tensors.

    def rates_on(settings: EngineSettings) -> EngineRates:
        """Return the rates on the GPUs of an engine, if they scale with one over the number of GPUs."""
        gpus = engine.tensor_parallel / settings.tensor_parallel
        return EngineRates(settings.refills, settings.batch_size, step * gpus, row * gpus)

    return Rates(
        amounts=assumed.model_copy(update=amounts),
        measured=frozenset(amounts),
        rollout=rates_on(run.rollout.engine),
        evaluate=rates_on(run.evaluation_engine),
        trained_token=update / trained_passes * scale,
        scored_token=forward * scale,
        base=_phase_seconds("warm_start", everything),
        rest=ledger.get("rest", 0.0) / len(stages),
    )


def _decoding_rates(run: RunSettings, history: "History", processes: int) -> tuple[float, float]:
    """Return the seconds of a decode step and of a row in it, from generation for training and for evaluations."""
    engine, points = run.rollout.engine, list[Point]()
    rates = EngineRates(engine.refills, engine.batch_size, step=0.0, row=0.0)
    for stage in history.stages:
        # The engines of an alternating run share a call, and work at the same time.
        engines = processes if run.alternates else 1
        calls = engines * sum(max(1, len(one.facts.get("call_seconds", ()))) for one in stage.rollouts)
        facts, seconds = stage.verdicts.facts, _phase_seconds("generate", [stage.policy, *stage.rollouts])
        responses, tokens = facts["responses"], _tokens(facts)
        steps = calls * rates.steps(responses / calls, tokens / responses, run.rollout.max_new_tokens)
        points.append((steps, tokens, engines * seconds))
    settings = {one.benchmark.name: one.evaluation for one in run.measurements}
    for one in (one for policy in history.evaluated for one in policy.evaluations):
        evaluation, mean = settings[one.benchmark], one.response_tokens
        if mean and evaluation.engine == engine:
            sizes, made = evaluation_calls(evaluation, one.problems), history.manifests[one.evaluation]
            steps = sum(rates.steps(size, mean, evaluation.max_new_tokens) for size in sizes)
            points.append((steps, sum(sizes) * mean, _phase_seconds("generate", [made])))
    return fit_two_rates(points, share=0.5)


def _verification_rates(history: "History") -> tuple[float, float]:
    """Return the seconds of the verifier's start and of an answer, with as many workers as the run had."""
    points: list[Point] = [
        (1.0, one.verdicts.facts["responses"], _phase_seconds("verify", [one.policy, one.verdicts]))
        for one in history.stages
    ]
    for one in (one for policy in history.evaluated for one in policy.evaluations):
        points.append((1.0, sum(one.outcomes.values()), _phase_seconds("verify", [history.manifests[one.evaluation]])))
    return fit_two_rates(points)


def fit_two_rates(points: Sequence[Point], share: float = 0.0) -> tuple[float, float]:
    """Fit the seconds per unit of two amounts of work by least squares; neither is below 0.

    If the amounts are collinear, ``share`` of the seconds belongs to the first amount.
    """
    import numpy as np
    from scipy.optimize import nnls

    amounts, seconds = np.array([point[:2] for point in points]), np.array([point[2] for point in points])
    (xx, xy), (_, yy) = amounts.T @ amounts
    if xy * xy > _ALIKE * xx * yy:
        xs, ys = amounts.T @ seconds
        return float(share * xs / xx), float((1 - share) * ys / yy)
    first, second = nnls(amounts, seconds)[0]
    return float(first), float(second)


def _tokens(facts: Mapping[str, Any]) -> float:
    """Return the number of tokens of the responses that verdicts judge, of which the missing ones have none."""
    tokens: float = facts["response_tokens"] * (facts["responses"] - facts["outcomes"].get("missing", 0))
    return tokens


def _phase_seconds(phase: str, makers: Iterable["Manifest"]) -> float:
    return sum(one.timings.phases.get(phase, 0.0) for one in makers)


def _check_same_kind(run: RunSettings, measured: RunSettings, uri: str) -> None:
    there, here = (flat(one.model_dump(exclude={"policy": {"tiny": {"warm_start"}}})) for one in (measured, run))
    for name in names_that_differ([there, here]):
        if name.startswith(_SAME):
            raise DataError(
                f"{uri}: its run has {name} {there.get(name)}, the planned one {here.get(name)}, so its rates do not "
                "apply. Name the store of a run like the planned one, or leave --measured out."
            )
