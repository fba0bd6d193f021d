"""Planted causes are found again, and the parts add up to the whole whatever is planted."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.evaluate.statistics import Interval
from tasks.experiments import speedup
from tasks.experiments.runs import SystemRun, engine_work
from tasks.experiments.speedup import speeds_of, split_causes, times_of, training_time
from tasks.report.history import EvaluatedPolicy
from tasks.store.records import Manifest
from tests.experiments.planted import PASS, ROW, Sampled, planted, sampled

PHASES = {"load": 1.0, "verify": 2.0, "logp": 3.0, "optimize": 30.0, "rest": 4.0}
CAUSE_OF = {
    "switch": speedup.SWITCHES,
    "load": speedup.SWITCHES,
    "verify": speedup.VERIFY,
    "logp": speedup.LOGP,
    "optimize": speedup.UPDATES,
    "rest": speedup.STORAGE,
    "save": speedup.STORAGE,
    "start": "",  # The start of the verifier's workers is no cause.
}
UNEVEN = np.random.default_rng(0).integers(2, 30, 64).tolist()


def found(reference: Sequence[SystemRun], baseline: Sequence[SystemRun]) -> dict[str, float]:
    made = split_causes([*reference, *baseline], "mu_grpo", ["grpo"])
    assert {(one.model, one.baseline) for one in made} <= {("tiny", "grpo")}
    return {one.name: one.seconds for one in made}


def compared(ours: Sampled, theirs: Sampled, longer: dict[str, float] | None = None) -> dict[str, float]:
    """Causes that are not 0, where the baseline's phases may be longer."""
    saved = found([planted("mu_grpo", ours, **PHASES)], [planted("grpo", theirs, **PHASES | (longer or {}))])
    assert set(saved) == set(speedup.CAUSES) - {speedup.UNDIVIDED}
    return {name: seconds for name, seconds in saved.items() if abs(seconds) > 1e-6}


@pytest.mark.parametrize(("phase", "name"), CAUSE_OF.items())
@pytest.mark.parametrize("seconds", [0.5, 50.0])
def test_a_phase_that_takes_longer_or_shorter(phase: str, name: str, seconds: float) -> None:
    made = sampled(UNEVEN, [64])
    expected = {name: seconds - PHASES.get(phase, 0.0)} if name else {}
    assert compared(made, made, {phase: seconds}) == pytest.approx(expected)


def test_a_barrier_and_smaller_batches() -> None:
    """With calls of 4 responses each waits for its longest one, and a pass holds 4 rows in place of 64."""
    needed = [sum(UNEVEN) / 64, sum(UNEVEN) / 4]
    passes = [max(UNEVEN), sum(max(UNEVEN[start : start + 4]) for start in range(0, 64, 4))]
    rows = [64 * passes[0], 4 * passes[1]]
    waited = [PASS * (passes[one] - needed[one]) + ROW * (rows[one] - sum(UNEVEN)) for one in (0, 1)]
    expected = {speedup.BATCHES: PASS * (needed[1] - needed[0]), speedup.BARRIER: waited[1] - waited[0]}
    assert compared(sampled(UNEVEN, [64]), sampled(UNEVEN, [4] * 16)) == pytest.approx(expected)


def test_a_policy_with_longer_responses() -> None:
    """Everything that goes with tokens is no merit of the system."""
    ours, theirs = sampled(UNEVEN, [64]), sampled([2 * one for one in UNEVEN], [64])
    more = theirs.sequence_tokens / ours.sequence_tokens
    longer = {name: more * PHASES[name] for name in ("logp", "optimize")}
    expected = (more - 1) * (PHASES["logp"] + PHASES["optimize"]) + sum(one.seconds for one in ours.calls)
    assert compared(ours, theirs, longer) == pytest.approx({speedup.RESPONSES: expected})
    # At twice the seconds per token of one system, tokens count at the mean of both rates.
    saved = compared(ours, theirs, longer | {"logp": 2 * longer["logp"]})
    assert saved[speedup.LOGP] == pytest.approx(2 * longer["logp"] - PHASES["logp"] - 1.5 * (more - 1) * PHASES["logp"])


def test_an_engine_that_is_slower_beside_training_is_not_explained() -> None:
    """Calls of equal work, and the rate lies between their seconds: all that differs is unexplained."""
    ours = sampled(UNEVEN, [64])
    saved = compared(ours, sampled(UNEVEN, [64], slower=1.5))
    assert saved == pytest.approx({speedup.UNEXPLAINED: 0.5 * ours.calls[0].seconds})


