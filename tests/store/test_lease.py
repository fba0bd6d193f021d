"""Work is one process's at a time: on S3 a successor waits for its last save, or takes over from the dead."""

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tasks.process.interruption import save_on_sigterm
from tasks.process.provenance import EXECUTION
from tasks.store import ArtifactRef, Store, StoreRef
from tasks.store import lease as leases
from tasks.store.s3 import Bucket
from tasks.store.work import run_once
from tests.store.writers import EVERY_MAKE, run_at_once, write
from tests.waiting import until
from tools.forked import Program
from tools.s3 import S3

IMPATIENT = leases.SILENCE_SECONDS / 20
"""Seconds without a beat after which a waiter takes over whose holder beats 20 times as often as a real one."""


class Attempt(Program):
    def __init__(self, log: Path, environment: dict[str, str], *arguments: str) -> None:
        super().__init__(["-m", "tests.store.attempt", *arguments], environment, together=True)
        self._log = log

    def logged(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def output(self) -> str:
        return " ".join(self.printed.split())

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.logged() or text in self.output() or self.returncode is not None, 120)
        assert text in self.logged() or text in self.output(), self.output()

    def let_go_on(self) -> None:
        self._log.with_suffix(".go").touch()


Start = Callable[..., Attempt]


def machines(bucket: str, count: int) -> list[StoreRef]:
    """A store as machines see it, each with a local copy and locks of its own."""
    ref = Store.open(bucket).ref
    return [ref.model_copy(update={"id": f"machine-{number}"}) for number in range(count)]


@pytest.fixture
def start(s3: S3, bucket: str, tmp_path: Path) -> Iterator[Start]:
    """Starts an attempt on a machine with a local copy of the store, and waits until it is at the part ``stays_at``."""
    started = list[Attempt]()

    def start(machine: str, stays_at: int = -1, patience: float = 60.0, address: str = bucket) -> Attempt:
        log = tmp_path / f"{uuid.uuid4().hex}.log"
        environment = {**os.environ, **s3.environment(tmp_path / machine), EXECUTION: machine, "COLUMNS": "1000"}
        attempt = Attempt(log, environment, address, str(log), str(stays_at), str(patience))
        started.append(attempt)
        if stays_at >= 0:
            attempt.wait_for(f"begun {stays_at}")
        return attempt

    yield start
    for attempt in started:
        attempt.send(signal.SIGKILL)


@EVERY_MAKE
def test_the_next_attempt_waits_for_the_last_save_and_goes_on_from_it(start: Start, s3: S3, bucket: str) -> None:
    first = start("first", stays_at=1)
    first.send(signal.SIGTERM)
    second = start("second")
    second.wait_for(f"train: {os.uname().nodename}, process {first.pid} does this work in {bucket}/progress/")
    assert second.logged() == []
    first.let_go_on()
    assert first.end().returncode != 0
    assert "stopped by SIGTERM after part 2 of part" in first.output()
    assert second.end().returncode == 0, second.output()
    assert "sign of life;" not in second.output(), "the lease was not released by the error"
    assert second.logged() == ["begun 2", "begun 3"]
    undisturbed = start("third", address=f"{bucket}/undisturbed")
    assert undisturbed.end().returncode == 0
    assert undisturbed.output().split()[-1] == second.output().split()[-1]
    assert not [key for key in s3.keys(bucket) if "progress/" in key]


def test_the_work_of_a_killed_holder_is_taken_over_at_once_on_its_machine(start: Start) -> None:
    first = start("first", stays_at=1)
    first.send(signal.SIGKILL)
    first.end()
    second = start("first")
    assert second.end().returncode == 0, second.output()
    assert "sign of life" not in second.output()
    assert second.logged() == ["begun 1", "begun 2", "begun 3"]


