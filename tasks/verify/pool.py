"""A pool of worker processes that judge responses, and are killed and replaced at a deadline."""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, NamedTuple

from tasks.errors import GateError, SettingsError
from tasks.process.logs import logger
from tasks.process.progress import Bar, bar
from tasks.process.resident import load_resident
from tasks.settings import CodeVerifySettings, FunctionVerifySettings, MathVerifySettings, VerifySettings
from tasks.settings.functions import find_function
from tasks.verify.code.confine import missing
from tasks.verify.code.launcher import LONGEST, PATIENCE
from tasks.verify.verdicts import FAILURES, Extracted, Judgement, Outcome, Verdict, extract, extract_program
from tasks.verify.worker import ALIVE, ENDED, READY, SPENT

_START_SECONDS = 120.0
_TRIES = 3
"""Number of judges that may be ended from outside during a job before the job is blamed."""
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""Exit statuses that an answer cannot cause."""
_LEAST_AHEAD, _MOST_AHEAD = 2, 64
"""Fewest and most jobs that a worker is sent ahead. Between them it is half of its share, so that all end together."""
_BYTES_AHEAD = 4096  # No pipe is smaller, so sending to a worker that hangs never blocks.
_BREATH_SECONDS = 0.005
"""Pause before outcomes are collected, since each look at the workers costs as much as judging a number."""
_ROOT = Path(__file__).parents[2]

Asked = tuple[str, str | None] | tuple[str, str | None, str]
"""Gold answer, response, and optionally the prompt, for a function."""
Job = tuple[str, ...]
"""Input of a judge: gold answer and extracted answer, or the arguments of a function."""


class _Kind(NamedTuple):
    """Properties of a kind of verifier (``verify.kind``) for the parent of the workers."""

    find: Callable[[str], Extracted] | None
    """Function that extracts the answer of a response; None if a function judges the whole response."""
    longest: int
    """Most characters of an answer that is judged."""
    patience: float
    """Seconds of wall-clock time after which a silent worker is killed."""
    setting: str
    """The setting to name if workers do not start."""
    start_fix: str
    failures_fix: str
    """The fix if too many responses cannot be judged, up to the name of the setting that allows more."""


def _kind_of(settings: VerifySettings) -> _Kind:
    memory_mib = settings.memory_mib
    if isinstance(settings, CodeVerifySettings):
        return _Kind(
            extract_program,
            settings.code.max_program_characters,
            # A worker writes before each run of a program, and ends that run before this time.
            LONGEST * settings.code.seconds + 30,
            "verify.kind: code",
            "docs/verifying.md tells what the verifier of programs needs.",
            "A program that takes too long is wrong; it times out where the machine gave it no time, and crashes where "
            "the machine killed it. Lower verify.workers or give the verifier more CPU against timeouts, more memory "
            f"(verify.workers times verify.code.memory_mib, {settings.code.memory_mib}, at worst) against crashes, or "
            "raise",
        )
    if isinstance(settings, FunctionVerifySettings):
        return _Kind(
            None,
            0,
            PATIENCE * settings.deadline_seconds,
            f"verify.function: {settings.function}",
            f"Fix the function or its module, or raise verify.memory_mib ({memory_mib}) if it needs more.",
            f"The log has the first traceback of {settings.function}. Fix the function, raise verify.deadline_seconds "
            f"({settings.deadline_seconds:g}) against timeouts, verify.memory_mib ({memory_mib}) where it needs more, "
            "or",
        )
    if not isinstance(settings, MathVerifySettings):
        raise TypeError(f"no verifier for {type(settings).__name__}")
    return _Kind(
        extract,
        settings.max_answer_characters,
        PATIENCE * settings.deadline_seconds,
        f"verify.memory_mib: {memory_mib}",
        f"Raise verify.memory_mib (its default is {VerifySettings().memory_mib}). If that does not help, see whether "
        "`python -c 'import math_verify'` works.",
        f"Raise verify.deadline_seconds ({settings.deadline_seconds:g}) against timeouts, verify.memory_mib "
        f"({memory_mib}) against crashes, or",
    )


def _check(settings: VerifySettings) -> str | None:
    """Check that this machine can judge by these settings; return the folder of a user's unchanged module."""
    if isinstance(settings, CodeVerifySettings) and (lacks := missing(settings.code.require_landlock)):
        raise SettingsError(
            f"verify.kind: code; programs cannot be confined on this machine ({sys.platform}): {lacks}."
        )
    if not isinstance(settings, FunctionVerifySettings):
        return None
    try:
        found = find_function(settings.function)
    except ValueError as error:
        raise SettingsError(f"verify.function: got {settings.function!r}; {error}.") from None
    if found.digest != settings.source_digest:
        raise SettingsError(
            f"verify.function: {settings.function}; its source in {found.root} is not the one that the run began with "
            f"(digest {found.digest[:12]}, not {settings.source_digest[:12]}). Start the run again to judge everything "
            "by the source that is here; on a cluster, all images of a run must hold the same file."
        )
    return str(found.root)


