"""Rates that are read from a run: seconds are planted into the notes of real runs, and must be found there."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

import pytest

from tasks.cluster.measured import measure, read_rates
from tasks.cluster.rates import Rates
from tasks.cluster.shapes import shape_of
from tasks.cluster.steps import predict
from tasks.errors import DataError
from tasks.report.history import History
from tasks.report.ledger import make_ledger
from tasks.settings import RunSettings
from tasks.settings.cost import CostSettings
from tasks.store import ArtifactRef
from tasks.store.records import Manifest, Timings
from tests.cost.conftest import STAGES, Made
from tools.runs import ROOT

ASSUMED = CostSettings.read(ROOT / "configs/prices.yaml").assumptions
STEP, TOKEN, TRAINED, SCORED, ANSWER = 0.5, 0.01, 0.003, 0.001, 0.02
VERIFIER, SWITCH, ENGINE, TRAINER, BASE, START = 3.0, 0.25, 4.0, 5.0, 30.0, 20.0
OWN = {"prompts": 0.125, "policy": 0.5, "rollouts": 0.25, "verdicts": 0.75, "trained": 2.0}
OWN |= {"evaluation": 1.0, "average": 0.0625}


def planted(made: Made) -> History:
    """The run's history, as if its steps had followed each other in one process and taken what the rates above say."""
    history, run = made.history, made.run
    answers = run.evaluate.problems * (run.evaluate.samples_per_problem + 1)
    tokens_of = {
        one.evaluation: (one.response_tokens or 0) * answers
        for policy in history.evaluated
        for one in policy.evaluations
    }

    def generating(responses: list[int], tokens: float) -> float:
        return sum(STEP * ceil(one / 512) * run.rollout.max_new_tokens for one in responses) + TOKEN * tokens

    def phases(one: Manifest) -> dict[str, float]:
        facts = one.facts
        if one.kind == "rollouts" and run.updates_per_rollout is None:
            parts = [32] * (facts["responses"] // 32)
            return {"load": 0.0, "generate": generating(parts, facts["responses"] * facts["response_tokens"])}
        if one.kind == "verdicts" and run.updates_per_rollout is None:
            return {"load": 0.0, "verify": VERIFIER + ANSWER * facts["responses"]}
        if one.kind == "evaluation":
            parts = [20, 5] * 2
            verify = VERIFIER + ANSWER * answers
            return {"load": ENGINE, "generate": generating(parts, tokens_of[one.ref]), "verify": verify}
        if one.kind == "policy" and facts["stage"]:
            told = history.manifests[one.parents["verdicts"][0]].facts
            tokens = told["responses"] * told["response_tokens"]
            found = {"load": TRAINER, "logp": SCORED * tokens, "optimize": TRAINED * tokens, "save": 0.5}
            if run.updates_per_rollout is not None:
                refreshes = run.updates_per_stage // run.updates_per_rollout
                calls = [told["responses"] // refreshes] * refreshes
                found |= {"switch": SWITCH * refreshes, "generate": generating(calls, tokens)}
                found["verify"] = VERIFIER + ANSWER * told["responses"]
            return found
        return {"warm_start": BASE} if one.kind == "policy" else {}

    now, timed = START, dict[ArtifactRef, Manifest]()
    inside = {"rollouts", "verdicts"} if run.updates_per_rollout is not None else set()
    for one in sorted(history.manifests.values(), key=lambda one: one.timings.finished):
        own, started = phases(one), now
        if one.kind not in inside:
            kind = "trained" if one.facts.get("stage") and one.kind == "policy" else one.kind
            now += sum(spent for name, spent in own.items() if name != "save") + OWN[kind]
        nested = 0.001 if one.kind in inside else 0.0  # made while the policy of its stage was
        timings = Timings(
            process="one", process_started=0, started=started + nested, finished=now + 2 * nested, phases=own
        )
        timed[one.ref] = one.model_copy(update={"timings": timings})
    return _with(history, timed)


def _with(history: History, timed: Mapping[ArtifactRef, Manifest]) -> History:
    stages = [
        replace(
            stage,
            policy=timed[stage.policy.ref],
            rollouts=[timed[one.ref] for one in stage.rollouts],
            verdicts=[timed[one.ref] for one in stage.verdicts],
        )
        for stage in history.stages
    ]
    return replace(history, manifests=dict(timed), stages=stages)


def rates_of(made: Made, history: History, run: RunSettings | None = None) -> Rates:
    return read_rates(run or made.run, history, ASSUMED, "here")


@pytest.fixture(params=["mu_grpo", "grpo"])
def one(request: pytest.FixtureRequest, made: dict[str, Made]) -> Made:
    return made[request.param]


def test_planted_rates_are_found(one: Made) -> None:
    rates = rates_of(one, planted(one))
    assert (rates.rollout.step, rates.rollout.row) == pytest.approx((STEP, TOKEN))
    assert rates.evaluate == rates.rollout
    each = rates.each
    assert (rates.trained_token, rates.scored_token) == pytest.approx((TRAINED, SCORED))
    assert (each.verifier_start_seconds, each.answer_seconds) == pytest.approx((VERIFIER, ANSWER))
    started = (each.engine_start_seconds, each.trainer_start_seconds, rates.base)
    assert started == pytest.approx((ENGINE, TRAINER, BASE))
    switch = SWITCH if one.run.updates_per_rollout else ASSUMED.switch_seconds
    assert each.switch_seconds == pytest.approx(switch)
    assert ("switch_seconds" in rates.measured) == bool(one.run.updates_per_rollout)
    assert each.pod_start_seconds == pytest.approx(START, abs=0.05)


def test_a_run_predicts_itself(one: Made) -> None:
    history = planted(one)
    ledger = make_ledger(history)
    shape = shape_of(one.run.policy)
    assert shape is not None
    turns = one.run.updates_per_rollout is not None
    predicted = predict(one.run, STAGES, shape, rates_of(one, history), None, alternating=turns)
    expected = {row: seconds for row, seconds in ledger.seconds.items() if seconds}
    assert predicted.seconds["start"] == pytest.approx(expected["start"], abs=0.3)  # a pause counts to either row
    assert {**predicted.seconds, "rest": 0} == pytest.approx({**expected, "rest": 0}, rel=0.03)
    assert predicted.seconds["rest"] == pytest.approx(expected["rest"], rel=0.15)
    assert predicted.wall_seconds == pytest.approx(ledger.wall_clock, rel=0.02)


def test_gpus_and_workers_share_what_was_measured(made: dict[str, Made]) -> None:
    one = made["mu_grpo"]
    history = planted(one)
    four = one.run.override("verify.workers=4")
    assert rates_of(one, history, four).each.answer_seconds == pytest.approx(ANSWER)  # of one worker


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("policy.tiny.hidden_size=128", "its run has policy.tiny {.*'hidden_size': 64.*, the planned one {.*128"),
        ("policy.path=some/model", "its run has policy.path None, the planned one some/model"),
        ("rollout.engine.kind=vllm", "its run has rollout.engine.kind transformers, the planned one vllm"),
        ("optimize.lora.rank=4", "its run has optimize.lora None, the planned one rank=4"),
    ],
)
def test_a_run_of_another_kind_tells_nothing(change: str, message: str, made: dict[str, Made]) -> None:
    one = made["mu_grpo"]
    with pytest.raises(DataError, match=message):
        measure(one.run.override(change), one.store, ASSUMED)


def test_a_run_of_the_other_workflow_serves_where_there_is_no_other(made: dict[str, Made]) -> None:
    for name, other in (("grpo", "mu_grpo"), ("mu_grpo", "grpo")):
        rates, told = measure(made[other].run, made[name].store, ASSUMED)
        assert ("switch_seconds" in rates.measured) == (name == "grpo")
        assert told.startswith(f"asymre, mu {2 if name == 'grpo' else 6}, seed 0, report/")
