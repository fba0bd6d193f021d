"""The command ``start``: start a launch plan, and follow its execution with a line for every change."""

import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tasks.errors import SettingsError, UserError
from tasks.flyte.remote import ENDED, Attempt, Execution, ExecutionState, Flyte, NoAnswerError, Node
from tasks.formats import duration

_POLL_SECONDS = 3.0
"""Time between requests for the state of an execution."""
_PENDING_SECONDS = 15.0
"""Time after which a waiting pod is printed; most pods start sooner."""
_RETRY_SECONDS = 600.0
"""Time for which requests are retried while Flyte does not answer."""
_WAITING = ("undefined", "queued", "initializing", "waiting_for_resources")
_WORDS = {"timed_out": "timed out", "recovered": "taken from the recovered execution"}
_QUEUED = "waits: as many pods run as max_parallelism allows, or another execution does the same work"
_NO_MESSAGE = "Pod failed. No message received from kubernetes.\r\n"
"""First line of Flyte's error for a pod that was killed; the second has the reason, such as OOMKilled."""
_RECOVERABLE = re.compile(r"^FlyteRecoverableException: USER:Recoverable: error=(\w+: (.*)), cause=\2$", re.DOTALL)
"""An error after which a step is repeated, as flytekit prints it: its message follows twice."""


@dataclass(frozen=True)
class Options:
    """Options of the command, without the plan and its inputs."""

    config: Path | None
    project: str
    domain: str
    version: str | None
    name: str | None
    overwrite_cache: bool = False


def start(plan: str, inputs: Sequence[str], options: Options, wait: bool) -> None:
    """Start a launch plan with inputs as ``name=value``, or find the execution that ``options`` names.

    With ``wait``, follow the execution to its end.

    Raises:
        UserError: the plan cannot be started, or the execution does not succeed.
    """
    values = _pairs(inputs)
    flyte = Flyte(options.config, options.project, options.domain)
    if warning := flyte.version_warning():
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    execution = flyte.find(options.name) if options.name else None
    if execution is None:
        registered = flyte.plan(plan, options.version)
        execution = flyte.start(registered, values, options.name, options.overwrite_cache)
        print(f"{execution.name} started: {plan}, version {registered.id.version}", flush=True)
    elif (
        execution.plan != plan or options.version not in (None, execution.version) or values or options.overwrite_cache
    ):
        raise SettingsError(
            f"--name: {execution.name} is an execution of {execution.plan}, version {execution.version}, already. "
            "Choose another name"
            + (", or leave --set, --overwrite-cache and --version out to follow it." if execution.plan == plan else ".")
        )
    else:
        print(f"{execution.name} exists already and is not started again", flush=True)
    print(execution.link, flush=True)
    if wait:
        _wait(execution, _follow_command(plan, execution, options))