def test_calls_whose_seconds_vary_by_a_tenth() -> None:
    random = np.random.default_rng(1)

    def noisy(run: SystemRun) -> SystemRun:
        calls = [replace(one, seconds=one.seconds * random.uniform(0.9, 1.1)) for one in run.calls]
        return planted(run.system, Sampled(run.response_tokens, run.sequence_tokens, calls), run.seed, **PHASES)

    responses = [random.integers(2, 30, 64).tolist() for _ in range(3)]
    ours = [planted("mu_grpo", sampled(one, [64]), seed, **PHASES) for seed, one in enumerate(responses)]
    theirs = [planted("grpo", sampled(one, [4] * 16), seed, **PHASES) for seed, one in enumerate(responses)]
    exact, close = found(ours, theirs), found([*map(noisy, ours)], [*map(noisy, theirs)])
    whole = exact[speedup.BATCHES] + exact[speedup.BARRIER]
    for name in (speedup.BATCHES, speedup.BARRIER, speedup.UNEXPLAINED):
        assert close[name] == pytest.approx(exact[name], abs=0.15 * whole)


runs = st.builds(
    dict,
    tokens=st.lists(st.integers(0, 20), min_size=6, max_size=12).filter(any),
    first=st.integers(1, 5),
    places=st.integers(1, 9),
    phases=st.fixed_dictionaries({name: st.floats(0, 100) for name in CAUSE_OF if name != "start"}),
    noise=st.floats(0.5, 2),
    known=st.sampled_from(["calls", "lengths", "nothing"]),
)


