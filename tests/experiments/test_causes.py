"""Planted causes are found again, and the parts add up to the whole whatever is planted."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.artifacts.records import Manifest
from tasks.experiments import causes
from tasks.experiments.causes import split_causes, training_time
from tasks.experiments.runs import SystemRun, generated
from tests.experiments.planted import PASS, ROW, planted, sampled

PHASES = {"load": 1.0, "verify": 2.0, "logp": 3.0, "optimize": 30.0, "rest": 4.0}
UNEVEN = np.random.default_rng(0).integers(2, 30, 64).tolist()


def found(reference: SystemRun | Sequence[SystemRun], baseline: SystemRun | Sequence[SystemRun]) -> dict[str, float]:
    runs = [*_listed(reference), *_listed(baseline)]
    made = split_causes(runs, "mu_grpo", ["grpo"])
    assert {(one.model, one.baseline) for one in made} <= {("tiny", "grpo")}
    assert all(one.how for one in made)
    return {one.name: one.seconds for one in made}


def seconds_of(run: SystemRun) -> float:
    return run.history.stages[0].policy.timings.seconds


def _listed(runs: SystemRun | Sequence[SystemRun]) -> list[SystemRun]:
    return [runs] if isinstance(runs, SystemRun) else list(runs)


def only(values: dict[str, float]) -> Any:
    """Nothing but these causes."""
    nothing = dict.fromkeys(causes._HOW, 0.0)
    nothing.pop(causes.UNDIVIDED)
    return pytest.approx(nothing | values, abs=1e-6)


@pytest.mark.parametrize(
    ("phase", "name"),
    [
        ("switch", causes.SWITCHES),
        ("load", causes.SWITCHES),
        ("verify", causes.VERIFY),
        ("logp", causes.LOGP),
        ("optimize", causes.UPDATES),
        ("rest", causes.STORAGE),
        ("save", causes.STORAGE),
    ],
)
def test_a_phase_that_takes_longer(phase: str, name: str) -> None:
    made = sampled(UNEVEN, [64])
    longer = {**PHASES, phase: PHASES.get(phase, 0.0) + 5.0}
    assert found(planted("mu_grpo", made, **PHASES), planted("grpo", made, **longer)) == only({name: 5.0})
    assert found(planted("mu_grpo", made, **longer), planted("grpo", made, **PHASES)) == only({name: -5.0})


def test_a_barrier_and_smaller_batches() -> None:
    """With calls of 4 responses each waits for its longest one, and a pass holds 4 rows in place of 64."""
    ours, theirs = sampled(UNEVEN, [64]), sampled(UNEVEN, [4] * 16)
    needed = [sum(UNEVEN) / 64, sum(UNEVEN) / 4]
    passes = [max(UNEVEN), sum(max(UNEVEN[start : start + 4]) for start in range(0, 64, 4))]
    rows = [64 * passes[0], 4 * passes[1]]
    saved = found(planted("mu_grpo", ours, **PHASES), planted("grpo", theirs, **PHASES))
    waited = [PASS * (passes[one] - needed[one]) + ROW * (rows[one] - sum(UNEVEN)) for one in (0, 1)]
    assert saved == only({causes.BATCHES: PASS * (needed[1] - needed[0]), causes.BARRIER: waited[1] - waited[0]})


def test_batches_that_are_larger() -> None:
    """All responses are equally long, so that no row waits: what is saved are passes."""
    ours, theirs = sampled([8] * 64, [64]), sampled([8] * 64, [16] * 4)
    saved = found(planted("mu_grpo", ours, **PHASES), planted("grpo", theirs, **PHASES))
    assert saved == only({causes.BATCHES: PASS * 3 * 8})


def test_a_policy_that_answers_at_length() -> None:
    """Everything that goes with tokens is no merit of the system."""
    ours, theirs = sampled(UNEVEN, [64]), sampled([2 * one for one in UNEVEN], [64])
    more = theirs.sequence_tokens / ours.sequence_tokens
    longer = PHASES | {"logp": more * PHASES["logp"], "optimize": more * PHASES["optimize"]}
    assert ours.calls is not None
    expected = (more - 1) * (PHASES["logp"] + PHASES["optimize"]) + sum(one.seconds for one in ours.calls)
    saved = found(planted("mu_grpo", ours, **PHASES), planted("grpo", theirs, **longer))
    assert saved == only({causes.RESPONSES: expected})


def test_calls_that_vary_by_a_tenth() -> None:
    random = np.random.default_rng(1)

    def noisy(run: SystemRun) -> SystemRun:
        assert run.sampled is not None
        calls = [replace(one, seconds=one.seconds * random.uniform(0.9, 1.1)) for one in run.sampled.calls or []]
        return planted(run.system, replace(run.sampled, calls=calls), run.seed, **PHASES)

    responses = [random.integers(2, 30, 64).tolist() for _ in range(3)]
    ours = [planted("mu_grpo", sampled(one, [64]), seed, **PHASES) for seed, one in enumerate(responses)]
    theirs = [planted("grpo", sampled(one, [4] * 16), seed, **PHASES) for seed, one in enumerate(responses)]
    exact, close = found(ours, theirs), found([*map(noisy, ours)], [*map(noisy, theirs)])
    whole = exact[causes.BATCHES] + exact[causes.BARRIER]
    for name in (causes.BATCHES, causes.BARRIER, causes.UNEXPLAINED):
        assert close[name] == pytest.approx(exact[name], abs=0.15 * whole)


def test_an_engine_that_is_slower_beside_training_is_not_explained() -> None:
    """Calls of equal work, and the rate lies between their seconds: all that differs is unexplained."""
    ours, theirs = sampled(UNEVEN, [64]), sampled(UNEVEN, [64], slower=1.5)
    assert ours.calls is not None
    saved = found(planted("mu_grpo", ours, **PHASES), planted("grpo", theirs, **PHASES))
    assert saved == only({causes.UNEXPLAINED: 0.5 * ours.calls[0].seconds})


runs = st.builds(
    dict,
    tokens=st.lists(st.integers(0, 20), min_size=6, max_size=12).filter(any),
    first=st.integers(1, 5),
    places=st.integers(1, 9),
    phases=st.fixed_dictionaries(
        {name: st.floats(0, 100) for name in ("load", "switch", "verify", "logp", "optimize", "save", "rest")}
    ),
    noise=st.floats(0.5, 2),
    known=st.sampled_from(["calls", "lengths", "nothing"]),
)


@hypothesis_settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.tuples(runs, runs), min_size=1, max_size=3))
def test_the_parts_add_up_to_the_whole(planned: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    def made(system: str, seed: int, plan: dict[str, Any]) -> SystemRun:
        tokens, first = plan["tokens"], plan["first"]
        responses = sampled(tokens, [first, len(tokens) - first], plan["places"], plan["noise"])
        if plan["known"] == "nothing":
            return planted(system, None, seed, generate=7.0, **plan["phases"])
        spent = sum(one.seconds for one in responses.calls or [])
        if plan["known"] == "lengths":
            responses = replace(responses, calls=None)
        return planted(system, responses, seed, generate=spent + 0.5, **plan["phases"])

    pairs = [(made("mu_grpo", seed, ours), made("grpo", seed, theirs)) for seed, (ours, theirs) in enumerate(planned)]
    parts = found(*zip(*pairs, strict=True))
    whole = np.mean([seconds_of(theirs) - seconds_of(ours) for ours, theirs in pairs])
    assert sum(parts.values()) == pytest.approx(whole, abs=1e-6)
    for run in [run for pair in pairs for run in pair]:
        assert sum(training_time(run).values()) == pytest.approx(seconds_of(run))


def test_artifacts_on_the_way_to_a_policy_count_once() -> None:
    """A step that alternates writes rollouts and verdicts within its own time; those of another step count."""
    run = planted("grpo", None, generate=5.0, **PHASES)
    (stage,) = run.history.stages
    timings = stage.policy.timings
    inside = stage.policy.model_copy(
        update={"timings": timings.model_copy(update={"started": 1.0, "finished": 9.0, "phases": {}})}
    )
    outside = stage.policy.model_copy(
        update={"timings": timings.model_copy(update={"started": -9.0, "finished": -1.0, "phases": {"generate": 7.0}})}
    )

    def with_rollouts(rollouts: Manifest) -> dict[str, float]:
        return training_time(replace(run, history=replace(run.history, stages=[replace(stage, rollouts=[rollouts])])))

    alone = training_time(run)
    assert with_rollouts(inside) == alone
    assert with_rollouts(outside) == alone | {"generate": 12.0, "rest": alone["rest"] + 1.0}


def test_calls_whose_work_is_not_known_leave_generation_whole() -> None:
    made = sampled(UNEVEN, [64])
    assert made.calls is not None
    untimed = replace(made, calls=None)
    saved = found(planted("mu_grpo", made, **PHASES), planted("grpo", untimed, generate=9.0, **PHASES))
    assert saved[causes.UNDIVIDED] == pytest.approx(9.0 - made.calls[0].seconds)
    assert causes.BARRIER not in saved


def test_phases_count_once_for_every_device() -> None:
    both = {"backend": {"processes": 2}}
    assert training_time(planted("grpo", None, settings=both, **PHASES))["optimize"] == 2 * PHASES["optimize"]


def test_engines_side_by_side_wait_for_the_slowest() -> None:
    work = [
        {"passes": 3, "rows": 6, "tokens": 6, "full_passes": 3.0},
        {"passes": 9, "rows": 18, "tokens": 16, "full_passes": 8.0},
    ]
    engine = {"kind": "vllm", "tensor_parallel": 2}
    facts = {"call_seconds": [1.0, 2.0], "engines": 2, "engine_work": work}
    made: Any = SimpleNamespace(settings={"engine": engine}, facts=facts)
    one = generated(made)
    assert one is not None
    assert one.seconds == 3.0 * 2 * 2
    assert one.work_F.tolist() == [4 * 9, 4 * 18]
    assert one.needed_F.tolist() == [2 * 11, 2 * 22]
    for unknown in ({**facts, "call_seconds": [1.0, None]}, {"call_seconds": [1.0, 2.0]}, {}):
        made = SimpleNamespace(settings={"engine": engine}, facts=unknown)
        assert generated(made) is None


def test_runs_of_different_length_or_seed_are_not_compared() -> None:
    made = sampled(UNEVEN, [64])
    ours = planted("mu_grpo", made, **PHASES)
    assert not found(ours, planted("grpo", made, updates=16, **PHASES))
    assert not found(ours, planted("grpo", made, seed=1, **PHASES))