class Verifier:
    """A pool of ``workers`` worker processes, as a context manager. They start at the first answer to judge.

    A hostile answer ends its worker at most. The answers after it are sent again, and so is an answer whose worker was
    killed from outside, so that an outcome depends on the answer alone.

    Raises:
        SettingsError: this machine cannot judge by ``verify.kind``.
    """

    def __init__(self, settings: VerifySettings) -> None:
        self._settings, self._kind = settings, _kind_of(settings)
        _check(settings)
        self._workers: list[_Worker] = []
        self._waiting: deque[Job] = deque()
        self._ends: Counter[Job] = Counter()
        self._shown_error = False

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers' judges."""
        return [worker.pid for worker in self._workers]

    def close(self) -> None:
        """End all workers."""
        while self._workers:
            self._workers.pop().close()

    def verify(self, pairs: Iterable[Asked], title: str = "verify") -> list[Verdict]:
        """Judge responses [R]; return verdicts [R]. Equal pairs of gold and extracted answer are judged once.

        A response of None is ``missing``; a response without an answer is ``no_answer`` whatever its gold answer. Only
        the answers of responses are kept in memory, unless a function judges.

        Raises:
            SettingsError: a worker cannot start.
        """
        extracted_R: list[Extracted] = []
        jobs_R: list[Job | Outcome] = []
        for gold, response, *prompt in pairs:
            found, job = self._read(gold, response, *prompt)
            extracted_R.append(found)
            jobs_R.append(job)
        times = Counter(job for job in jobs_R if not isinstance(job, Outcome))
        with bar(title, len(jobs_R)) as progress:
            progress.advance(len(jobs_R) - times.total())
            try:
                judgements = self._judge(times, progress)
            except BaseException:
                self.close()  # Busy workers would answer the next call with outcomes of this one.
                raise
        return [
            Verdict.of(Judgement(job) if isinstance(job, Outcome) else judgements[job], found)
            for job, found in zip(jobs_R, extracted_R, strict=True)
        ]

    def _read(self, gold: str, response: str | None, prompt: str = "") -> tuple[Extracted, Job | Outcome]:
        """Return the extracted answer, and a job for a judge, or an outcome that needs no judge."""
        if response is None:
            return Extracted(), Outcome.MISSING
        if self._kind.find is None:
            return Extracted(), (prompt, response, gold)
        found = self._kind.find(response)
        if found.answer is None or len(found.answer) > self._kind.longest:
            return found, Outcome.NO_ANSWER
        return found, (gold, found.answer)

    def _judge(self, times: Counter[Job], progress: Bar) -> dict[Job, Judgement]:
        judgements: dict[Job, Judgement] = {}
        failures = 0
        self._waiting.clear()
        self._waiting.extend(times)
        self._ends.clear()
        self._collect()  # Removes workers that died since the last call.
        while len(judgements) < len(times):
            while len(self._workers) < min(self._settings.workers, len(times) - len(judgements)):
                self._workers.append(_Worker(self._settings, self._waiting, self._ends))
            share = len(self._waiting) // (2 * len(self._workers))
            for worker in self._workers:
                worker.fill(min(max(_LEAST_AHEAD, share), _MOST_AHEAD))
            due = min(worker.due for worker in self._workers)
            wait([worker.fileno() for worker in self._workers], timeout=max(0.0, due - time.monotonic()))
            time.sleep(_BREATH_SECONDS)
            for job, judgement in self._collect():
                judgements[job] = judgement
                failures += times[job] * (judgement.outcome in FAILURES)
                if judgement.error and not self._shown_error:
                    self._shown_error = True
                    logger().warning("verify: the first error of the function:\n%s", judgement.error)
                progress.advance(times[job], note=f"{failures} not judged" if failures else "")
        return judgements

    def _collect(self) -> list[tuple[Job, Judgement]]:
        """Return new judgements of all workers, and remove workers that have ended."""
        found = [one for worker in self._workers for one in worker.collect()]
        self._workers = [worker for worker in self._workers if not worker.closed]
        return found


