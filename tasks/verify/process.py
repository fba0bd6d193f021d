"""A worker process as its parent sees it."""

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
from tasks.verify.domains import domain_of
from tasks.verify.verdicts import Outcome
from tasks.verify.worker import SPENT

Job = tuple[str, str]
"""Gold answer and extracted answer."""

_START_SECONDS = 120.0
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""Exit statuses that no answer brings about."""
_JOBS_AHEAD = 8
_BYTES_AHEAD = 4096  # No pipe is smaller, so sending to a worker that hangs never blocks.
_ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """One worker, the jobs that it was sent, and when it is overdue. It works on them in order."""

    def __init__(self, settings: VerifySettings) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._domain = domain_of(settings)
        given = [str(os.getpid()), settings.model_dump_json()]
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
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
        self._ready = False
        self._partial = b""
        self.ended = False
        self.disturbed: Outcome | None = None
        """What to say of the first unanswered job if it goes on like this: the worker ended on it, perhaps not by its
        fault. Someone killed the worker, or the machine gave it no time."""
        self.due = time.monotonic() + _START_SECONDS
        """When it must have said something, on the monotonic clock; infinity while it has nothing to do."""

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def unanswered(self) -> list[Job]:
        """Sent jobs without an outcome; after the end they must be sent to another worker."""
        return [job for job, _ in self._sent]

    def fileno(self) -> int:
        """Becomes readable when ``collect`` has something to do."""
        return self._stdout.fileno()

    def fill(self, waiting: deque[Job]) -> None:
        """Sends jobs from the front of ``waiting`` until the worker has enough."""
        while self._ready and waiting and len(self._sent) < _JOBS_AHEAD:
            line = json.dumps(waiting[0]).encode() + b"\n"
            if self._sent and sum(len(sent) for _, sent in self._sent) + len(line) > _BYTES_AHEAD:
                return
            self._sent.append((waiting.popleft(), line))
            with suppress(BrokenPipeError):  # It has died: collect will find out.
                self._stdin.write(line)
                self._stdin.flush()
            if len(self._sent) == 1:
                self.due = time.monotonic() + self._domain.patience

    def collect(self) -> list[tuple[Job, Outcome]]:
        """Outcomes that have come since the last call. Ends a worker that is overdue, died or is used up.

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
        outcomes: list[tuple[Job, Outcome]] = []
        for line in lines:
            if not self._ready:
                self._ready = True
                continue
            if not line:  # It is alive.
                continue
            word, _, rest = line.decode().partition(" ")
            outcomes.append((self._sent.popleft()[0], Outcome(word)))
            if rest == SPENT or outcomes[-1][1] is Outcome.CRASHED:
                self.stop()
                return outcomes
        self.due = time.monotonic() + self._domain.patience if self._sent else math.inf
        return outcomes

    def stop(self) -> int:
        """Kills the worker, waits for its end and returns its exit status."""
        self.ended = True
        self._process.kill()
        status = self._process.wait()
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._errors.close()
        return status

    def _give_up(self, overdue: bool) -> list[tuple[Job, Outcome]]:
        """Only the job that the worker was on is to blame."""
        last_words = self._last_words()
        status = self.stop()
        if not self._ready:
            how = f"said nothing for {_START_SECONDS:.0f} s" if overdue else f"ended with {status}"
            raise SettingsError(
                f"{self._domain.start_setting}; a verifier worker {how} while it started ({last_words}). "
                f"{self._domain.start_mend}"
            )
        if not self._sent:
            return []
        if overdue or status in _FROM_OUTSIDE:
            self.disturbed = Outcome.TIMEOUT if overdue else Outcome.CRASHED
            return []
        return [(self._sent.popleft()[0], Outcome.TIMEOUT if status == -signal.SIGPROF else Outcome.CRASHED)]

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "nothing on standard error")