@hypothesis_settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.tuples(runs, runs), min_size=1, max_size=3))
def test_the_causes_add_up_to_the_difference(planned: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    def made(system: str, seed: int, plan: dict[str, Any]) -> SystemRun:
        tokens, first = plan["tokens"], plan["first"]
        responses = sampled(tokens, [first, len(tokens) - first], plan["places"], plan["noise"])
        spent = sum(one.seconds for one in responses.calls)
        if plan["known"] != "calls":
            responses = responses._replace(calls=()) if plan["known"] == "lengths" else Sampled()
        return planted(system, responses, seed, generate=spent + 0.5, **plan["phases"])

    pairs = [(made("mu_grpo", seed, ours), made("grpo", seed, theirs)) for seed, (ours, theirs) in enumerate(planned)]
    parts = found(*zip(*pairs, strict=True))
    seconds = [[run.history.stages[0].policy.timings.seconds for run in pair] for pair in pairs]
    assert sum(parts.values()) == pytest.approx(np.mean([theirs - ours for ours, theirs in seconds]), abs=1e-6)
    for pair, both in zip(pairs, seconds, strict=True):
        assert [sum(training_time(run).values()) for run in pair] == pytest.approx(both)


def test_phases_count_for_every_device_and_artifacts_on_the_way_to_a_policy_once() -> None:
    """A step that alternates writes rollouts and verdicts within its own time; those of another step count."""
    run = planted("grpo", Sampled(), generate=5.0, **PHASES)
    (stage,) = run.history.stages

    def with_rollouts(**timings: Any) -> dict[str, float]:
        engine, timed = {"tensor_parallel": 2}, stage.policy.timings.model_copy(update=timings)
        changes = {"kind": "rollouts", "settings": {"engine": engine}, "timings": timed}
        made: Manifest = stage.policy.model_copy(update=changes)
        return training_time(replace(run, history=replace(run.history, stages=[replace(stage, rollouts=[made])])))

    alone = training_time(run)
    assert with_rollouts(started=1.0, finished=9.0, phases={}) == alone
    outside = with_rollouts(started=-9.0, finished=-1.0, phases={"generate": 7.0})
    assert outside == alone | {speedup.UNDIVIDED: 5.0 + 2 * 7.0, speedup.STORAGE: alone[speedup.STORAGE] + 2 * 1.0}
    both = planted("grpo", Sampled(), settings={"backend": {"processes": 2}}, **PHASES)
    assert training_time(both)[speedup.UPDATES] == 2 * PHASES["optimize"]
    both.history.stages[0].policy.facts["processes"] = 4  # The settings count the processes of one node.
    assert training_time(both)[speedup.UPDATES] == 4 * PHASES["optimize"]


def test_calls_whose_work_is_not_known_leave_generation_whole() -> None:
    made = sampled(UNEVEN, [64])
    untimed = planted("grpo", made._replace(calls=()), generate=9.0, **PHASES)
    saved = found([planted("mu_grpo", made, **PHASES)], [untimed])
    assert saved[speedup.UNDIVIDED] == pytest.approx(9.0 - made.calls[0].seconds)
    assert speedup.BARRIER not in saved


def test_engines_side_by_side_wait_for_the_slowest() -> None:
    names = ("passes", "rows", "tokens", "full_passes")
    work = [dict(zip(names, numbers, strict=True)) for numbers in ((3, 6, 6, 3.0), (9, 18, 16, 8.0))]
    facts = {"call_seconds": [1.0, 2.0], "engines": 2, "engine_work": work}

    def work_of(facts: dict[str, Any]) -> Any:
        engine = {"kind": "vllm", "dtype": "bfloat16", "tensor_parallel": 2, "field of another version": 1}
        return engine_work(cast(Any, SimpleNamespace(settings={"engine": engine}, facts=facts)))

    one = work_of(facts)
    assert one.seconds == 3.0 * 2 * 2
    assert one.work_F.tolist() == [4 * 9, 4 * 18]
    assert one.needed_F.tolist() == [2 * 11, 2 * 22]
    for unknown in ({**facts, "call_seconds": [1.0, None]}, {"call_seconds": [1.0, 2.0]}, {}):
        assert work_of(unknown) is None


def test_runs_of_different_length_or_seed_are_not_compared() -> None:
    made = sampled(UNEVEN, [64])
    ours = planted("mu_grpo", made, **PHASES)
    assert not found([ours], [planted("grpo", made, updates=16, **PHASES)])
    assert not found([ours], [planted("grpo", made, seed=1, **PHASES)])
    pair = [ours, planted("grpo", made, updates=16, **PHASES)]
    speeds = speeds_of([evaluated(run, 0.3, 0.5) for run in pair], "mu_grpo", ["grpo"])
    assert [one.ratio for one in speeds] == [None, None, 1.0]


def evaluated(run: SystemRun, *levels: float) -> SystemRun:
    """The run with these accuracies: of the base policy, then after each stage."""
    policies = [
        EvaluatedPolicy.model_construct(stage=stage, updates=8 * stage, accuracy=Interval(level, 0, 1))
        for stage, level in enumerate(levels)
    ]
    return replace(run, history=replace(run.history, evaluated=policies))


@pytest.mark.parametrize(("ours", "theirs", "reached"), [(0.5, 0.1, True), (0.5, 0.4, True), (0.3, 0.4, False)])
def test_only_a_trained_policy_reaches_the_level_of_a_baseline(ours: float, theirs: float, reached: bool) -> None:
    """The base policy has an accuracy of 0.3, which is above a baseline that collapsed."""

    def run(system: str, seed: int, seconds: float, generate: float, last: float) -> SystemRun:
        return evaluated(planted(system, Sampled(), seed, optimize=seconds - generate, generate=generate), 0.3, last)

    runs = [run("mu_grpo", 0, 5, 1, 0.5), run("mu_grpo", 1, 5, 1, ours)]
    runs += [run("grpo", 0, 10, 4, theirs), run("grpo", 1, 40, 9, theirs)]
    speeds = {one.name: (one.ratio, one.by_seed) for one in speeds_of(runs, "mu_grpo", ["grpo"])}
    assert speeds[speedup.TO_LEVEL] == ((pytest.approx(4.0), [2.0, 8.0]) if reached else (None, [2.0, None]))
    assert speeds[speedup.END_TO_END] == (pytest.approx(4.0), [2.0, 8.0])
    assert speeds[speedup.GENERATION] == (pytest.approx(6.0), [4.0, 9.0])
    mean = times_of(runs)[1]
    assert (mean.system, mean.updates, mean.wall_clocks, mean.ledger["generate"]) == ("grpo", 8, [10, 40], 6.5)
    seconds = [{"generate": len(one.system), **({"load": 3.0} if one.seed else {})} for one in runs]
    runs = [replace(one, ledger=replace(one.ledger, gpu_seconds=each)) for one, each in zip(runs, seconds, strict=True)]
    assert speeds_of(runs, "mu_grpo", ["grpo"])[0].by_seed == pytest.approx([4 / 7, 4 / 7])
    assert times_of(runs)[1].gpu_seconds == {"generate": 4, "load": 1.5}


def test_both_runs_are_timed_to_the_level_where_they_first_have_it() -> None:
    """A run is as fast as itself, also if it has its last accuracy long before its end."""
    (stage,) = planted("mu_grpo", Sampled(), optimize=10.0).history.stages
    timings = stage.policy.timings.model_copy(update={"started": 10.0, "finished": 40.0})
    later = replace(stage, number=2, policy=stage.policy.model_copy(update={"timings": timings}))

    def run(system: str, *levels: float) -> SystemRun:
        made = planted(system, Sampled(), optimize=10.0)
        return evaluated(replace(made, history=replace(made.history, stages=[stage, later])), *levels)

    def ratio(ours: SystemRun, theirs: SystemRun) -> float | None:
        speeds = {one.name: one.ratio for one in speeds_of([ours, theirs], "mu_grpo", ["grpo"])}
        return speeds[speedup.TO_LEVEL]

    assert ratio(run("mu_grpo", 0.3, 0.6, 0.6), run("grpo", 0.3, 0.6, 0.6)) == 1.0
    assert ratio(run("mu_grpo", 0.3, 0.5, 0.6), run("grpo", 0.3, 0.7, 0.6)) == pytest.approx(0.25)
    assert ratio(run("mu_grpo", 0.3, 0.6, 0.6), run("grpo", 0.3, 0.5, 0.6)) == pytest.approx(4.0)
    # 0.4 is the mean of 0.1 and 0.7, which a sum of floats puts a bit below.
    assert ratio(run("mu_grpo", 0.3, (0.1 + 0.7) / 2, 0.3), run("grpo", 0.3, 0.3, 0.4)) == pytest.approx(4.0)
