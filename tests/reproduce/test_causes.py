"""Planted causes are found again, and the parts add up to the whole whatever is planted."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.artifacts.records import Manifest
from tasks.reproduce import causes
from tasks.reproduce.causes import split_causes, training_time
from tasks.reproduce.runs import SystemRun
from tasks.reproduce.sampled import Call
from tasks.settings import EngineSettings
from tests.reproduce.planted import MANY, PASS, PLACES, passes, planted, sampled, seconds

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


def only(name: str, value: float) -> dict[str, float]:
    """Nothing but one cause."""
    nothing = dict.fromkeys(causes._ORDER, 0.0)
    nothing.pop(causes.UNDIVIDED)
    return pytest.approx(nothing | {name: value}, abs=1e-6)


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
    made = sampled(UNEVEN, [64], MANY)
    longer = {**PHASES, phase: PHASES.get(phase, 0.0) + 5.0}
    assert found(planted("mu_grpo", made, **PHASES), planted("grpo", made, **longer)) == only(name, 5.0)
    assert found(planted("mu_grpo", made, **longer), planted("grpo", made, **PHASES)) == only(name, -5.0)


def test_a_barrier_at_the_end_of_every_call() -> None:
    """As many rows at once, but whoever calls often waits for the longest of every call."""
    ours, theirs = sampled(UNEVEN, [64], PLACES), sampled(UNEVEN, [4] * 16, PLACES)
    waited = sum(len(passes(UNEVEN[start : start + 4], PLACES)) for start in range(0, 64, 4))
    expected = PASS * (waited - len(passes(UNEVEN, PLACES)))
    assert expected > 1
    assert found(planted("mu_grpo", ours, **PHASES), planted("grpo", theirs, **PHASES)) == only(
        causes.BARRIER, expected
    )


def test_batches_that_are_larger() -> None:
    """All responses are equally long, so nobody waits: what is saved are passes."""
    ours, theirs = sampled([8] * 64, [64], MANY), sampled([8] * 64, [16] * 4, MANY)
    saved = found(planted("mu_grpo", ours, **PHASES), planted("grpo", theirs, **PHASES))
    assert saved == only(causes.BATCHES, PASS * 3 * 8)


def test_a_policy_that_answers_at_length() -> None:
    """Everything that goes with tokens is no merit of the system."""
    ours, theirs = sampled(UNEVEN, [64], MANY), sampled([2 * one for one in UNEVEN], [64], MANY)
    more = theirs.sequence_tokens / ours.sequence_tokens
    longer = PHASES | {"logp": more * PHASES["logp"], "optimize": more * PHASES["optimize"]}
    expected = (more - 1) * (PHASES["logp"] + PHASES["optimize"]) + sum(
        call.seconds - other.seconds for call, other in zip(theirs.calls, ours.calls, strict=True)
    )
    saved = found(planted("mu_grpo", ours, **PHASES), planted("grpo", theirs, **longer))
    assert saved == only(causes.RESPONSES, expected)


def test_all_at_once_with_noise() -> None:
    """Calls differ by a tenth; the causes of generation are found within a tenth of what is saved."""
    random = np.random.default_rng(1)

    def noisy(run: SystemRun) -> SystemRun:
        assert run.sampled is not None
        calls = [Call(one.shares, (one.seconds or 0.0) * random.uniform(0.9, 1.1)) for one in run.sampled.calls]
        return planted(run.system, replace(run.sampled, calls=calls), run.seed, **PHASES)

    def run(system: str, seed: int, calls: list[int]) -> SystemRun:
        tokens = np.random.default_rng(seed).integers(2, 60, 512).tolist()
        return planted(system, sampled(tokens, calls, EngineSettings(batch_size=128)), seed)

    pairs = [(run("mu_grpo", seed, [256, 256]), run("grpo", seed, [16] * 32)) for seed in range(3)]
    exact = found(*zip(*pairs, strict=True))
    close = found(*zip(*[(noisy(ours), noisy(theirs)) for ours, theirs in pairs], strict=True))
    whole = exact[causes.BATCHES] + exact[causes.BARRIER]
    assert exact[causes.UNEXPLAINED] == pytest.approx(0, abs=1e-6)
    assert exact[causes.BATCHES] > 0.3 * whole
    assert exact[causes.BARRIER] > 0.1 * whole
    for name in (causes.BATCHES, causes.BARRIER, causes.UNEXPLAINED):
        assert close[name] == pytest.approx(exact[name], abs=0.1 * whole)


def test_an_engine_that_is_slower_beside_training_is_not_explained() -> None:
    ours, theirs = sampled(UNEVEN, [64], MANY), sampled(UNEVEN, [64], MANY, slower=1.5)
    saved = found(planted("mu_grpo", ours, **PHASES), planted("grpo", theirs, **PHASES))
    assert saved == only(causes.UNEXPLAINED, 0.5 * seconds(UNEVEN, MANY))


runs = st.builds(
    dict,
    tokens=st.lists(st.integers(0, 20), min_size=6, max_size=12).filter(any),
    first=st.integers(1, 5),
    batch_size=st.integers(1, 9),
    kind=st.sampled_from(["transformers", "vllm"]),
    phases=st.fixed_dictionaries(
        {name: st.floats(0, 100) for name in ("load", "switch", "verify", "logp", "optimize", "save", "rest")}
    ),
    noise=st.floats(0.5, 2),
    known=st.sampled_from(["calls", "lengths", "nothing"]),
)


@hypothesis_settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.tuples(runs, runs), min_size=1, max_size=3))
def test_the_parts_add_up_to_the_whole(planned: list[tuple[dict, dict]]) -> None:
    def made(system: str, seed: int, plan: dict) -> SystemRun:
        engine = EngineSettings(kind=plan["kind"], batch_size=plan["batch_size"])
        tokens, first = plan["tokens"], plan["first"]
        responses = sampled(tokens, [first, len(tokens) - first], engine, plan["noise"])
        if plan["known"] == "nothing":
            return planted(system, None, seed, generate=7.0, **plan["phases"])
        spent = sum(call.seconds or 0.0 for call in responses.calls)
        if plan["known"] == "lengths":
            responses = replace(responses, calls=[Call(one.shares, None) for one in responses.calls])
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


def test_untimed_calls_leave_generation_whole() -> None:
    made = sampled(UNEVEN, [64], MANY)
    untimed = replace(made, calls=[Call((64,), None)])
    saved = found(planted("mu_grpo", made, **PHASES), planted("grpo", untimed, generate=9.0, **PHASES))
    assert saved[causes.UNDIVIDED] == pytest.approx(9.0 - seconds(UNEVEN, MANY))
    assert causes.BARRIER not in saved


def test_seconds_count_once_for_every_device() -> None:
    made = sampled(UNEVEN, [64], MANY)
    both = {"backend": {"processes": 2}}
    assert training_time(planted("grpo", made, settings=both, **PHASES))["optimize"] == 2 * PHASES["optimize"]
    shared = replace(made, calls=[Call((32, 32), 2.0)])
    saved = found(planted("mu_grpo", shared, settings=both, **PHASES), planted("grpo", shared, settings=both, **PHASES))
    assert saved == only(causes.UNEXPLAINED, 0.0)


def test_runs_of_different_length_or_seed_are_not_compared() -> None:
    made = sampled(UNEVEN, [64], MANY)
    ours = planted("mu_grpo", made, **PHASES)
    assert not found(ours, planted("grpo", made, updates=16, **PHASES))
    assert not found(ours, planted("grpo", made, seed=1, **PHASES))
