"""Work on S3 is one process's at a time: a successor waits for its last save, or takes over from the dead."""

import os
import signal
import time
import uuid
from pathlib import Path

import pytest

from tasks.errors import ArtifactError
from tasks.interruption import heeding
from tasks.store import ArtifactRef, Store
from tasks.store import lease as leases
from tasks.store.work import once
from tools.forked import Program
from tools.s3 import S3


class Attempt:
    """A process on a machine of its own, which is that of its name: with a local copy of its own.

    It stays at work on the part ``held_at`` until it is told to go on.
    """

    def __init__(self, s3: S3, address: str, folder: Path, machine: str, held_at: int = -1) -> None:
        self._log = folder / f"{uuid.uuid4().hex}.log"
        environment = {**os.environ, **s3.environment(folder / machine), "COLUMNS": "1000"}
        command = ["-m", "tests.store.attempt", address, str(self._log), str(held_at)]
        self._program, self._printed = Program(command, environment, together=True), ""
        self.pid = self._program.pid

    def did(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def said(self) -> str:
        return " ".join((self._printed or self._program.printed).split())

    def wait_for(self, text: str) -> None:
        for _ in range(2400):
            if text in self.did() or text in self.said():
                return
            assert self._program.returncode is None, self.said()
            time.sleep(0.05)
        raise TimeoutError(f"{text!r} never came: {self.said()}")

    def send(self, what: signal.Signals) -> None:
        self._program.send(what)

    def go_on(self) -> None:
        self._log.with_suffix(".go").touch()

    def ended(self) -> int:
        done = self._program.end(120)
        self._printed = done.stdout
        return done.returncode


def test_the_next_attempt_waits_for_the_last_save_and_goes_on_from_it(s3: S3, bucket: str, tmp_path: Path) -> None:
    first = Attempt(s3, bucket, tmp_path, "first", held_at=1)
    first.wait_for("begun 1")
    first.send(signal.SIGTERM)
    second = Attempt(s3, bucket, tmp_path, "second")
    second.wait_for(f"train: {os.uname().nodename}, process {first.pid} does this work in {bucket}/progress/")
    assert second.did() == []
    first.go_on()
    assert first.ended() != 0
    assert "stopped by SIGTERM after part 1" in first.said()
    assert second.ended() == 0, second.said()
    assert second.did() == ["has 0", "has 1", "begun 2", "has 2", "begun 3", "has 3"]
    undisturbed = Attempt(s3, f"{bucket}/undisturbed", tmp_path, "third")
    assert undisturbed.ended() == 0
    assert undisturbed.said().split()[-1] == second.said().split()[-1]
    assert not [key for key in s3.keys(bucket.removeprefix("s3://")) if "progress/" in key]


def test_the_work_of_a_killed_holder_is_taken_over(s3: S3, bucket: str, tmp_path: Path) -> None:
    first = Attempt(s3, bucket, tmp_path, "first", held_at=2)
    first.wait_for("begun 2")
    first.send(signal.SIGKILL)
    first.ended()
    second = Attempt(s3, bucket, tmp_path, "second")
    second.wait_for("or for 8 s without a sign of life")
    waited = time.monotonic()
    assert second.ended() == 0, second.said()
    assert time.monotonic() - waited > 6
    assert "gave no sign of life; its work is taken over" in second.said()
    assert second.did()[:3] == ["has 0", "has 1", "begun 2"]


def test_on_the_machine_of_a_killed_holder_nobody_waits(s3: S3, bucket: str, tmp_path: Path) -> None:
    first = Attempt(s3, bucket, tmp_path, "same", held_at=1)
    first.wait_for("begun 1")
    first.send(signal.SIGKILL)
    first.ended()
    second = Attempt(s3, bucket, tmp_path, "same")
    assert second.ended() == 0, second.said()
    assert "sign of life" not in second.said()
    assert second.did()[:2] == ["has 0", "begun 1"]


def test_a_holder_that_was_taken_over_saves_nothing_more(s3: S3, bucket: str, tmp_path: Path) -> None:
    first = Attempt(s3, bucket, tmp_path, "first", held_at=1)
    first.wait_for("begun 1")
    first.send(signal.SIGSTOP)
    second = Attempt(s3, bucket, tmp_path, "second", held_at=1)
    second.wait_for("begun 1")
    first.go_on()
    first.send(signal.SIGCONT)
    assert first.ended() != 0
    assert not [key for key in s3.keys(bucket.removeprefix("s3://")) if "part-000001" in key]
    assert f"was taken over by {os.uname().nodename}, process {second.pid}, because this process" in first.said()
    second.send(signal.SIGTERM)
    second.go_on()
    assert second.ended() != 0
    assert "stopped by SIGTERM after part 1" in second.said()


def test_of_many_that_begin_at_once_one_works_and_the_others_find_it(s3: S3, bucket: str, tmp_path: Path) -> None:
    s3.has_to("keep the first of two conditional writes at the same time")
    Store.open(bucket)
    several = [Attempt(s3, bucket, tmp_path, str(number)) for number in range(3)]
    assert {attempt.ended() for attempt in several} == {0}, [attempt.said() for attempt in several]
    assert len({attempt.said().split()[-1] for attempt in several}) == 1
    begun = [line for attempt in several for line in attempt.did() if line.startswith("begun")]
    assert sorted(begun) == [f"begun {number}" for number in range(4)]


def test_a_step_that_fails_gives_its_work_back(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @heeding
    def fails(store: Store, text: str) -> ArtifactRef:
        store.progress.put("part", 0, lambda folder: None)
        raise ArtifactError(text)

    ref = Store.open(bucket).ref
    for machine in ("one", "other"):
        monkeypatch.setenv("MU_GRPO_CACHE", str(tmp_path / machine))
        began = time.monotonic()
        with pytest.raises(ArtifactError, match="it failed"):
            once(ref, "train", "1", fails, "it failed")
        assert time.monotonic() - began < leases.TAKEN_OVER_AFTER / 2


def test_damaged_parts_can_be_cleared_while_the_work_is_held(bucket: str) -> None:
    @heeding
    def anew(store: Store) -> ArtifactRef:
        store.progress.put("part", 0, lambda folder: None)
        store.progress.clear()
        store.progress.put("part", 1, lambda folder: None)
        assert store.progress.newest("part") is not None
        with store.write("rollouts", settings={}, parents={}, seed=0) as draft:
            pass
        return draft.ref

    assert Store.open(bucket).holds(once(Store.open(bucket).ref, "train", "1", anew))
