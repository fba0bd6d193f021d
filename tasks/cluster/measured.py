"""Rates of a finished run, for the plan of another run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

from tasks.cluster.rates import EngineRates, Rates, passes
from tasks.cluster.steps import parts
from tasks.errors import DataError, SettingsError
from tasks.settings import (
    EngineSettings,
    EvaluationSettings,
    OptimizeSettings,
    PolicySettings,
    RolloutSettings,
    RunSettings,
    TinyPolicySettings,
)
from tasks.settings.cost import AssumptionSettings
from tasks.settings.verify import VerifySettings

if TYPE_CHECKING:  # so that a plan without a store needs neither numpy nor pyarrow
    from tasks.artifacts import Store
    from tasks.artifacts.records import Manifest
    from tasks.report.history import History
    from tasks.report.ledger import Ledger

Point = tuple[float, float, float]
"""Two amounts of work, and the seconds that both took together."""
_ALIKE = 0.97
"""Above this squared cosine two amounts rise together, so that their seconds cannot be told apart."""
_OF_THE_LOOP = ("updates_per_rollout", "rollout", "verify")
"""Settings of a policy besides the optimizer's, where generation and training take turns."""


@dataclass(frozen=True)
class Measured:
    """Rates of a run, and which run it was."""

    rates: Rates
    report: str
    """The run's report, as kind/digest."""
    name: str
    """A name such as ``mu_grpo, mu 16, seed 0``."""
    alternating: bool
    """True if generation and training took turns in one task."""


def measure(run: RunSettings, store: "Store", alternating: bool, assumed: AssumptionSettings) -> Measured:
    """Return the rates of the latest finished run of a store.

    Args:
        run: the planned run.
        store: the store with the finished run.
        alternating: whether to take the latest run in which generation and training took turns; if the store has no
            run of the wanted kind, the latest run of all is taken.
        assumed: numbers for what the finished run could not show.

    Raises:
        DataError: there is no run, or it says nothing about the planned one.
    """
    from tasks.report.history import load_finished
    from tasks.report.ledger import make_ledger
    from tasks.stored.reports import find_reports

    def trained(report: "Manifest") -> "Manifest":
        evaluation = store.manifest(report.parents["evaluations"][-1])
        return store.manifest(evaluation.parents["policy"][0])

    place, reports = store.ref.uri, find_reports(store)
    report = next((one for one in reports if alternates(trained(one)) == alternating), reports[0])
    history = load_finished(store, report)
    if not history.stages:
        raise DataError(f"{place}: its run made no update, so it tells nothing. Name another store.")
    rates = read_rates(run, history, make_ledger(history), assumed, place)
    name = f"{history.algorithm}, mu {history.updates_per_rollout}, seed {history.seed}"
    return Measured(rates, str(report.ref), name, alternates(history.stages[-1].policy))


def alternates(trained: "Manifest") -> bool:
    """Return whether generation and training took turns in the task that made a policy."""
    return "updates_per_rollout" in trained.settings