def test_a_holder_that_was_taken_over_saves_nothing_more(start: Start, s3: S3, bucket: str) -> None:
    first = start("first", stays_at=1)
    first.send(signal.SIGSTOP)
    second = start("second", stays_at=1, patience=IMPATIENT)
    assert second.logged() == ["begun 1"], "the parts of a dead holder are continued"
    first.let_go_on()
    first.send(signal.SIGCONT)
    assert first.end().returncode != 0
    assert not [key for key in s3.keys(bucket) if "part-000001" in key]
    assert f"was taken over by {os.uname().nodename}, process {second.pid}, because this process" in first.output()
    third = start("third", patience=IMPATIENT)
    third.wait_for("or for 3 s without a sign of life")
    time.sleep(2 * IMPATIENT)
    assert third.logged() == [], "a holder that gave signs of life was taken over"
    second.send(signal.SIGTERM)
    second.let_go_on()
    assert second.end().returncode != 0
    assert "stopped by SIGTERM after part 2 of part" in second.output()
    assert third.end().returncode == 0, third.output()


def test_a_waiter_that_could_not_read_does_not_count_that_time(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps a waiter from the lease may keep its holder from the heartbeat."""
    monkeypatch.setattr(leases, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.0)
    holder, waiter = (leases.Lease(Store(machine), "progress/key", "train") for machine in machines(bucket, 2))
    holder._acquire()
    newest, reads = waiter._newest, list[int]()

    def read(of: Bucket) -> tuple[int, leases.LeaseRecord | None]:
        reads.append(len(reads))
        if len(reads) == 3:
            holder._write(released=True)
        found = newest(of)
        if len(reads) == 2:
            time.sleep(leases.SILENCE_SECONDS)
        return found

    monkeypatch.setattr(waiter, "_newest", read)
    waiter._acquire()
    assert len(reads) == 3


@EVERY_MAKE
def test_of_many_at_once_one_works_and_the_others_find_it(s3: S3, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.skip_unless_it_can("keep the first of two conditional writes at the same time")
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.1)
    made = list[Path]()

    @save_on_sigterm
    def make(store: Store) -> ArtifactRef:
        made.append(store.root)
        return write(store, f"bits {len(made)}")

    calls = {Store(machine).root: partial(run_once, machine, "train", "1", make) for machine in machines(bucket, 8)}
    (ref,) = set(run_at_once([*calls.values()]))
    assert len(made) == 1
    Store.open(bucket).delete(ref.folder)
    refs = {calls[machine]() for machine in (*(calls.keys() - {*made}), *made)}
    assert (len(refs), len(made)) == (1, 2), "what another machine made anew was not found"


def test_a_process_that_waited_for_work_in_a_folder_notes_it_in_its_next_work(start: Start, tmp_path: Path) -> None:
    address = str(tmp_path / "store")
    first = start("first", stays_at=1, address=address)
    second = start("second", address=address)
    second.wait_for("train: another process does this work on")
    first.let_go_on()
    assert [first.end().returncode, second.end().returncode, second.logged()] == [0, 0, []], second.output()
    store = Store.open(address)
    (shared,) = (one.timings for one in store.manifests("rollouts"))
    made_next = {one.timings.execution: one.timings for one in store.manifests("prompts")}
    assert (shared.execution, shared.process) == ("first", made_next["first"].process)
    assert (shared.idle_since, made_next["first"].idle_since) == (0, shared.finished)
    assert not shared.waited
    assert not made_next["first"].waited
    ((begun, ended),) = made_next["second"].waited
    assert begun < shared.finished < ended <= made_next["second"].started


def test_a_step_whose_lease_is_gone_makes_no_record(bucket: str, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.1)

    @save_on_sigterm
    def make(store: Store) -> ArtifactRef:
        store.delete("progress")
        time.sleep(1)  # A heartbeat must not bring the lease back.
        return write(store)

    with pytest.raises(leases.LostLeaseError, match="ended or removed by another process"):
        run_once(Store.open(bucket).ref, "train", "1", make)
    assert not [key for key in s3.keys(bucket) if "made/" in key]
