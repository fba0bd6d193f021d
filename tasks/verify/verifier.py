"""Judges responses in worker processes that are killed at a deadline and replaced."""

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from multiprocessing.connection import wait
from types import TracebackType

from tasks.errors import GateError
from tasks.logs import logger
from tasks.progress import Bar, bar
from tasks.resident import resident
from tasks.settings import VerifySettings
from tasks.verify.answers import Extracted
from tasks.verify.domains import NOTHING, Job, domain_of, require
from tasks.verify.process import WorkerProcess
from tasks.verify.verdicts import FAILURES, Judgement, Outcome, Verdict

_TRIES = 3
"""Judges that may end on a job for a reason outside it before it is to blame after all."""
_LEAST_AHEAD = 2
"""Jobs that a worker has when few are left; before that half of its share, so that all end together."""
_BREATH_SECONDS = 0.005
"""Outcomes are taken in together, since every look at the workers costs what judging a number does."""


Asked = tuple[str, str | None] | tuple[str, str | None, str]
"""Gold answer, response, and the prompt where a function is to see it."""


class Verifier:
    """A pool of worker processes, as a context manager. They start when there is something to judge.

    ``workers`` of them work at a time. A hostile answer costs its worker at most; the answers behind it are sent again,
    and so is one whose worker was killed from outside: an outcome is the answer's own.

    Raises:
        SettingsError: this machine cannot judge as ``verify.kind`` says.
    """

    def __init__(self, settings: VerifySettings) -> None:
        require(settings)
        self._settings = settings
        self._domain = domain_of(settings)
        self._workers: list[WorkerProcess] = []
        self._disturbed: Counter[Job] = Counter()
        self._shown_error = False

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers' judges."""
        return [worker.pid for worker in self._workers]

    def close(self) -> None:
        """End all workers."""
        while self._workers:
            self._workers.pop().stop()

    def verify(self, pairs: Iterable[Asked], title: str = "verify") -> list[Verdict]:
        """Judge responses; equal jobs, such as equal pairs of gold and extracted answer, are judged once.

        Args:
            pairs: gold answer, response (None where it is missing), and the prompt where a function is to see it, [R].
                Of a response only its answer is held, unless a function judges.
            title: of the progress bar.

        Returns:
            Verdicts [R], in order. A response without an answer is ``no_answer`` whatever its gold answer.

        Raises:
            SettingsError: a worker cannot start.
        """
        extracted_R: list[Extracted] = []
        jobs_R: list[Job | Outcome] = []
        for gold, response, *prompt in pairs:
            found, job = NOTHING, None
            if response is not None:
                found, job = self._domain.read(gold, response, prompt[0] if prompt else "")
            extracted_R.append(found)
            jobs_R.append(job or (Outcome.MISSING if response is None else Outcome.NO_ANSWER))
        times = Counter(job for job in jobs_R if not isinstance(job, Outcome))
        with bar(title, len(jobs_R)) as progress:
            progress.advance(len(jobs_R) - times.total())
            try:
                outcomes = self._check(times, progress)
            except BaseException:
                self.close()  # Workers that are still busy would answer the next call with the outcomes of this one.
                raise
        return [
            Verdict.of(Judgement(job) if isinstance(job, Outcome) else outcomes[job], found)
            for job, found in zip(jobs_R, extracted_R, strict=True)
        ]

    def _check(self, times: Counter[Job], progress: Bar) -> dict[Job, Judgement]:
        waiting = deque(times)
        outcomes: dict[Job, Judgement] = {}
        failures = 0
        self._disturbed.clear()
        self._collect(waiting)  # A worker that died since the last call is to be replaced, not sent a job.
        while len(outcomes) < len(times):
            wanted = min(self._settings.workers, len(times) - len(outcomes))
            while len(self._workers) < wanted:
                self._workers.append(WorkerProcess(self._settings))
            for worker in self._workers:
                worker.fill(waiting, max(_LEAST_AHEAD, len(waiting) // (2 * len(self._workers))))
            due = min(worker.due for worker in self._workers)
            wait([worker.fileno() for worker in self._workers], timeout=max(0.0, due - time.monotonic()))
            time.sleep(_BREATH_SECONDS)
            for job, judgement in self._collect(waiting):
                outcomes[job] = judgement
                failures += times[job] * (judgement.outcome in FAILURES)
                if judgement.error and not self._shown_error:
                    self._shown_error = True
                    logger().warning("verify: the first error of the function:\n%s", judgement.error)
                progress.advance(times[job], note=f"{failures} not judged" if failures else "")
        return outcomes

    def _collect(self, waiting: deque[Job]) -> list[tuple[Job, Judgement]]:
        """Return new judgements of all workers; jobs that a worker left undone when it ended go back to the front."""
        outcomes: list[tuple[Job, Judgement]] = []
        for worker in list(self._workers):
            outcomes += worker.collect()
            if worker.ended:
                self._workers.remove(worker)
            left = worker.take_back()
            if worker.disturbed:
                self._disturbed[left[0]] += 1
                if self._disturbed[left[0]] == _TRIES:
                    outcomes.append((left.pop(0), Judgement(worker.disturbed)))
                worker.disturbed = None
            waiting.extendleft(reversed(left))
        return outcomes


def shared_verifier(settings: VerifySettings) -> Verifier:
    """Return a verifier whose workers stay for the next step in this process: they take a second to start.

    Raises:
        SettingsError: this machine cannot judge as ``verify.kind`` says.
    """
    return resident("verifier", settings.model_dump_json(), lambda: Verifier(settings))


def check_failures(
    verdicts: Sequence[Verdict], settings: VerifySettings, names: Sequence[str], responses: int | None = None
) -> None:
    """Stop a stage of which too many responses could not be judged.

    Args:
        verdicts: [R].
        settings: with the largest share allowed.
        names: prompt_id of every verdict, [R].
        responses: what the share is of; those given when it is None.

    Raises:
        GateError: the share of ``timeout`` and ``crashed`` is above ``max_failure_share``.
    """
    total = len(verdicts) if responses is None else responses
    failed = [(verdict, name) for verdict, name in zip(verdicts, names, strict=True) if verdict.outcome in FAILURES]
    if len(failed) <= settings.max_failure_share * total:
        return
    counts = Counter(verdict.outcome for verdict, _ in failed)
    example, name = failed[0]
    shown = f": {_shortened(example.extracted)!r}" if example.extracted else ""
    raise GateError(
        f"verify: {counts[Outcome.TIMEOUT]} timeouts and {counts[Outcome.CRASHED]} crashes among {total} responses, a "
        f"share of {len(failed) / total:.4g}; verify.max_failure_share is {settings.max_failure_share:g}. For example "
        f"prompt_id {name!r} ({example.outcome}){shown}. "
        f"{domain_of(settings).failures_fix} verify.max_failure_share if so many may be left out."
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