class _Worker:
    """A worker process and the jobs that were sent to it, which its forked judge works on in order.

    Args:
        settings: settings of the verifier.
        waiting: jobs to send, in order. Jobs that an ended judge has not answered return to the front.
        ends: number of judges that ended during each job.
    """

    def __init__(self, settings: VerifySettings, waiting: deque[Job], ends: Counter[Job]) -> None:
        self._kind, self._waiting, self._ends = _kind_of(settings), waiting, ends
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        path = os.pathsep.join(filter(None, [str(_ROOT), _check(settings), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.verify.worker", str(os.getpid()), settings.model_dump_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            process_group=0,  # One signal ends the worker with its children.
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},  # sympy's order of terms follows hashes
        )
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self.fileno(), False)
        self._sent: deque[tuple[Job, bytes]] = deque()
        self._judge: int | None = None
        self._partial = b""
        self.closed = False
        self.due = time.monotonic() + _START_SECONDS
        """Monotonic time by which the worker must write something; infinity while it has no job."""

    @property
    def pid(self) -> int:
        """Process id of the judge, or of the worker if it has none yet."""
        return self._judge or self._process.pid

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when ``collect`` has work."""
        return self._stdout.fileno()

    def fill(self, most: int) -> None:
        """Send jobs until the worker has ``most`` of them, or enough bytes."""
        if self._judge is None:
            return
        idle, lines = not self._sent, []
        size = sum(len(sent) for _, sent in self._sent)
        while self._waiting and len(self._sent) < most:
            line = json.dumps(self._waiting[0]).encode() + b"\n"
            size += len(line)
            if self._sent and size > _BYTES_AHEAD:
                break
            self._sent.append((self._waiting.popleft(), line))
            lines.append(line)
        if lines:
            self._write(b"".join(lines))
            if idle:
                self.due = time.monotonic() + self._kind.patience

    def collect(self) -> list[tuple[Job, Judgement]]:
        """Return the judgements since the last call, and close a worker that is overdue or dead.

        Raises:
            SettingsError: the worker ended, or was overdue, before it had a judge.
        """
        try:
            chunk = os.read(self.fileno(), 65536)
        except BlockingIOError:
            if time.monotonic() < self.due:
                return []
            self._check_started(f"said nothing for {_START_SECONDS:.0f} s")
            self.close()
            return self._take_back(Outcome.TIMEOUT, _TRIES)  # The machine may have given it no time.
        if not chunk:
            self._check_started("")
            return self._ended(self.close())
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        found: list[tuple[Job, Judgement]] = []
        for line in lines:
            word, *rest = json.loads(line)
            if word == READY:
                number, self._judge = rest
                self._write(f"{number}\n".encode())
            elif word == ENDED:
                self._check_started(f"ended with {rest[0]}")
                found += self._ended(rest[0])
            elif word != ALIVE:
                found.append((self._sent.popleft()[0], Judgement(Outcome(word), *rest)))
        seconds = _START_SECONDS if self._judge is None else self._kind.patience if self._sent else math.inf
        self.due = time.monotonic() + seconds
        return found

    def close(self) -> int:
        """Kill the worker with its children, wait for it, and return its exit status."""
        if not self.closed:
            self.closed = True
            with suppress(ProcessLookupError, PermissionError):  # Nothing of it is left; macOS raises the second.
                os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._errors.close()
        return status

    def _write(self, lines: bytes) -> None:
        with suppress(BrokenPipeError):  # The worker has died; ``collect`` finds out.
            self._stdin.write(lines)
            self._stdin.flush()

    def _ended(self, status: int) -> list[tuple[Job, Judgement]]:
        if status == SPENT:
            return self._take_back()
        blame = Outcome.TIMEOUT if status == -signal.SIGPROF else Outcome.CRASHED
        return self._take_back(blame, _TRIES if status in _FROM_OUTSIDE else 1)

    def _take_back(self, blame: Outcome | None = None, tries: int = 1) -> list[tuple[Job, Judgement]]:
        """Return unanswered jobs to the queue, but blame the first one if judges ended during it ``tries`` times."""
        self._judge = None
        left = [job for job, _ in self._sent]
        self._sent.clear()
        blamed: list[tuple[Job, Judgement]] = []
        if left and blame:
            self._ends[left[0]] += 1
            if self._ends[left[0]] >= tries:
                blamed = [(left.pop(0), Judgement(blame))]
        self._waiting.extendleft(reversed(left))
        return blamed

    def _check_started(self, how: str) -> None:
        if self._judge is not None:
            return
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        last_words = next((line for line in reversed(lines) if line), "nothing on standard error")
        how = how or f"ended with {self._process.wait()}"
        self.close()
        raise SettingsError(
            f"{self._kind.setting}; a verifier worker {how} while it started ({last_words}). {self._kind.start_fix}"
        )


def shared_verifier(settings: VerifySettings) -> Verifier:
    """Return a verifier whose workers stay for the next step in this process, since they take a second to start."""
    return load_resident("verifier", settings.model_dump_json(), lambda: Verifier(settings))


def check_failures(judged: Iterable[tuple[Verdict, str]], settings: VerifySettings, responses: int) -> None:
    """Raise GateError if more than ``max_failure_share`` of the responses could not be judged.

    Args:
        judged: verdicts with their prompt_ids; successes may be left out.
        settings: settings of the verifier.
        responses: number of all responses.
    """
    failed = [(verdict, name) for verdict, name in judged if verdict.outcome in FAILURES]
    if len(failed) <= settings.max_failure_share * responses:
        return
    counts = Counter(verdict.outcome for verdict, _ in failed)
    example, name = failed[0]
    shown = f": {shorten(example.extracted, 80)!r}" if example.extracted else ""
    raise GateError(
        f"verify: {counts[Outcome.TIMEOUT]} timeouts and {counts[Outcome.CRASHED]} crashes among {responses} "
        f"responses, a share of {len(failed) / responses:.4g}; verify.max_failure_share is "
        f"{settings.max_failure_share:g}. For example prompt_id {name!r} ({example.outcome}){shown}. "
        f"{_kind_of(settings).failures_fix} verify.max_failure_share if so many may be left out."
    )


def shorten(text: str, longest: int) -> str:
    """Return a text for messages, truncated to ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
