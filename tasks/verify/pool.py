"""Pool of worker processes that judge responses. A worker is killed at a deadline and replaced."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any, NamedTuple

from tasks.errors import GateError, SettingsError
from tasks.formats import pluralize, shorten
from tasks.process.logs import Bar, bar, logger
from tasks.process.resident import load_resident
from tasks.settings import CodeVerifySettings, FunctionVerifySettings, MathVerifySettings, VerifySettings
from tasks.settings.functions import find_function
from tasks.verify.code.confine import missing_support
from tasks.verify.code.launcher import LONGEST, PATIENCE
from tasks.verify.verdicts import FAILURES, Extracted, Judgement, Outcome, Verdict, extract, extract_program
from tasks.verify.worker import ALIVE, ENDED, READY, SPENT

_START_SECONDS = 120.0
_TRIES = 3
"""Judges that may be killed from outside during a job before the job fails."""
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""Exit statuses that no answer can cause."""
_LEAST_AHEAD, _MOST_AHEAD = 2, 64
"""Fewest and most jobs that a worker holds; between the two, half of its share, so that all workers end together."""
_BYTES_AHEAD = 4096  # The buffer of a pipe is at least this long, so that sending to a worker that hangs never blocks.
_COLLECT_SECONDS = 0.005
"""Pause before judgements are collected: reading from the workers takes as long as judging a number."""
_LONGEST_WAIT = 3600.0
"""Longest wait for workers at once, in seconds; the system refuses one of weeks."""
_ROOT = Path(__file__).parents[2]
_SECRET = re.compile(r"^((FLYTE_)?AWS_|[^=]*(KEY|TOKEN|SECRET|PASS|CREDENTIAL))|://[^/\s]*@", re.IGNORECASE)
"""Variables, as NAME=value, that a judge of answers or programs, which reads what a policy wrote, does not get."""

VerifierInput = tuple[str, str | None] | tuple[str, str | None, str]
"""Gold answer, response, and, if a user's function judges, the prompt."""
Job = tuple[str, ...]
"""The texts that are sent to a judge: gold answer and extracted answer, or the arguments of a user's function."""


class _Kind(NamedTuple):
    """Limits and messages of the pool for a kind of verifier (``verify.kind``)."""

    find: Callable[[str], Extracted] | None
    """Function that finds the answer in a response; None if a user's function judges the whole response."""
    longest: int
    """Most characters of an answer that is judged."""
    patience: float
    """Wall-clock seconds without a message after which a worker is killed."""
    setting: str
    """Setting that the error names if workers do not start."""
    start_fix: str
    """Fix if workers do not start."""
    failures_fix: str
    """Fix if too many responses cannot be judged; the setting that allows more of them follows in the message."""


def _kind_for(settings: VerifySettings) -> _Kind:
    memory_mib = settings.memory_mib
    if isinstance(settings, CodeVerifySettings):
        return _Kind(
            find=extract_program,
            longest=settings.code.max_program_characters,
            # A worker sends a message before each run of a program. It must end a run before the pool kills the worker.
            patience=LONGEST * settings.code.seconds + 30,
            setting="verify.kind: code",
            start_fix="docs/verifying.md says what the verifier of programs needs.",
            failures_fix="A program that takes too long is wrong; a timeout means that the machine gave it no CPU "
            "time, and a crash that the machine killed it. To fix it: against timeouts, lower verify.workers or give "
            "the verifier more CPU; against crashes, give it more memory (at most verify.workers times "
            f"verify.code.memory_mib, {settings.code.memory_mib}); or raise",
        )
    if isinstance(settings, FunctionVerifySettings):
        return _Kind(
            find=None,
            longest=0,
            patience=PATIENCE * settings.deadline_seconds,
            setting=f"verify.function: {settings.function}",
            start_fix=f"Fix the function or its module, or raise verify.memory_mib ({memory_mib}) if it needs more.",
            failures_fix=f"The log has the first error of {settings.function}. To fix it: correct the function, "
            f"raise verify.deadline_seconds ({settings.deadline_seconds:g}) against timeouts, raise verify.memory_mib "
            f"({memory_mib}) if it needs more, or raise",
        )
    assert isinstance(settings, MathVerifySettings)
    return _Kind(
        find=extract,
        longest=settings.max_answer_characters,
        patience=PATIENCE * settings.deadline_seconds,
        setting=f"verify.memory_mib: {memory_mib}",
        start_fix=f"Raise verify.memory_mib (its default is {VerifySettings().memory_mib}). If that does not help, "
        "check that `python -c 'import math_verify'` works.",
        failures_fix=f"To fix it: raise verify.deadline_seconds ({settings.deadline_seconds:g}) against timeouts, "
        f"raise verify.memory_mib ({memory_mib}) against crashes, or raise",
    )