def read_rates(
    run: RunSettings, history: "History", ledger: "Ledger", assumed: AssumptionSettings, place: str
) -> Rates:
    """Return the rates of a finished run, for a planned one.

    Args:
        run: the planned run.
        history: the finished run, which made at least one update.
        ledger: seconds of the finished run.
        assumed: numbers for what the finished run could not show.
        place: the store, for messages.

    Raises:
        DataError: the finished run used another policy, engine or backend, or settings that are not read any more.
    """
    last = history.stages[-1]
    turns = alternates(last.policy)
    try:
        rollout = RolloutSettings.parse(last.policy.settings["rollout"] if turns else last.rollouts[0].settings)
        verify = VerifySettings.parse(last.policy.settings["verify"] if turns else last.verdicts[0].settings)
        optimize = OptimizeSettings.parse({k: v for k, v in last.policy.settings.items() if k not in _OF_THE_LOOP})
        policy = PolicySettings.parse(history.of_kind("policy")[0].settings)
        evaluations = [
            (
                one,
                history.manifests[one.evaluation],
                EvaluationSettings.parse(history.manifests[one.evaluation].settings),
            )
            for evaluated in history.evaluated
            for one in evaluated.evaluations
        ]
    except SettingsError as error:
        raise DataError(f"{place}: its run has settings that this version does not read: {error}") from None
    _check(run, policy, rollout, optimize, place)
    # Stages before the last kind of training were another run's, if a stored run was trained again.
    stages = [stage for stage in history.stages if alternates(stage.policy) == turns]
    trained = [stage.policy for stage in stages]
    told = [stage.verdicts[0].facts for stage in stages]
    responses = [float(facts["responses"]) for facts in told]
    tokens = [float(facts["responses"] * facts["response_tokens"]) for facts in told]
    average = sum(tokens) / sum(responses)

    sampling, evaluating, checking = list[Point](), list[Point](), list[Point]()
    group, longest = rollout.responses_per_prompt, rollout.max_new_tokens
    for stage, count, sampled in zip(stages, responses, tokens, strict=True):
        judged = stage.policy if turns else stage.verdicts[0]
        checking.append((1.0, count / verify.workers, judged.timings.phases["verify"]))
        if turns:
            refreshes = (stage.last_update - stage.first_update + 1) // history.updates_per_rollout
            calls = [int(count) // refreshes] * refreshes
            steps = _steps(rollout.engine, calls, sampled / count, longest)
            sampling.append((steps, sampled, stage.policy.timings.phases["generate"]))
        for shard in [one for one in stage.rollouts if "generate" in one.timings.phases]:
            made, each = shard.facts["responses"], shard.facts["response_tokens"]
            calls = [part * group for part in parts(made // group, group, rollout.responses_per_part)]
            steps = _steps(rollout.engine, calls, each, longest)
            sampling.append((steps, made * each, shard.timings.phases["generate"]))
    for one, manifest, made in evaluations:
        k, phases = made.samples_per_problem, manifest.timings.phases
        greedy = (k, 1) if made.greedy else (k,)
        calls = [part * count for part in parts(one.problems, k, made.responses_per_part) for count in greedy]
        each = one.response_tokens or average
        steps = _steps(made.engine or rollout.engine, calls, each, made.max_new_tokens)
        evaluating.append((steps, sum(calls) * each, phases["generate"]))
        checking.append((1.0, sum(one.outcomes.values()) / verify.workers, phases["verify"]))
    there = evaluations[-1][2].engine or rollout.engine
    if there == rollout.engine:
        sampling = evaluating = sampling + evaluating

    def phase(name: str, manifests: Sequence["Manifest"] = trained) -> float:
        return sum(one.timings.phases.get(name, 0.0) for one in manifests)

    base = history.of_kind("policy")[0]
    trained_passes, _ = passes(optimize)
    processes = optimize.backend.processes / run.optimize.backend.processes
    updates = [float(stage.last_update - stage.first_update + 1) for stage in stages]
    training = [
        (made, trained_passes * count, one.timings.phases["optimize"])
        for made, count, one in zip(updates, tokens, trained, strict=True)
    ]
    engine = mean(_engine_loads(manifest for _, manifest, _ in evaluations))
    # A task that trains and generates starts both, unless the engine uses the trainer's weights.
    beside = engine if turns and rollout.engine.kind != "transformers" else 0.0
    verifier, answer = two_rates(checking)
    update, token = two_rates(training)
    nested = {"rollouts", "verdicts"} if turns else set()
    outer = [one for one in history.manifests.values() if one.kind not in nested]
    return Rates(
        rollout=_engine_rates(sampling, rollout.engine, run.rollout.engine),
        evaluate=_engine_rates(evaluating, there, run.evaluation_engine),
        response_tokens=tokens[-1] / responses[-1],  # of the stage that is most like those to come
        prompt_tokens=0.0,
        trained_token=token * processes,
        scored_token=phase("logp") / sum(tokens) * processes,
        update=update,
        answer=answer,
        verifier=verifier,
        switch=phase("switch") * history.updates_per_rollout / sum(updates) if turns else assumed.switch_seconds,
        engine=engine,
        trainer=max(0.0, phase("load") / len(stages) - beside),
        start=ledger.seconds.get("start", 0.0) / len({one.timings.process for one in outer}),
        base=phase("warm_start", [base]) * _examples(run.policy.tiny) / (_examples(policy.tiny) or 1),
        rest=ledger.seconds.get("rest", 0.0) / len(outer),
        hub_byte=phase("load", [base]) / sum(file.bytes for file in base.files.values()),
        bytes_per_token=sum(file.bytes for stage in stages for one in stage.rollouts for file in one.files.values())
        / sum(tokens),
    )


def _check(
    run: RunSettings, policy: PolicySettings, rollout: RolloutSettings, optimize: OptimizeSettings, place: str
) -> None:
    def sizes(tiny: TinyPolicySettings | None) -> Any:
        return tiny and tiny.model_dump(exclude={"warm_start"})

    for name, there, here in (
        ("policy.path", policy.path, run.policy.path),
        ("policy.tiny", sizes(policy.tiny), sizes(run.policy.tiny)),
        ("rollout.engine.kind", rollout.engine.kind, run.rollout.engine.kind),
        ("optimize.backend.kind", optimize.backend.kind, run.optimize.backend.kind),
        ("optimize.lora", optimize.lora, run.optimize.lora),
    ):
        if there != here:
            raise DataError(
                f"{place}: its run has {name} {there}, the planned one {here}, so its rates tell nothing. Name the "
                "store of a run like the planned one, or leave --measured out."
            )


def _steps(engine: EngineSettings, calls: Sequence[int], mean_tokens: float, longest: int) -> float:
    counting = EngineRates(engine.kind, engine.batch_size, 0.0, 0.0)
    return sum(counting.steps(call, mean_tokens, longest) for call in calls)


def _engine_rates(points: Sequence[Point], there: EngineSettings, here: EngineSettings) -> EngineRates:
    """Return the rates of an engine on its GPUs, as if twice the GPUs halved them."""
    step, row = two_rates(points, share=0.5)
    gpus = there.tensor_parallel / here.tensor_parallel
    return EngineRates(here.kind, here.batch_size, step * gpus, row * gpus)


def _engine_loads(evaluations: Iterable["Manifest"]) -> Iterable[float]:
    """Return the seconds of starting an engine, by process and policy: evaluations of both share one engine."""
    loads: dict[tuple[str, str], float] = {}
    for one in evaluations:
        key = one.timings.process, one.parents["policy"][0].digest
        loads[key] = max(loads.get(key, 0.0), one.timings.phases.get("load", 0.0))
    return loads.values()


def _examples(tiny: TinyPolicySettings | None) -> int:
    """Return the number of examples that a tiny policy is warm-started on."""
    warm = tiny.warm_start if tiny else None
    return (warm.working_updates + warm.guessing_updates) * warm.examples_per_update if warm else 0


def two_rates(points: Sequence[Point], share: float = 0.0) -> tuple[float, float]:
    """Return the seconds per unit of two amounts of work, by least squares, neither below 0.

    Args:
        points: measurements.
        share: the share of the first amount in the seconds, where both amounts rise together.
    """
    xx, yy = sum(x * x for x, _, _ in points), sum(y * y for _, y, _ in points)
    xy = sum(x * y for x, y, _ in points)
    xs, ys = sum(x * s for x, _, s in points), sum(y * s for _, y, s in points)
    if xx == 0 or yy == 0:
        return (xs / xx if xx else 0.0, ys / yy if yy else 0.0)
    if xy * xy > _ALIKE * xx * yy:
        return share * xs / xx, (1 - share) * ys / yy
    determinant = xx * yy - xy * xy
    first, second = (xs * yy - ys * xy) / determinant, (ys * xx - xs * xy) / determinant
    if first >= 0 and second >= 0:
        return first, second
    return min(
        ((xs / xx, 0.0), (0.0, ys / yy)),
        key=lambda pair: sum((pair[0] * x + pair[1] * y - s) ** 2 for x, y, s in points),
    )
