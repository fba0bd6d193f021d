"""A worker process as its parent sees it, with the judge that the worker forked."""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO

from tasks.errors import SettingsError
from tasks.settings import VerifySettings
from tasks.verify.domains import Job, domain_of
from tasks.verify.verdicts import Judgement, Outcome
from tasks.verify.worker import ENDED, READY, SPENT, STOP

_START_SECONDS = 120.0
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""Exit statuses that no answer brings about."""
_STOP_SECONDS = 5.0
_JOBS_AHEAD = 64
_BYTES_AHEAD = 4096  # No pipe is smaller, so sending to a worker that hangs never blocks.
_ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """A worker process with the jobs that it was sent, which it works on in order, and the time when it is overdue."""

    def __init__(self, settings: VerifySettings) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._domain = domain_of(settings)
        given = [str(os.getpid()), settings.model_dump_json()]
        folders = [str(_ROOT), self._domain.folder(), os.environ.get("PYTHONPATH")]
        path = os.pathsep.join(filter(None, folders))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.verify.worker", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},  # sympy's order of terms follows hashes
        )
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        self._sent: deque[tuple[Job, bytes]] = deque()
        self._left: list[Job] = []
        self._judge: int | None = None
        self._partial = b""
        self.ended = False
        self.disturbed: Outcome | None = None
        """What to say of the first unanswered job if it goes on like this: the worker ended on it, perhaps not by its
        fault. Someone killed the worker, or the machine gave it no time."""
        self.due = time.monotonic() + _START_SECONDS
        """When it must have said something, on the monotonic clock; infinity while it has nothing to do."""

    @property
    def pid(self) -> int:
        """The process id of the judge, or of the worker itself before there is one."""
        return self._judge or self._process.pid

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when ``collect`` has something to do."""
        return self._stdout.fileno()

    def fill(self, waiting: deque[Job], most: int = _JOBS_AHEAD) -> None:
        """Send jobs from the front of ``waiting`` until the worker has ``most``, or enough."""
        if self._judge is None:
            return
        idle, lines = not self._sent, []
        size = sum(len(sent) for _, sent in self._sent)
        while waiting and len(self._sent) < min(most, _JOBS_AHEAD):
            line = json.dumps(waiting[0]).encode() + b"\n"
            size += len(line)
            if self._sent and size > _BYTES_AHEAD:
                break
            self._sent.append((waiting.popleft(), line))
            lines.append(line)
        if lines:
            self._write(b"".join(lines))
            if idle:
                self.due = time.monotonic() + self._domain.patience

    def collect(self) -> list[tuple[Job, Judgement]]:
        """Return the judgements that have come since the last call. A worker that is overdue or died is ended.

        Raises:
            SettingsError: the worker ended, or was overdue, before it was ready.
        """
        try:
            chunk = os.read(self.fileno(), 65536)
        except BlockingIOError:
            return self._give_up(overdue=True) if time.monotonic() >= self.due else []
        if not chunk:
            return self._give_up(overdue=False)
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        outcomes: list[tuple[Job, Judgement]] = []
        for line in lines:
            if line.startswith(b"["):
                outcome, reward, error = json.loads(line)
                outcomes.append((self._sent.popleft()[0], Judgement(Outcome(outcome), reward, error)))
                continue
            word, *numbers = line.decode().split()[:3] or [""]  # An empty line says that it is alive.
            if word == READY:
                self._write(f"{numbers[0]}\n".encode())
                self._judge = int(numbers[1])
            elif word == ENDED and self._judge is None:
                raise self._not_started(f"ended with {numbers[0]}")
            elif word == ENDED:
                outcomes += self._without_judge(int(numbers[0]))
        if self._judge is None:
            self.due = time.monotonic() + _START_SECONDS
        else:
            self.due = time.monotonic() + self._domain.patience if self._sent else math.inf
        return outcomes

    def take_back(self) -> list[Job]:
        """Return the jobs that a judge was sent and ended without answering; they must be sent again, to any worker."""
        left, self._left = self._left, []
        return left

    def stop(self) -> int:
        """End the worker, wait for that, and return its exit status."""
        self.ended, self._judge = True, None
        self._process.send_signal(STOP)
        try:
            status = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:  # Somebody stopped it.
            self._process.kill()
            status = self._process.wait()
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._errors.close()
        return status

    def _write(self, lines: bytes) -> None:
        with suppress(BrokenPipeError):  # It has died: collect will find out.
            self._stdin.write(lines)
            self._stdin.flush()

    def _without_judge(self, status: int) -> list[tuple[Job, Judgement]]:
        """Blame the job that the judge was on, unless it was killed from outside; the others are sent again."""
        self._judge = None
        self._left = [job for job, _ in self._sent]
        self._sent.clear()
        if not self._left or status == SPENT:
            return []
        if status in _FROM_OUTSIDE:
            self.disturbed = Outcome.CRASHED
            return []
        return [(self._left.pop(0), Judgement(Outcome.TIMEOUT if status == -signal.SIGPROF else Outcome.CRASHED))]

    def _give_up(self, overdue: bool) -> list[tuple[Job, Judgement]]:
        if self._judge is None:
            raise self._not_started(f"said nothing for {_START_SECONDS:.0f} s" if overdue else "")
        status = self.stop()
        if overdue:  # Whatever it ended with, the verifier ended it.
            self._without_judge(SPENT)
            self.disturbed = Outcome.TIMEOUT
            return []
        return self._without_judge(status)

    def _not_started(self, how: str) -> SettingsError:
        last_words = self._last_words()
        how = how or f"ended with {self._process.wait()}"
        self.stop()
        return SettingsError(
            f"{self._domain.start_setting}; a verifier worker {how} while it started ({last_words}). "
            f"{self._domain.start_fix}"
        )

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "nothing on standard error")