def _check(settings: VerifySettings) -> str | None:
    """Check that this machine can run the verifier; return the folder of a user's module, or None without a function.

    Raises:
        SettingsError: programs cannot be confined here, or the function is missing or its source has changed.
    """
    if isinstance(settings, CodeVerifySettings) and (reason := missing_support(settings.code.require_landlock)):
        raise SettingsError(
            f"verify.kind: code; programs cannot be confined on this machine ({sys.platform}): {reason}."
        )
    if not isinstance(settings, FunctionVerifySettings):
        return None
    try:
        function = find_function(settings.function)
    except ValueError as error:
        raise SettingsError(f"verify.function: got {settings.function!r}; {error}.") from None
    if function.digest != settings.source_digest:
        raise SettingsError(
            f"verify.function: {settings.function}; its source in {function.root} changed since the run began (digest "
            f"{function.digest[:12]}, not {settings.source_digest[:12]}). To fix it: start the run again, which judges "
            "all responses by the new source; on a cluster, all images of a run must hold the same file."
        )
    return str(function.root)


class Verifier(AbstractContextManager["Verifier"]):
    """A pool of ``verify.workers`` worker processes, as a context manager.

    They start with ``start``, or as many as are needed with the first jobs.

    The outcome of an answer does not depend on other answers: if a hostile answer ends its judge, the answers sent
    after it go to another judge. An answer whose judge was killed from outside is judged again too.

    Raises:
        SettingsError: this machine cannot run the verifier of ``verify.kind``.
    """

    def __init__(self, settings: VerifySettings) -> None:
        self._settings, self._kind = settings, _kind_for(settings)
        _check(settings)
        self._workers: list[_Worker] = []
        self._waiting: deque[Job] = deque()
        self._ends: Counter[Job] = Counter()
        self._shown_error = self._shown_unanswered = False

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        while self._workers:
            self._workers.pop().close()

    def start(self) -> None:
        """Start the workers that do not run yet, and wait until all are ready.

        Raises:
            SettingsError: a worker cannot start.
        """
        try:
            self._collect()  # Remove workers that died since the last call.
            while len(self._workers) < self._settings.workers or not all(one.judge_pid for one in self._workers):
                self._add_workers(self._settings.workers)
                self._wait()
                self._collect()
        except BaseException:
            self.close()
            raise

    def verify(self, inputs: Iterable[VerifierInput], title: str = "verify") -> list[Verdict]:
        """Judge responses: return the verdicts [R] of R inputs.

        A response of None is ``missing``; a response without an answer is ``no_answer``, whatever its gold answer.
        Equal jobs are judged once. Only the answers of responses stay in memory, unless a user's function judges.

        Raises:
            SettingsError: a worker cannot start.
        """
        found_R = [self._job(gold, response, *prompt) for gold, response, *prompt in inputs]
        times = Counter(job for _, job in found_R if not isinstance(job, Outcome))
        with bar(title, len(found_R)) as progress:
            progress.advance(len(found_R) - times.total())
            try:
                judgements = self._judge(times, progress)
            except BaseException:
                self.close()  # Busy workers would send the judgements of this call to the next one.
                raise
        verdicts_R = [
            Verdict.of(Judgement(job) if isinstance(job, Outcome) else judgements[job], extracted)
            for extracted, job in found_R
        ]
        self._warn_of_unanswered(verdicts_R)
        return verdicts_R

    def _warn_of_unanswered(self, verdicts_R: Sequence[Verdict]) -> None:
        """Warn once if responses without an answer, whose reward is 0, earn more than others by a user's function."""
        unanswered = sum(verdict.outcome is Outcome.NO_ANSWER for verdict in verdicts_R)
        lowest = min((verdict.reward for verdict in verdicts_R if verdict.reward is not None), default=0.0)
        if unanswered and lowest < 0 and not self._shown_unanswered:
            self._shown_unanswered = True
            logger().warning(
                "verify: the function returned None, which is the reward 0, for %s, and %g for another: no answer "
                "earns more than a bad one. To fix it: return a number in place of None",
                pluralize(unanswered, "response"),
                lowest,
            )

    def _job(self, gold: str, response: str | None, prompt: str = "") -> tuple[Extracted, Job | Outcome]:
        """Return the extracted answer, and the job for a judge, or the outcome if no judge is needed."""
        if response is None:
            return Extracted(), Outcome.MISSING
        if self._kind.find is None:
            return Extracted(shows_working=None), (prompt, response, gold)
        extracted = self._kind.find(response)
        if extracted.answer is None or len(extracted.answer) > self._kind.longest:
            return extracted, Outcome.NO_ANSWER
        # Responses to one problem share its gold answer, which for programs can take megabytes.
        return extracted, (sys.intern(gold), extracted.answer)

    def _judge(self, times: Counter[Job], progress: Bar) -> dict[Job, Judgement]:
        judgements: dict[Job, Judgement] = {}
        failures = 0
        self._waiting.clear()
        self._waiting.extend(times)
        self._ends.clear()
        self._collect()  # Remove workers that died since the last call.
        while len(judgements) < len(times):
            self._add_workers(min(self._settings.workers, len(times) - len(judgements)))
            share = len(self._waiting) // (2 * len(self._workers))
            for worker in self._workers:
                worker.fill(min(max(_LEAST_AHEAD, share), _MOST_AHEAD))
            self._wait()
            for job, judgement in self._collect():
                judgements[job] = judgement
                failures += times[job] * (judgement.outcome in FAILURES)
                if judgement.error and self._kind.find is None and not self._shown_error:
                    self._shown_error = True
                    logger().warning("verify: the first error of the function:\n%s", judgement.error)
                progress.advance(times[job], note=f"{failures} not judged" if failures else "")
        return judgements

    def _add_workers(self, count: int) -> None:
        """Start workers until there are ``count`` of them."""
        while len(self._workers) < count:
            self._workers.append(_Worker(self._settings, self._waiting, self._ends))

    def _wait(self) -> None:
        """Wait until a worker has sent something or has passed its deadline."""
        deadline = min(worker.deadline for worker in self._workers)
        seconds = min(max(0.0, deadline - time.monotonic()), _LONGEST_WAIT)
        wait([worker.fileno() for worker in self._workers], timeout=seconds)
        time.sleep(_COLLECT_SECONDS)

    def _collect(self) -> list[tuple[Job, Judgement]]:
        """Return new judgements of all workers, and remove workers that ended."""
        judgements = [judgement for worker in self._workers for judgement in worker.collect()]
        self._workers = [worker for worker in self._workers if not worker.closed]
        return judgements


