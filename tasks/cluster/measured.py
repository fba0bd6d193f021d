"""Rates that are measured in a finished run, for the plan of another run."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.cluster.rates import EngineRates, Rates, passes
from tasks.cluster.steps import evaluation_calls
from tasks.errors import DataError, SettingsError
from tasks.settings import (
    EngineSettings,
    EvaluationSettings,
    OptimizeSettings,
    PolicySettings,
    RolloutSettings,
    RunSettings,
)
from tasks.settings.cost import AssumptionSettings
from tasks.settings.verify import VerifySettings

if TYPE_CHECKING:  # A plan without a store imports neither numpy nor pyarrow.
    from tasks.report.history import History
    from tasks.store import Store
    from tasks.store.records import Manifest

Point = tuple[float, float, float]
"""Two amounts of work, and the seconds of both together."""
_ALIKE = 0.97
"""Squared cosine above which two amounts are collinear, so that a fit cannot separate their seconds."""
_OF_THE_LOOP = ("updates_per_rollout", "rollout", "verify")
"""Settings of an alternating step that are not settings of the optimizer."""


def measure(run: RunSettings, store: "Store", assumed: AssumptionSettings) -> tuple[Rates, str]:
    """Return the rates of the latest finished run in a store, and the name of this run.

    Runs of the workflow of the planned run come first.

    Raises:
        DataError: the store has no run, or its run made no update or has another policy, engine or backend.
    """
    from tasks.report.history import load_finished
    from tasks.stored.runs import find_reports

    def alternates(report: "Manifest") -> bool:
        return report.settings.get("updates_per_rollout") is not None

    place, reports = store.ref.uri, find_reports(store)
    report = next((one for one in reports if alternates(one) == run.alternates), reports[0])
    history = load_finished(store, report)
    if not history.stages:
        raise DataError(f"{place}: its run made no update, so no rates can be measured from it. Name another store.")
    name = f"{history.algorithm}, mu {history.updates_per_rollout}, seed {history.seed}, {report.ref}"
    return read_rates(run, history, assumed, place), name


def read_rates(run: RunSettings, history: "History", assumed: AssumptionSettings, place: str) -> Rates:
    """Return the rates of a finished run with at least one update, for a planned run.

    Raises:
        DataError: the finished run has another policy, engine or backend, or settings that this version cannot read.
    """
    from tasks.report.ledger import make_ledger

    last, base = history.stages[-1], history.of_kind("policy")[0]
    own = last.policy.settings
    alternates = "updates_per_rollout" in own
    try:
        rollout = RolloutSettings.parse(own["rollout"] if alternates else last.rollouts[0].settings)
        verify = VerifySettings.parse(own["verify"] if alternates else last.verdicts[0].settings)
        optimize = OptimizeSettings.parse({key: value for key, value in own.items() if key not in _OF_THE_LOOP})
        policy = PolicySettings.parse(base.settings)
        sampled, checked = _evaluations(history, rollout.engine)
    except SettingsError as error:
        raise DataError(f"{place}: its run has settings that this version does not read: {error}") from None
    _check_same_kind(run, policy, rollout, optimize, place)
    # Stages with another kind of training than the last one belong to another run, which this run continued.
    stages = [stage for stage in history.stages if ("updates_per_rollout" in stage.policy.settings) == alternates]
    trained, tokens = [stage.policy for stage in stages], 0.0
    for stage in stages:
        generators, verifiers = ([stage.policy], [stage.policy]) if alternates else (stage.rollouts, stage.verdicts)
        facts, calls = stage.verdicts[0].facts, sum(len(one.facts.get("call_seconds") or "1") for one in stage.rollouts)
        responses, mean = facts["responses"], _mean_tokens(facts)
        steps = calls * _steps(rollout.engine, responses / calls, mean, rollout.max_new_tokens)
        sampled.append((steps, responses * mean, _phase_seconds("generate", generators)))
        checked.append((1.0, responses, _phase_seconds("verify", verifiers)))
        tokens += responses * mean
    step, row = fit_two_rates(sampled, share=0.5)
    verifier, answer = fit_two_rates(checked)
    processes = optimize.backend.processes / run.optimize.backend.processes
    (trained_passes, scored_passes), before = passes(optimize), 1 + optimize.objective.needs_reference
    forward = _phase_seconds("logp", trained) / (before * tokens)
    # The other forward passes, such as those of a proximal policy, are in phase optimize.
    update = max(0.0, _phase_seconds("optimize", trained) / tokens - (scored_passes - before) * forward)
    ledger, started = make_ledger(history).seconds, {one.timings.process for one in history.manifests.values()}
    stored = sum(file.bytes for stage in stages for one in stage.rollouts for file in one.files.values())
    # Evaluations of a policy in one process share an engine.
    evaluations = history.of_kind("evaluation")
    engines = {(one.timings.process, one.parents["policy"][0].digest) for one in evaluations}
    engine = _phase_seconds("load", evaluations) / len(engines)
    # An alternating task starts the trainer and an engine, unless the engine uses the trainer's weights.
    engine_start = engine if alternates and rollout.engine.own_weights else 0.0
    amounts = {
        # The last stage is the best estimate of later stages.
        "response_share": _mean_tokens(last.verdicts[0].facts) / run.rollout.max_new_tokens,
        "prompt_tokens": 0.0,  # Included in the seconds of a response.
        "pod_start_seconds": ledger.get("start", 0.0) / len(started),
        "engine_start_seconds": engine,
        "trainer_start_seconds": max(0.0, _phase_seconds("load", trained) / len(stages) - engine_start),
        "update_seconds": 0.0,  # Included in the seconds of the tokens.
        "answer_seconds": answer * verify.workers,
        "verifier_start_seconds": verifier,
        "store_gb_per_second": math.inf,  # Transfers are included in the seconds of the steps.
        "bytes_per_token": stored / tokens,
    }
    if alternates:
        updates = sum(stage.last_update - stage.first_update + 1 for stage in stages)
        amounts["switch_seconds"] = _phase_seconds("switch", trained) * history.updates_per_rollout / updates

    def rates_on(settings: EngineSettings) -> EngineRates:
        """Return the rates on the GPUs of an engine, if they scale with one over the number of GPUs."""
        gpus = rollout.engine.tensor_parallel / settings.tensor_parallel
        return EngineRates(settings.refills, settings.batch_size, step * gpus, row * gpus)

    return Rates(
        each=assumed.model_copy(update=amounts),
        measured=frozenset(amounts),
        rollout=rates_on(run.rollout.engine),
        evaluate=rates_on(run.evaluation_engine),
        trained_token=update / trained_passes * processes,
        scored_token=forward * processes,
        base=_phase_seconds("warm_start", [base]),
        rest=ledger.get("rest", 0.0) / len(stages),
    )


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


def _evaluations(history: "History", engine: EngineSettings) -> tuple[list[Point], list[Point]]:
    """Return the points of evaluations: decode steps and tokens of the same engine, and verifier starts and answers."""
    sampled, checked = list[Point](), list[Point]()
    for one in (one for policy in history.evaluated for one in policy.evaluations):
        manifest = history.manifests[one.evaluation]
        settings, mean = EvaluationSettings.parse(manifest.settings), one.response_tokens
        checked.append((1.0, sum(one.outcomes.values()), _phase_seconds("verify", [manifest])))
        if mean and settings.engine in (None, engine):
            calls = [problems * each for problems, each in evaluation_calls(settings, one.problems)]
            steps = sum(_steps(engine, call, mean, settings.max_new_tokens) for call in calls)
            sampled.append((steps, sum(calls) * mean, _phase_seconds("generate", [manifest])))
    return sampled, checked


def _steps(engine: EngineSettings, responses: float, mean: float, longest: int) -> float:
    return EngineRates(engine.refills, engine.batch_size, 0.0, 0.0).steps(responses, mean, longest)


def _mean_tokens(facts: Mapping[str, Any]) -> float:
    """Return the mean number of tokens of the responses that verdicts judge, of which the missing ones have none."""
    missing: int = facts["outcomes"].get("missing", 0)
    mean: float = facts["response_tokens"] * (1 - missing / facts["responses"])
    return mean


def _phase_seconds(phase: str, makers: Sequence["Manifest"]) -> float:
    return sum(one.timings.phases.get(phase, 0.0) for one in makers)


def _check_same_kind(
    run: RunSettings, policy: PolicySettings, rollout: RolloutSettings, optimize: OptimizeSettings, place: str
) -> None:
    tiny, planned = (one.tiny and one.tiny.model_dump(exclude={"warm_start"}) for one in (policy, run.policy))
    for name, there, here in (
        ("policy.path", policy.path, run.policy.path),
        ("policy.tiny", tiny, planned),
        ("rollout.engine.kind", rollout.engine.kind, run.rollout.engine.kind),
        ("optimize.backend.kind", optimize.backend.kind, run.optimize.backend.kind),
        ("optimize.lora", optimize.lora, run.optimize.lora),
    ):
        if there != here:
            raise DataError(
                f"{place}: its run has {name} {there}, the planned one {here}, so its rates do not apply. Name "
                "the store of a run like the planned one, or leave --measured out."
            )
