import sys
from types import SimpleNamespace

import pytest

from tasks.process.provenance import gpus
from tasks.report.ledger import Ledger, make_ledger, seconds_at_work, steps_of
from tasks.store import Store
from tests.report.synthetic import SyntheticRun, history_of, make_run


def ledger_of(run: SyntheticRun) -> Ledger:
    return make_ledger(history_of(run))


def test_a_ledger_of_one_process_worked_numbers(tmp_path):
    ledger = ledger_of(make_run(tmp_path, 1))
    expected = {
        "start": 6.0,
        "warm_start": 31.0,
        "load": 2 * 0.4 + 0.1 + 0.5 + 2 * 0.3,  # two shards, verdicts, policy, two evaluations
        "generate": 9.0 + 10.0,
        "verify": 2.5,
        "optimize": 1.5 + 14.0,
        "evaluate": 2 * (4.0 + 0.7),
        "rest": 0.5 * 9,  # half a second for each of nine artifacts
    }
    assert ledger.seconds == pytest.approx(expected)
    assert list(ledger.seconds) == list(expected)
    assert (ledger.total, ledger.wall_clock) == pytest.approx((89.9, 89.9))
    # Two shards, their verdicts and the policy, with their loads, each half a second longer than its phases.
    assert ledger.training == pytest.approx(9.0 + 10.0 + 2.5 + 1.5 + 14.0 + 1.4 + 4 * 0.5)


class Judging(SyntheticRun):
    """Every step that judges starts the workers of the verifier."""

    def _pass(self, draft, **phases):
        super()._pass(draft, **phases, **({"start": 11.0} if "verify" in phases else {}))


@pytest.mark.parametrize("mu", [32, 4])
def test_the_start_of_the_workers_is_no_training(tmp_path, mu):
    ledger = ledger_of(make_run(tmp_path / "judging", 1, Judging, updates_per_rollout=mu))
    without = ledger_of(make_run(tmp_path / "without", 1, updates_per_rollout=mu))
    assert ledger.seconds == pytest.approx({**without.seconds, "start": 6.0 + 3 * 11.0})
    assert ledger.training == pytest.approx(without.training)
    assert ledger.wall_clock == pytest.approx(without.wall_clock + 3 * 11.0)


def test_waiting_for_another_run_is_not_counted(run):
    """By hand: the second of two runs waits 31.5 s for the base policy, then 40 s between two of its own steps."""
    with run.process("first"):
        run.base()
    begun = run.clock.now - 31.5
    with run.process("second", imports=6.0 + 31.5, waits=[(begun, run.clock.now)]):
        run.train()
        waits = [(begun, begun + 31.5), (run.clock.now, run.clock.now + 40.0)]
        run.clock.now += 40.0
    with run.process("second", imports=run.clock.now - begun + 6.0, waits=waits):
        run.evaluate()
    ledger = ledger_of(run)
    assert (ledger.seconds["start"], ledger.seconds["rest"]) == pytest.approx((6.0 + 6.0, 0.5 * 9))
    # The second process's start lies beside the first one's work.
    assert ledger.total == pytest.approx(89.9 + 6.0)
    assert ledger.wall_clock == pytest.approx(89.9)


def test_a_process_that_is_older_than_the_run_counts_from_its_first_artifact(run):
    with run.process("notebook", imports=3600.0):
        run.base().stages(1)
    assert [ledger_of(run).seconds[row] for row in ("start", "rest")] == pytest.approx([0, 0.5 * 9])


@pytest.mark.parametrize("stages", [1, 4])
def test_another_run_of_the_same_process_is_not_counted(run, tmp_path, stages):
    """Both runs share the base policy, which the process made before the first one."""
    second = SyntheticRun(run.store, run.clock, preset="relaxed")
    with run.process("one"):
        run.base().stages(stages)
        run.clock.now += 0.75  # Between the runs.
        second.from_base_of(run).stages(1)
    alone = ledger_of(make_run(tmp_path / "alone", 1))
    assert ledger_of(second).seconds == pytest.approx({**alone.seconds, "rest": alone.seconds["rest"] + 0.75})
    assert ledger_of(second).wall_clock == pytest.approx(89.9 + 0.75)


def test_another_run_before_this_one_in_its_process_is_no_start(run, tmp_path):
    """By hand: the runs are in two stores, and the process makes one stage of each, with 3 s between them."""
    second = SyntheticRun(Store.open(tmp_path / "second"), run.clock)
    with run.process("one"):
        run.base().stages(1)
        run.clock.now += 3.0
        second.base().stages(1)
    assert ledger_of(run).seconds["start"] == pytest.approx(6.0)
    ledger = ledger_of(second)
    assert (ledger.seconds["start"], ledger.seconds["rest"]) == pytest.approx((0, 3.0 + 0.5 * 9))
    assert ledger.wall_clock == pytest.approx(3.0 + 89.9 - 6.0)