class _Worker:
    """A worker process, and the jobs that were sent to it. Its judge does them in order.

    Jobs that a judge did not do before it ended return to the front of the queue ``waiting``; ``ends`` counts, by job,
    the judges that ended during the job.
    """

    def __init__(self, settings: VerifySettings, waiting: deque[Job], ends: Counter[Job]) -> None:
        self._kind, self._waiting, self._ends = _kind_for(settings), waiting, ends
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        path = os.pathsep.join(filter(None, [str(_ROOT), _check(settings), os.environ.get("PYTHONPATH")]))
        own = {"PYTHONPATH": path, "PYTHONHASHSEED": "0"}  # sympy's order of terms follows hashes
        given = {
            name: value
            for name, value in os.environ.items()
            if self._kind.find is None or not _SECRET.search(f"{name}={value}")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tasks.verify.worker", str(os.getpid()), settings.model_dump_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            process_group=0,  # One signal ends it with all that it forked.
            env=given | own,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self.fileno(), False)
        self._sent: deque[tuple[Job, bytes]] = deque()
        self.judge_pid: int | None = None
        """Process id of its judge; None until it has one that takes jobs."""
        self._spent = False
        self._partial = b""
        self.closed = False
        self.deadline = time.monotonic() + _START_SECONDS
        """Time of the monotonic clock by which the next message must come; infinity while the worker has no jobs."""

    def fileno(self) -> int:
        """Return the file descriptor that is readable when a message has come."""
        return self._stdout.fileno()

    def fill(self, most: int) -> None:
        """Send jobs until the worker has ``most`` of them, or jobs of ``_BYTES_AHEAD`` bytes."""
        if self.judge_pid is None:
            return
        idle, lines = not self._sent, []
        size = sum(len(sent) for _, sent in self._sent)
        while self._waiting and len(self._sent) < most and size <= _BYTES_AHEAD:
            line = json.dumps(self._waiting[0]).encode() + b"\n"
            size += len(line)
            if self._sent and size > _BYTES_AHEAD:
                break
            self._sent.append((self._waiting.popleft(), line))
            lines.append(line)
        if lines:
            self._write(b"".join(lines))
            if idle:
                self.deadline = time.monotonic() + self._kind.patience

    def collect(self) -> list[tuple[Job, Judgement]]:
        """Return the judgements that came since the last call. Close the worker if it died or passed its deadline.

        Raises:
            SettingsError: the worker died or passed its deadline before it had a judge.
        """
        try:
            chunk = os.read(self.fileno(), 65536)
        except BlockingIOError:
            if time.monotonic() < self.deadline:
                return []
            self._check_started(f"sent nothing for {_START_SECONDS:.0f} s")
            self.close()
            return self._end_judge(None)
        if not chunk:
            self._check_started("")
            return self._end_judge(self.close())
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        judgements: list[tuple[Job, Judgement]] = []
        for line in lines:
            word, *rest = json.loads(line)
            if word == READY:
                (self.judge_pid,), self._spent = rest, False
                self._write(f"{self.judge_pid}\n".encode())
            elif word == SPENT:
                self._spent = True
            elif word == ENDED:
                self._check_started(f"ended with {rest[0]}")
                judgements += self._end_judge(rest[0])
            elif word != ALIVE:
                judgements.append((self._sent.popleft()[0], Judgement(Outcome(word), *rest)))
        seconds = _START_SECONDS if self.judge_pid is None else self._kind.patience if self._sent else math.inf
        self.deadline = time.monotonic() + seconds
        return judgements

    def close(self) -> int:
        """Kill the worker and the processes that it forked, wait for its end, and return its exit status."""
        if not self.closed:
            self.closed = True
            with suppress(ProcessLookupError, PermissionError):  # The group has ended; macOS raises PermissionError.
                os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._errors.close()
        return status

    def _write(self, lines: bytes) -> None:
        with suppress(BrokenPipeError):  # The worker has died; collect handles that.
            self._stdin.write(lines)
            self._stdin.flush()

    def _end_judge(self, status: int | None) -> list[tuple[Job, Judgement]]:
        """Return the jobs of a judge that ended to the queue; without a status, the worker passed its deadline.

        The first of these jobs, during which the judge ended, has failed, unless the judge was only to be replaced.
        After an end that no answer can cause, such as a kill from outside, the job is tried again.
        """
        self.judge_pid = None
        jobs = [job for job, _ in self._sent]
        self._sent.clear()
        failed: list[tuple[Job, Judgement]] = []
        if jobs and not self._spent:
            self._ends[jobs[0]] += 1
            if status not in (None, *_FROM_OUTSIDE) or self._ends[jobs[0]] >= _TRIES:
                timeout = status in (None, -signal.SIGPROF)
                error = None if timeout else f"the process that called it ended with status {status}"
                failed = [(jobs.pop(0), Judgement(Outcome.TIMEOUT if timeout else Outcome.CRASHED, None, error))]
        self._waiting.extendleft(reversed(jobs))
        return failed

    def _check_started(self, failure: str) -> None:
        """Raise SettingsError if the worker failed before it had a judge; an empty ``failure`` means that it ended."""
        if self.judge_pid is not None:
            return
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        last_line = next((line for line in reversed(lines) if line), "nothing on standard error")
        failure = failure or f"ended with {self._process.wait()}"
        self.close()
        raise SettingsError(
            f"{self._kind.setting}; a verifier worker {failure} while it started ({last_line}). {self._kind.start_fix}"
        )


