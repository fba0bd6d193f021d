"""Rates of a run that a store holds, for the plan of another one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.cost.fit import two_rates
from tasks.cost.observed import Observed, alternates
from tasks.cost.rates import EngineRates, Rates
from tasks.errors import DataError
from tasks.settings import EngineSettings, RunSettings, TinyPolicySettings
from tasks.settings.cost import AssumptionSettings

if TYPE_CHECKING:  # so that a plan without a store needs neither numpy nor pyarrow
    from tasks.artifacts import Store
    from tasks.artifacts.records import Manifest


@dataclass(frozen=True)
class Measured:
    """A run's rates, and where they are from."""

    rates: Rates
    report: str
    """The run's, as kind/digest."""
    name: str
    """As in ``mu_grpo, mu 16, seed 0``."""
    alternating: bool
    """Whether generation and optimization took turns in one task."""


def measure(run: RunSettings, store: "Store", alternating: bool, assumed: AssumptionSettings) -> Measured:
    """Rates of the latest finished run of a store.

    Args:
        run: the planned one.
        store: with the other.
        alternating: take the latest run in which generation and optimization took turns, or one in which they did not;
            where there is none of that kind, the latest of all.
        assumed: for what the run could not show.

    Raises:
        DataError: there is no run, it trained another policy, or it used another engine or backend.
    """
    from tasks.report.history import load_finished
    from tasks.report.ledger import make_ledger
    from tasks.stored.reports import find_reports

    reports = find_reports(store)
    report = next((one for one in reports if _alternated(store, one) == alternating), reports[0])
    history = load_finished(store, report)
    if not history.stages:
        raise DataError(f"{store.ref.uri}: its run made no update, so it tells nothing. Name another store.")
    observed = Observed(history, store.ref.uri)
    _check(run, observed, store.ref.uri)
    rates = read_rates(run, observed, make_ledger(history).outside_phases, assumed)
    name = f"{history.algorithm}, mu {history.updates_per_rollout}, seed {history.seed}"
    return Measured(rates, str(report.ref), name, observed.alternating)


def _alternated(store: "Store", report: "Manifest") -> bool:
    evaluation = store.manifest(report.parents["evaluations"][-1])
    return alternates(store.manifest(evaluation.parents["policy"][0]))


def _check(run: RunSettings, observed: Observed, place: str) -> None:
    def sizes(tiny: TinyPolicySettings | None) -> Any:
        return tiny and tiny.model_dump(exclude={"warm_start"})

    for name, there, here in (
        ("policy.path", observed.policy.path, run.policy.path),
        ("policy.tiny", sizes(observed.policy.tiny), sizes(run.policy.tiny)),
        ("rollout.engine.kind", observed.rollout.engine.kind, run.rollout.engine.kind),
        ("optimize.backend.kind", observed.optimize.backend.kind, run.optimize.backend.kind),
        ("optimize.lora", observed.optimize.lora, run.optimize.lora),
    ):
        if there != here:
            raise DataError(
                f"{place}: its run has {name} {there}, the planned one {here}, so its rates tell nothing. Name the "
                "store of a run like the planned one, or leave --measured out."
            )


def read_rates(run: RunSettings, observed: Observed, outside_phases: float, assumed: AssumptionSettings) -> Rates:
    """Rates for a planned run.

    Args:
        run: the planned one.
        observed: the other.
        outside_phases: seconds of its ledger.
        assumed: for what it could not show.
    """
    sampling, evaluating = observed.sampling(), observed.evaluating()
    if observed.evaluate_engine == observed.rollout.engine:
        sampling = evaluating = sampling + evaluating
    update, trained_token = two_rates(observed.training())
    _, scored_token = two_rates(observed.scoring())
    verifier, answer = two_rates(observed.checking())
    bytes_per_shard, bytes_per_token = two_rates(observed.stored())
    engine, reading = observed.loads()
    overheads = observed.overheads(outside_phases)
    base, phases = observed.base()
    processes = observed.optimize.backend.processes / run.optimize.backend.processes
    # A task in which both take turns loads both, unless the engine shares the trainer's weights.
    both = observed.alternating and observed.rollout.engine.kind != "transformers"
    return Rates(
        rollout=_engine(sampling, observed.rollout.engine, run.rollout.engine),
        evaluate=_engine(evaluating, observed.evaluate_engine, run.evaluation_engine),
        lengths=observed.lengths,
        prompt_tokens=0.0,
        update=update,
        trained_token=trained_token * processes,
        scored_token=scored_token * processes,
        answer=answer,
        verifier=verifier,
        switch=observed.phase("switch") / observed.refreshes_of_a_stage
        if observed.alternating
        else assumed.switch_seconds,
        engine=engine,
        trainer=max(0.0, observed.phase("load") - (engine if both else 0.0)),
        base=phases.get("warm_start", 0.0) * _examples(run.policy.tiny) / (_examples(observed.policy.tiny) or 1),
        reading=reading,
        start=overheads.start,
        after=overheads.after,
        hub_byte=phases.get("load", 0.0) / sum(file.bytes for file in base.files.values()),
        bytes_per_token=bytes_per_token,
        bytes_per_shard=bytes_per_shard,
    )


def _engine(points: list[tuple[float, float, float]], there: EngineSettings, here: EngineSettings) -> EngineRates:
    """Rates of an engine on its GPUs, as if twice the GPUs halved them."""
    step, row = two_rates(points, share=0.5)
    gpus = there.tensor_parallel / here.tensor_parallel
    return EngineRates(here.kind, here.batch_size, step * gpus, row * gpus)


def _examples(tiny: TinyPolicySettings | None) -> int:
    """That a tiny policy is warm-started on."""
    if tiny is None:
        return 0
    warm = tiny.warm_start
    return (warm.working_updates + warm.guessing_updates) * warm.examples_per_update
