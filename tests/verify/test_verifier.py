import json
import os
import signal
import threading
from collections import Counter, deque
from contextlib import nullcontext

import psutil
import pytest

from tasks.errors import GateError, SettingsError
from tasks.settings import VerifySettings
from tasks.verify import pool
from tasks.verify.pool import Verifier, check_failures
from tasks.verify.verdicts import Judgement, Outcome
from tests.verify.helpers import HANGS, boxed, judge_pids, settings, workers_of
from tests.waiting import until


def test_equal_pairs_are_checked_and_written_once(monkeypatch):
    long, written, dumps = "42" + " " * 5000, [], json.dumps
    monkeypatch.setattr(json, "dumps", lambda job: written.append(job) or dumps(job))
    pairs = [(long, boxed("42")), (long, f"so {boxed('42')}"), (long, boxed("43")), ("43", boxed("42"))] * 50
    with Verifier(settings(workers=1)) as verifier:
        verdicts = verifier.verify(pairs)
    assert sorted(written) == [(long, "42"), (long, "43"), ("43", "42")]
    assert [one.outcome for one in verdicts] == ["correct", "correct", "wrong", "wrong"] * 50
    assert [one.shows_working for one in verdicts] == [False, True, False, False] * 50


def test_no_worker_without_something_to_check(monkeypatch):
    monkeypatch.setattr("os.environ", {**os.environ, "WANDB_API_KEY": "a secret", "PROXY": "http://me:secret@host"})
    with Verifier(settings(max_answer_characters=10)) as verifier:
        assert verifier.verify([]) == []
        none, long = verifier.verify([("?", "no box"), ("42", boxed("4" * 11))])
        assert none.outcome == Outcome.NO_ANSWER  # the gold answer is not looked at
        assert (long.outcome, long.reward, long.extracted) == (Outcome.NO_ANSWER, 0.0, "4" * 11)
        assert judge_pids(verifier) == workers_of() == []
        verifier.verify([("42", boxed("42"))])
        (judge,) = judge_pids(verifier)  # not more workers than answers
        assert psutil.Process(judge).environ().keys().isdisjoint(["WANDB_API_KEY", "PROXY"])


def test_workers_that_are_started_are_ready_and_a_dead_one_is_replaced():
    with Verifier(settings(workers=2)) as verifier:
        verifier.start()
        first, second = judge_pids(verifier)
        assert {psutil.Process(pid).ppid() for pid in (first, second)} == {one.pid for one in workers_of()}
        psutil.Process(first).parent().kill()
        # The pipe of the dead worker ends when its judge has ended too.
        until(lambda: verifier.start() or judge_pids(verifier)[0] == second)
        assert len(judge_pids(verifier)) == len(workers_of()) == 2
        os.kill(second, signal.SIGKILL)  # A judge that dies while it is idle is replaced without blame.
        until(lambda: not psutil.pid_exists(second))
        assert [one.outcome for one in verifier.verify([("42", boxed("42"))])] == [Outcome.CORRECT]


def test_an_interrupted_call_leaves_nothing_for_the_next_one():
    # Libraries that other tests use leave handlers of their own behind: flytekit exits, torch's launcher raises.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with Verifier(settings(workers=1, deadline_seconds=1e6)) as verifier:
        verifier.verify([("1", boxed("1"))])
        (worker,) = verifier._workers

        def interrupt() -> None:
            until(lambda: worker._sent)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            verifier.verify([("42", boxed(HANGS)), ("1", boxed("2"))])
        signal.signal(signal.SIGINT, before)
        assert workers_of() == []
        assert verifier.verify([("42", boxed("42"))])[0].outcome == Outcome.CORRECT


def test_a_worker_has_its_limits_and_ignores_sigint_and_sigterm():
    with Verifier(settings(workers=1, memory_mib=512)) as verifier:
        verifier.verify([("42", boxed("42"))])
        worker = psutil.Process(judge_pids(verifier)[0])
        assert worker.rlimit(psutil.RLIMIT_AS) == (512 << 20, 512 << 20)
        assert worker.rlimit(psutil.RLIMIT_CORE) == (0, 0)
        loaded = {mapped.path.rsplit("/", 1)[-1] for mapped in worker.memory_maps()}
        assert not any("torch" in name or "arrow" in name for name in loaded)
        for number in (signal.SIGINT, signal.SIGTERM):
            worker.send_signal(number)
            assert verifier.verify([("42", boxed("42"))])[0].outcome == Outcome.CORRECT
        assert judge_pids(verifier) == [worker.pid]


def test_the_deadline_holds_while_the_parent_does_not_look():
    given, waiting = settings(deadline_seconds=0.5), deque()
    worker = pool._Worker(given, waiting, Counter())
    try:
        until(lambda: worker.collect() == [] and worker.judge_pid)
        judge = worker.judge_pid
        waiting.append(("42", HANGS))
        worker.fill(1)
        until(lambda: not psutil.pid_exists(judge))
        ended = psutil.Process(worker._process.pid).cpu_times()[2:4]  # of children that ended: of the judge
        # The timer counts a tick whole for the process that it meets running, the times are those that it ran for:
        # on a machine that shares its cores the two come apart.
        assert 0.25 <= sum(ended) < 10
        judgements: list[tuple[pool.Job, Judgement]] = []
        until(lambda: judgements.extend(worker.collect()) or judgements)  # The worker reports the end.
        assert judgements == [(("42", HANGS), Judgement(Outcome.TIMEOUT))]
    finally:
        worker.close()


@pytest.mark.parametrize("begin", [Verifier.start, lambda verifier: verifier.verify([("42", boxed("42"))])])
def test_a_worker_that_cannot_start_is_an_error_that_names_the_limit(begin):
    message = "verify.memory_mib: 40; .*Raise verify.memory_mib"
    with pytest.raises(SettingsError, match=message), Verifier(settings(memory_mib=40)) as verifier:
        begin(verifier)
    assert workers_of() == []


@pytest.mark.parametrize(
    ("failures", "responses", "limit", "stops"),
    [
        *((2, 100, 0.02, False), (3, 150, 0.02, False), (3, 149, 0.02, True)),
        *((1, 5, 0.0, True), (5, 5, 1.0, False), (0, 0, 0.0, False)),
    ],
)
def test_the_gate_allows_exactly_its_share(failures, responses, limit, stops):
    outcomes = [Outcome.TIMEOUT] * failures + [Outcome.GOLD_UNPARSABLE] * 4
    rows = [{"prompt_id": "p", "outcome": outcome, "extracted": "1"} for outcome in outcomes]
    with pytest.raises(GateError, match=f"among {responses} responses") if stops else nullcontext():
        check_failures(rows, VerifySettings(max_failure_share=limit), responses)