def test_the_time_between_shared_steps_of_another_runs_process_is_not_counted(run, tmp_path):
    class Late(SyntheticRun):
        def evaluate(self) -> None:
            self.clock.now += 40  # The process works for its own run meanwhile.
            super().evaluate()

    other = Late(run.store, run.clock, preset="relaxed")
    with other.process("one"):
        other.base().stages(1)
    with run.process("two"):
        run.from_base_of(other).stages(1)
    alone = ledger_of(make_run(tmp_path / "alone", 1))
    assert ledger_of(run).seconds == pytest.approx({**alone.seconds, "start": 2 * 6.0})
    assert ledger_of(run).wall_clock == pytest.approx(alone.wall_clock + 6.0)


def test_processes_side_by_side_count_once_in_the_wall_clock(run):
    with run.process("driver"):
        run.base()
        run.train()
        trained = run.clock.now
    run.clock.now -= 11.0
    with run.process("evaluator", imports=0.0):
        run.evaluate()
    assert run.clock.now < trained
    ledger = ledger_of(run)
    assert (ledger.total, ledger.wall_clock) == pytest.approx((89.9, 89.9 - 5.5))


def test_seconds_of_gpus_are_those_of_the_processes_that_saw_them(run):
    """The base policy is made and evaluated in a process without one, the stage in a process with four."""
    with run.process("cpu"):
        run.base()
    with run.process("pod", imports=8.0, gpus=4):
        run.stages(1)
    ledger = ledger_of(run)
    of_the_stage = {"load": 2 * 0.4 + 0.1 + 0.5 + 0.3, "generate": 19.0, "verify": 2.5, "optimize": 15.5}
    of_the_pod = {"start": 8.0, "warm_start": 0.0, **of_the_stage, "evaluate": 4.7, "rest": 0.5 * 6}
    assert ledger.gpu_seconds == pytest.approx({name: 4 * seconds for name, seconds in of_the_pod.items()})
    assert list(ledger.gpu_seconds) == list(ledger.seconds)


def test_the_gpus_of_a_process_are_those_that_torch_sees(monkeypatch):
    """Of a group on two nodes with four processes each, every one of which sees its node's GPUs."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert gpus() == 0
    seen = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 4))
    monkeypatch.setitem(sys.modules, "torch", seen)
    assert gpus() == 4
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert gpus() == 8


def steps_by_name(run: SyntheticRun) -> dict[tuple[str, str], tuple[int, float]]:
    """Artifacts and seconds at work by stage and task."""
    found = steps_of(history_of(run)).items()
    return {(stage, task): (len(made), seconds_at_work(made)) for stage, each in found for task, made in each.items()}


def test_a_colocated_step_is_one_step(grpo):
    """It makes shards, verdicts and a policy, one after the other."""
    seconds = 0.5 * 2 + 0.5 + 0.5 + 1.5 + 14.0 + 24.0 + 2.6 + 6.0 + 0.5
    assert steps_by_name(grpo)["stage 3", "alternate"] == pytest.approx((4, seconds))
    assert steps_by_name(grpo)["stage 3", "prepare_prompts"] == (1, 0.5)


class SideBySide(SyntheticRun):
    """Both shards are generated at once."""

    def _write(self, kind, *content, **facts):
        started = self.clock.now
        ref = super()._write(kind, *content, **facts)
        if kind == "rollouts":
            self.clock.now = started
        return ref


class Interrupted(SyntheticRun):
    """An earlier attempt made all the updates, and the last one only wrote the policy."""

    def _pass(self, draft, **phases):
        earlier = phases if "logp" in phases else {}
        super()._pass(draft, **({} if earlier else phases))
        draft.earlier.update(earlier)


@pytest.mark.parametrize(
    ("kind", "step", "seconds", "rest", "wall"),
    [
        (SideBySide, "generate", 0.4 + 10 + 0.5, 0, 89.9 - 9.9 - 10.9),  # Verdicts and updates run beside the shards.
        (Interrupted, "optimize", 0.5 + 1.5 + 14 + 0.5, 0.5 * 9, 89.9),
    ],
)
def test_every_second_counts_once_also_of_interrupted_attempts(tmp_path, kind, step, seconds, rest, wall):
    run = make_run(tmp_path, 1, kind)
    ledger = ledger_of(run)
    found = steps_by_name(run)["stage 1", step][1], ledger.seconds["rest"], ledger.wall_clock
    assert found == pytest.approx((seconds, rest, wall))