def _wait(execution: Execution, follow_command: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # The handler of flytekit exits without a message.
    try:
        seen = follow(execution)
    except KeyboardInterrupt:
        print(f"\n{execution.name} is still running. To follow it again: {follow_command}", flush=True)
        raise SystemExit(130) from None
    if seen.phase != "succeeded":
        raise UserError(f"{execution.name} {describe_end(seen)}\n{execution.link}")
    print(f"\n{execution.result()}", flush=True)


def follow(execution: Execution) -> ExecutionState:
    """Print a line for every change until the execution ends, and return its last state."""
    reporter, last_answer, is_reported = ChangeReporter(), time.monotonic(), False
    while True:
        try:
            seen = execution.state()
        except NoAnswerError as error:
            if time.monotonic() - last_answer > _RETRY_SECONDS:
                raise
            if not is_reported:
                _line(f"{error.message} Retrying for {duration(_RETRY_SECONDS)}; the execution is not affected.")
            is_reported = True
        else:
            last_answer, is_reported = time.monotonic(), False
            for line in reporter.lines(seen, datetime.now(UTC)):
                _line(line)
            if seen.done:
                return seen
        time.sleep(_POLL_SECONDS)


class ChangeReporter:
    """Formats the changes of an execution as lines, and gives each change only once."""

    def __init__(self) -> None:
        self._phases: dict[str, str] = {}
        self._printed: set[tuple[str, int, str]] = set()

    def lines(self, seen: ExecutionState, now: datetime) -> Iterator[str]:
        """Yield a line for each node whose phase changed, each attempt that failed, and each pod that cannot start."""
        width = max([24, *(len(node.path) for node in seen.nodes)])
        for node in seen.nodes:
            for attempt in node.attempts:
                for description in self._describe_attempt(node, attempt, now):
                    yield f"{node.path:<{width}}  {description}"
            if node.phase == "queued" and not node.attempts and node.since and _waited(node.since, now):
                for description in self._once(node, 0, _QUEUED):
                    yield f"{node.path:<{width}}  {description}"
            # Flyte calls a node running while its pod still waits.
            waits = node.attempts and node.attempts[-1].phase in _WAITING
            is_hidden = node.phase in ("undefined", "queued", "failing") or (node.phase == "running" and waits)
            if not is_hidden and self._phases.get(node.path) != node.phase:
                self._phases[node.path] = node.phase
                yield f"{node.path:<{width}}  {_phase(node)}".rstrip()

    def _describe_attempt(self, node: Node, attempt: Attempt, now: datetime) -> Iterator[str]:
        for shard, number in attempt.failed_shards if node.phase not in ENDED else ():
            description = f"shard {shard}, attempt {number + 1} failed; see the log of its pod"
            yield from self._once(node, attempt.number, description)
        if attempt.phase in ("failed", "aborted") and node.phase not in ENDED:
            description = f"attempt {attempt.number + 1} {attempt.phase}: {first_line(attempt.error)}"
        elif attempt.phase in _WAITING and attempt.reason:
            if not _waited(attempt.since, now):
                return
            description = f"waits: {' '.join(attempt.reason.split())}"
        else:
            return
        yield from self._once(node, attempt.number, description)

    def _once(self, node: Node, attempt: int, description: str) -> Iterator[str]:
        key = (node.path, attempt, description)
        if key not in self._printed:
            self._printed.add(key)
            yield description


def _waited(since: datetime, now: datetime) -> bool:
    return (now - since.replace(tzinfo=UTC)).total_seconds() >= _PENDING_SECONDS


def describe_end(seen: ExecutionState) -> str:
    """Return the failed node and its error, for an execution that did not succeed."""
    phase = _WORDS.get(seen.phase, seen.phase)
    failed = [node for node in seen.nodes if node.phase in ("failed", "timed_out") and node.error]
    # The innermost of nested nodes, whose path is the longest, has the original error.
    inner = max(failed, key=lambda node: node.path.count(" / "), default=None)
    if seen.phase == "aborted" or inner is None:
        return f"{phase}: {message(seen.error)}"
    return (
        f"{phase} in {inner.path}:\n{message(inner.error)}\n"
        "Finished artifacts are in the store. To resume, fix the cause and start the plan again: it reuses them."
    )


def message(error: str) -> str:
    """Return the message of a task's or a pod's error without the traceback, and without what Flyte adds to it."""
    text = error.rpartition("\nMessage:\n")[2].replace(_NO_MESSAGE, "").strip()
    return _RECOVERABLE.sub(r"\1", text)


def first_line(error: str) -> str:
    """Return the first line of an error's message."""
    return next(iter(message(error).splitlines()), "no error message").strip()


def _phase(node: Node) -> str:
    if node.phase == "succeeded":
        return "found in the cache" if node.cached else f"succeeded in {duration(node.seconds)}"
    phase = _WORDS.get(node.phase, node.phase)
    return f"{phase}: {first_line(node.error)}" if node.error and node.phase != "running" else phase


def _pairs(inputs: Sequence[str]) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for pair in inputs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise SettingsError(f"--set: got {pair!r}; allowed: name=value, such as seed=1.")
        if name in pairs:
            raise SettingsError(f"--set {name}: given twice. Remove one of them.")
        pairs[name] = value
    return pairs


def _follow_command(plan: str, execution: Execution, options: Options) -> str:
    """Return the command that follows an execution again."""
    words = ["mu-grpo", "start", plan, "--name", execution.name, "--wait"]
    if options.config:
        words += ["--config", str(options.config)]
    return shlex.join([*words, "--project", options.project, "--domain", options.domain])


def _line(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S}  {text}", flush=True)
