"""Plans from real runs: the rates that are read from a run, and the predicted counts.

Tests write known seconds into the manifests of the runs, and the plan must find these rates.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import pytest

from tasks.cluster.measured import measure_rates, read_rates
from tasks.cluster.rates import EngineRates, Pool, Rates, pool_of
from tasks.cluster.shapes import shape_of
from tasks.cluster.steps import Prediction, predict
from tasks.errors import DataError
from tasks.report.history import History, load_finished
from tasks.report.ledger import make_ledger
from tasks.settings import RunSettings
from tasks.store import ArtifactRef, Store
from tasks.store.records import Manifest, Timings
from tasks.stored.runs import find_reports
from tests.cost import COSTS
from tests.settings import deepspeed, override
from tools.forked import Runner
from tools.runs import CONFIG

ASSUMED = COSTS.assumptions
SIZES = (
    "policy.tiny.hidden_size=64 policy.tiny.warm_start.working_updates=2 policy.tiny.warm_start.guessing_updates=2 "
    "prompts.prompts_per_stage=24 prompts.prompts_per_shard=16 rollout.responses_per_prompt=4 "
    "rollout.responses_per_part=32 rollout.max_new_tokens=2 evaluate.problems=10 evaluate.max_new_tokens=2 "
    "evaluate.responses_per_part=20 verify.workers=2 "
    # Responses are too short for an answer, so nothing is judged. With this baseline wrong answers teach too.
    "optimize.objective.advantage.baseline_offset=-0.1 optimize.objective.advantage.scale=none "
    "optimize.responses_per_update=16 operation.updates_per_checkpoint=2 optimize.preset="
)
OF_ALL_POLICIES = (
    "m2po optimize.objective.regulariser='{kind: reference_kl, coefficient: 0.05}' "
    "optimize.objective.ratio='{reference: proximal}' optimize.objective.schedule.updates_per_batch=2"
)
"""Needs the log-probabilities of the behavior policy, the reference, the proximal policy, and for the bounds."""
WORKFLOWS = {"mu_grpo": ("mu_grpo_2", 2, "asymre"), "grpo": ("grpo", 4, f"{OF_ALL_POLICIES} updates_per_rollout=4")}
"""Workflow, number of stages and further overrides of each run, by name."""
STEP, TOKEN, TRAINED, SCORED, ANSWER = 0.5, 0.01, 0.003, 0.001, 0.2
VERIFIER, SWITCH, ENGINE, TRAINER, BASE, START = 3.0, 0.25, 4.0, 5.0, 30.0, 20.0


@dataclass(frozen=True)
class FinishedRun:
    run: RunSettings
    stages: int
    store: Store
    history: History

    def predict(self, rates: Rates, gpus: int) -> Prediction:
        shape, pool = shape_of(self.run.policy), pool_of(self.run, gpus, None, COSTS, None)
        return predict(self.run, self.stages, shape, rates, pool, alternating=self.run.alternates)


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FinishedRun]:
    found = {}
    for name, (workflow, stages, change) in WORKFLOWS.items():
        runner, run = Runner(tmp_path_factory.mktemp(name)), RunSettings.read(CONFIG, SIZES + change)
        runner.made(workflow, "--overrides", SIZES + change)
        store = Store.open(runner.store)
        found[name] = FinishedRun(run, stages, store, load_finished(store, find_reports(store)[0]))
    return found


@pytest.fixture(params=WORKFLOWS)
def one(request: pytest.FixtureRequest, finished_runs: dict[str, FinishedRun]) -> FinishedRun:
    return finished_runs[request.param]


def with_planted_timings(finished: FinishedRun) -> History:
    """Return the history of the run with seconds that follow from the rates above, in one process without pauses."""
    history, run = finished.history, finished.run
    per_answer = ANSWER / run.verify.workers
    answers = run.evaluate.problems * (run.evaluate.samples_per_problem + 1)
    evaluations = [one for policy in history.evaluated for one in policy.evaluations]
    tokens_of = {one.evaluation: (one.response_tokens or 0) * answers for one in evaluations}

    def generating(responses: list[int], tokens: float) -> float:
        return sum(STEP * ceil(one / 512) * run.rollout.max_new_tokens for one in responses) + TOKEN * tokens

    def phases(one: Manifest) -> dict[str, float]:
        facts = one.facts
        if one.kind in ("rollouts", "verdicts") and run.alternates:
            return {}  # Made during the task of its stage's policy.
        if one.kind == "rollouts":
            parts = [32] * (facts["responses"] // 32)
            return {"load": 0.0, "generate": generating(parts, facts["responses"] * facts["response_tokens"])}
        if one.kind == "verdicts":
            return {"load": 0.0, "verify": VERIFIER + per_answer * facts["responses"]}
        if one.kind == "evaluation":
            generate = generating([20, 5] * 2, tokens_of[one.ref])
            return {"load": ENGINE, "generate": generate, "verify": VERIFIER + per_answer * answers}
        if one.kind == "policy" and facts["stage"]:
            told = history.manifests[one.parents["verdicts"][0]].facts
            tokens = told["responses"] * told["response_tokens"]
            # By hand: the reference has a pass before the updates; the proximal policy and two bounds are among them.
            before, bounds, updates = (2, 3, 2) if run.alternates else (1, 0, 1)
            found = {"load": TRAINER, "logp": before * SCORED * tokens, "save": 0.5}
            found["optimize"] = (updates * TRAINED + bounds * SCORED) * tokens
            if run.alternates:
                refreshes = run.updates_per_stage // run.updates_per_rollout
                engines = run.optimize.backend.processes
                calls = [told["responses"] // refreshes // engines] * refreshes
                found |= {"switch": SWITCH * refreshes, "generate": generating(calls, tokens / engines)}
                found["verify"] = VERIFIER + per_answer * told["responses"]
            return found
        return {"warm_start": BASE} if one.kind == "policy" else {}

    now, timed = START, dict[ArtifactRef, Manifest]()
    for one in sorted(history.manifests.values(), key=lambda one: one.timings.finished):
        started, own = now, phases(one)
        now += sum(own.values())
        timings = Timings(process="one", phases=own, process_started=0, started=started, finished=now)
        timed[one.ref] = one.model_copy(update={"timings": timings})
    stages = [
        replace(
            stage,
            policy=timed[stage.policy.ref],
            rollouts=[timed[one.ref] for one in stage.rollouts],
            verdicts=timed[stage.verdicts.ref],
        )
        for stage in history.stages
    ]
    return replace(history, manifests=timed, stages=stages)


def rates_of(finished: FinishedRun, history: History, run: RunSettings | None = None) -> Rates:
    return read_rates(planned := run or finished.run, history, here(planned), "here")


def here(run: RunSettings) -> Pool:
    """The process of a plan without GPUs."""
    return pool_of(run, 0, None, COSTS, None)


def with_facts(history: History, kind: str, **facts: Any) -> History:
    """Return the history with facts of the policy or of the verdicts of every stage, such as ``processes`` of nodes."""

    def changed(made: Manifest) -> Manifest:
        return made.model_copy(update={"facts": made.facts | facts})

    return replace(history, stages=[replace(one, **{kind: changed(getattr(one, kind))}) for one in history.stages])


def test_rates_are_read_from_planted_timings(one: FinishedRun) -> None:
    # The seconds of an answer are those of one worker, whatever the number of workers of both runs.
    planned = override(one.run, "verify.workers=4 rollout.max_new_tokens=4 policy.tiny.warm_start.guessing_updates=3")
    rates = rates_of(one, history := with_planted_timings(one), planned)
    assert (rates.rollout.step, rates.rollout.row) == pytest.approx((STEP, TOKEN))
    assert rates.evaluate == rates.rollout
    each = rates.amounts
    assert (rates.trained_token, rates.scored_token) == pytest.approx((TRAINED, SCORED))
    assert (each.verifier_start_seconds, each.answer_seconds) == pytest.approx((VERIFIER, ANSWER))
    started = (each.engine_start_seconds, each.trainer_start_seconds, rates.base)
    assert started == pytest.approx((ENGINE, TRAINER, BASE))
    assert each.switch_seconds == pytest.approx(SWITCH if one.run.alternates else 0.0)
    assert each.pod_start_seconds == pytest.approx(START)
    assert each.response_share == pytest.approx(history.stages[-1].verdicts.facts["response_tokens"] / 4)
    few = rates_of(one, with_facts(history, "verdicts", outcomes={"missing": 48}), planned)  # Half of a stage's.
    assert (few.trained_token, few.amounts.response_share) == pytest.approx((2 * TRAINED, each.response_share / 2))
    assert rates_of(one, history, override(one.run, "rollout.max_new_tokens=1")).amounts.response_share == 1


def test_evaluations_in_another_process_have_an_engine_and_a_start_of_their_own(one: FinishedRun) -> None:
    run = override(one.run, "evaluate.engine.batch_size=64")
    history = replace(with_planted_timings(one), settings=run.model_dump(mode="json"))
    apart = dict(history.manifests)
    for made in history.of_kind("evaluation"):
        timings = {"process": "two", "process_started": made.timings.started - START, "phases": {"generate": 1e6}}
        apart[made.ref] = made.model_copy(update={"timings": made.timings.model_copy(update=timings)})
    rates = rates_of(one, replace(history, manifests=apart), run)
    assert rates.rollout == rates_of(one, history).rollout
    assert (rates.rollout.rows, rates.evaluate.rows) == (512, 64)
    assert rates.amounts.pod_start_seconds == pytest.approx(START)


def test_every_process_of_an_alternating_run_has_an_engine(
    finished_runs: dict[str, FinishedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cost.test_measured.TOKEN", 1.0)  # The tokens take most of the time.
    one = finished_runs["grpo"]
    run = override(one.run, deepspeed(zero_stage=2, processes=2))
    history = replace(with_planted_timings(replace(one, run=run)), settings=run.model_dump(mode="json"))
    history = with_facts(history, "policy", processes=2)
    generated = replace(one, run=run).predict(rates_of(one, history, run), 0).seconds["generate"]
    assert generated == pytest.approx(make_ledger(history).seconds["generate"], rel=0.05)


def test_training_takes_less_time_in_more_processes_of_any_node(one: FinishedRun) -> None:
    history = with_facts(with_planted_timings(one), "policy", processes=4)
    nodes = replace(here(one.run), gpus=8, training_gpus=8)
    engine = one.run.rollout.engine.model_copy(update={"tensor_parallel": 2})
    wide = one.run.model_copy(update={"rollout": one.run.rollout.model_copy(update={"engine": engine})})
    alone, both = rates_of(one, history), read_rates(wide, history, nodes, "here")
    for found, factor in ((alone, 4), (both, 1 / 2)):
        assert (found.trained_token, found.scored_token) == pytest.approx((factor * TRAINED, factor * SCORED))
    assert (both.rollout.step, both.rollout.row) == pytest.approx((alone.rollout.step / 2, alone.rollout.row / 2))
    assert both.amounts.pod_start_seconds == pytest.approx(START + ASSUMED.pod_start_seconds)


def test_a_run_predicts_itself(one: FinishedRun) -> None:
    history = with_planted_timings(one)
    ledger, predicted = make_ledger(history), one.predict(rates_of(one, history), 0)
    expected = {row: seconds for row, seconds in ledger.seconds.items() if seconds}
    assert predicted.seconds == pytest.approx(expected, rel=0.03)
    assert predicted.wall_seconds == pytest.approx(ledger.wall_clock, rel=0.02)
    assert predicted.price == {}
    stored = sum(file.bytes for shard in history.of_kind("rollouts") for file in shard.files.values())
    assert predicted.kept_bytes - predicted.policy_bytes == pytest.approx(stored, rel=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("policy.tiny.hidden_size=128", "its run has policy.tiny.hidden_size 64, the planned one 128"),
        ("policy.path=some/model", "its run has policy.path None, the planned one some/model"),
        ("rollout.engine.kind=vllm", "its run has rollout.engine.kind transformers, the planned one vllm"),
        ("rollout.engine.dtype=bfloat16", "rollout.engine.dtype float32, the planned one bfloat16"),
        ("optimize.backend.dtype=bfloat16", "optimize.backend.dtype float32, the planned one bfloat16"),
        ("optimize.lora.rank=4", "its run has optimize.lora.rank None, the planned one 4"),
    ],
)
def test_a_run_of_another_kind_is_refused(change: str, message: str, finished_runs: dict[str, FinishedRun]) -> None:
    one = finished_runs["mu_grpo"]
    with pytest.raises(DataError, match=message):
        measure_rates(override(one.run, change), one.store, here(one.run))


def test_rates_are_those_of_the_other_workflow_where_this_one_has_no_run(finished_runs: dict[str, FinishedRun]) -> None:
    for name, other in (("grpo", "mu_grpo"), ("mu_grpo", "grpo")):
        run = finished_runs[other].run
        rates, told = measure_rates(run, finished_runs[name].store, here(run))
        assert bool(rates.amounts.switch_seconds) == (name == "grpo")
        assert told.startswith(f"{'m2po, mu 4' if name == 'grpo' else 'asymre, mu 6'}, seed 0, report/")


def test_a_plan_counts_what_a_run_makes(one: FinishedRun) -> None:
    """The plan knows the real mean length of a response, and no other result of the run."""
    history, engine = one.history, EngineRates(refills=False, rows=512, step=0.0, row=0.0)
    told = [verdicts.facts for verdicts in history.of_kind("verdicts")]
    tokens = sum(facts["responses"] * facts["response_tokens"] for facts in told)
    share = tokens / sum(facts["responses"] for facts in told) / one.run.rollout.max_new_tokens
    each = ASSUMED.model_copy(update={"response_share": share, "prompt_tokens": 0.0})
    found = one.predict(Rates(each, frozenset(), engine, engine, trained_token=0.0, scored_token=0.0), 1)
    pods = {phase.name: phase.pods for phase in found.phases}
    assert pods["evaluate"] == len(history.of_kind("evaluation")) == one.stages + 1
    assert pods.get("optimize", 0) + pods.get("alternate", 0) == len(history.stages)
    if "generate" in pods:
        assert pods["generate"] == len(history.of_kind("rollouts"))
        assert pods["verify"] == len(history.of_kind("verdicts"))
    assert found.updates == len(history.updates["update"])
    assert found.trained_tokens == pytest.approx(sum(history.updates["tokens"]))
    switched = any("switch" in stage.policy.timings.phases for stage in history.stages)
    assert found.refreshes == (sum(history.updates["staleness"] == 0) if switched else 0)
    stored = sum(file.bytes for policy in history.of_kind("policy") for file in policy.files.values())
    assert found.policy_bytes == pytest.approx(stored, rel=0.1)