def shared_verifier(settings: VerifySettings) -> Verifier:
    """Return a verifier whose workers stay for the next step of this process, because they take a second to start."""
    return load_resident("verifier", settings.model_dump_json(), lambda: Verifier(settings))


def check_failures(rows: Iterable[Mapping[str, Any]], settings: VerifySettings, responses: int) -> None:
    """Raise GateError if more than ``max_failure_share`` of the responses could not be judged.

    ``rows`` are rows of the verdicts table, of which those that are not failures may be omitted; ``responses`` is the
    number of all responses.
    """
    failed = [row for row in rows if row["outcome"] in FAILURES]
    if len(failed) <= settings.max_failure_share * responses:
        return
    counts = Counter(row["outcome"] for row in failed)
    example = failed[0]
    shown = f": {shorten(example['extracted'])!r}" if example["extracted"] else ""
    raise GateError(
        f"verify: {counts[Outcome.TIMEOUT]} timeouts and {counts[Outcome.CRASHED]} crashes among {responses} "
        f"responses, a share of {len(failed) / responses:.4g}; verify.max_failure_share is "
        f"{settings.max_failure_share:g}. For example prompt_id {example['prompt_id']!r} ({example['outcome']}){shown}."
        f" {_kind_for(settings).failures_fix} verify.max_failure_share if so many responses may be left out."
    )
