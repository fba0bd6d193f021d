"""What stays from one step to the next: one thing in each place, closed when another takes it, never a parent's."""

import os

import psutil

from tasks.process.resident import load_resident, release
from tasks.verify.pool import shared_verifier
from tasks.verify.verdicts import Outcome
from tests.verify.helpers import boxed, judge_pids, settings
from tests.waiting import until


class Thing:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_each_slot_holds_one_object() -> None:
    release("verifier")
    engine, verifier = load_resident("engine", "a", Thing), load_resident("verifier", "a", Thing)
    assert engine is not verifier
    assert load_resident("engine", "a", Thing) is engine
    other = load_resident("engine", "b", lambda: Thing() if engine.closed else engine)
    assert engine.closed
    assert not other.closed
    assert not verifier.closed
    release()
    assert other.closed
    assert load_resident("verifier", "a", Thing) is verifier
    release("verifier")
    assert verifier.closed


def test_a_forked_process_does_not_share_its_parents_objects() -> None:
    held = load_resident("engine", "a", Thing)
    child = os.fork()
    if not child:
        os._exit(int(load_resident("engine", "a", Thing) is held))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert load_resident("engine", "a", Thing) is held
    release()


def test_workers_of_a_verifier_serve_the_next_step_until_its_settings_change() -> None:
    given = settings(workers=1)
    first = shared_verifier(given)
    assert first.verify([("1", boxed("1"))])[0].outcome == Outcome.CORRECT
    (worker,) = judge_pids(first)
    assert shared_verifier(given).verify([("2", boxed("3"))])[0].outcome == Outcome.WRONG
    assert judge_pids(shared_verifier(given)) == [worker]
    shared_verifier(settings(workers=2))
    assert judge_pids(first) == []
    until(lambda: not psutil.pid_exists(worker))
    release("verifier")
