"""Hostile answers, in real workers: each may cost its worker, and the next answer is scored right."""

import os
import signal
import threading
import time

import psutil
import pytest

from tasks.verify import pool
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import Outcome
from tests.verify.helpers import HANGS, boxed, judge_pid, judge_pids, settings
from tests.waiting import until

HOSTILE = {
    "10^10^10, read as (10^10)^10": ("42", "10^10^10"),
    "10^10^10, nested": ("42", HANGS),
    "30 nested radicals": (r"2\sqrt3", r"\sqrt{" * 30 + "2" + "}" * 30),
    "malformed": ("42", r"\frac{\sqrt[}{\left(\right]\begin{cases}"),
    "unicode": ("42", "\U0001f600\u202e\u0663\u00bd\ufffd" * 200),
    "half of a surrogate pair": ("42", "\ud83d"),
    "null bytes": ("42", "4\x002\x00"),
    "2000 digits": ("42", "9" * 2000),
    "a hanging gold answer": (HANGS, "0.5"),
}
VERIFIER = settings(workers=1, deadline_seconds=1.0)
"""One worker, so that an answer comes to the worker, or the successor of the worker, that had the last one."""


@pytest.mark.parametrize(("gold", "answer"), HOSTILE.values(), ids=HOSTILE.keys())
def test_after_a_hostile_answer_the_next_is_judged_right(verifier, gold, answer):
    hostile, right, wrong = verifier.verify([(gold, boxed(answer)), ("42", boxed("42")), ("42", boxed("43"))])
    assert hostile.outcome in {Outcome.WRONG, Outcome.NO_ANSWER, Outcome.TIMEOUT, Outcome.CRASHED}
    assert (hostile.reward is None) == (hostile.outcome in {Outcome.TIMEOUT, Outcome.CRASHED})
    assert (right.outcome, wrong.outcome) == (Outcome.CORRECT, Outcome.WRONG)


@pytest.mark.parametrize(
    ("limits", "answer", "outcome"),
    [
        ({"deadline_seconds": 1.0}, "{" * (1 << 20) + "}" * (1 << 20), Outcome.TIMEOUT),
        ({"deadline_seconds": 30.0, "memory_mib": 100}, "1" * (24 << 20), Outcome.CRASHED),
    ],
    ids=["braces", "digits"],
)
def test_an_answer_of_megabytes_ends_its_judge_and_the_next_is_judged_right(limits, answer, outcome):
    with Verifier(settings(workers=1, max_answer_characters=1 << 30, **limits)) as verifier:
        outcomes = [verdict.outcome for verdict in verifier.verify([("42", boxed(answer)), ("42", boxed("42"))])]
    assert outcomes == [outcome, Outcome.CORRECT]


def test_only_the_hanging_answers_are_lost():
    pairs = [("7", boxed(HANGS + f"+{i}") if i % 60 == 5 else boxed(str(7 + i % 2) + " " * i)) for i in range(120)]
    with Verifier(settings(workers=2, deadline_seconds=1.0)) as verifier:
        verdicts = verifier.verify(pairs)
    for i, verdict in enumerate(verdicts):
        expected = Outcome.TIMEOUT if i % 60 == 5 else Outcome.WRONG if i % 2 else Outcome.CORRECT
        assert verdict.outcome == expected, i


def test_near_the_memory_limit_a_judge_is_replaced_and_a_wrong_answer_counts_as_crashed():
    # What a worker needs for itself is more than half of this, so that every answer seems to come near the limit.
    with Verifier(settings(workers=1, memory_mib=100)) as verifier:
        outcomes, judges = [], set()
        for answer in ("42", "43", "42"):
            outcomes += [verdict.outcome for verdict in verifier.verify([("42", boxed(answer))])]
            worker, found = psutil.Process(verifier._workers[0]._process.pid), []
            until(lambda found=found, worker=worker: found.extend(worker.children()) or found)
            judges |= {judge.pid for judge in found}  # the one that answered, or the one after it
        assert len(judges) > 1
    assert outcomes == [Outcome.CORRECT, Outcome.CRASHED, Outcome.CORRECT]


@pytest.mark.parametrize(("times", "outcome"), [(1, Outcome.TIMEOUT), (3, Outcome.CRASHED)])
def test_a_worker_killed_from_outside_in_the_middle_of_an_answer(times, outcome):
    with Verifier(settings(workers=1, deadline_seconds=3.0)) as verifier:
        verifier.verify([("1", boxed("1"))])
        killed = set()

        def kill_busy() -> None:
            while len(killed) < times:
                for worker in list(verifier._workers):
                    if judge_pid(worker) not in killed and worker.judge_pid and worker._sent:
                        time.sleep(0.3)
                        killed.add(judge_pid(worker))
                        os.kill(judge_pid(worker), signal.SIGKILL)

        killer = threading.Thread(target=kill_busy)
        killer.start()
        hanging, right, wrong = verifier.verify([("42", boxed(a)) for a in (HANGS, "42", "43")])
        killer.join()
    assert (hanging.outcome, hanging.reward) == (outcome, None)
    assert (right.outcome, wrong.outcome) == (Outcome.CORRECT, Outcome.WRONG)


def test_a_disturbed_answer_comes_to_an_end_in_every_call(monkeypatch):
    monkeypatch.setattr(pool, "_FROM_OUTSIDE", (-signal.SIGPROF,))
    with Verifier(settings(workers=1, deadline_seconds=0.3)) as verifier:
        for _ in range(2):
            assert verifier.verify([("42", boxed(HANGS))])[0].outcome == Outcome.TIMEOUT
            assert verifier._ends.total() == pool._TRIES


@pytest.mark.parametrize("for_good", [False, True], ids=["goes on", "stays"])
def test_a_worker_that_is_stopped_costs_no_answer(for_good):
    with Verifier(settings(workers=1, deadline_seconds=0.5)) as verifier:
        verifier.verify([("1", boxed("1"))])
        (pid,) = judge_pids(verifier)
        os.kill(pid, signal.SIGSTOP)
        going_on = threading.Timer(1.2, os.kill, (pid, 0 if for_good else signal.SIGCONT))
        going_on.start()
        verdicts = verifier.verify([("42", boxed(a)) for a in ("42", "43")])
        going_on.join()
        assert (judge_pids(verifier) == [pid]) is not for_good
    assert [verdict.outcome for verdict in verdicts] == [Outcome.CORRECT, Outcome.WRONG]
