"""Start a launch plan by name, and follow its execution to the end with a line for every change."""

import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tasks.errors import SettingsError, UserError
from tasks.flyte.remote import Attempt, Execution, Flyte, NoAnswerError, Node, Seen
from tasks.formats import duration

_EVERY = 3.0
"""Seconds between looks at an execution."""
_WAITS = 15.0
"""Seconds after which a pod that does not run is worth a line: most begin sooner."""
_PATIENCE = 600.0
"""Seconds for which a Flyte that does not answer is asked again while an execution is followed."""
_ENDED = ("succeeded", "failed", "aborted", "timed_out")
_WAITING = ("undefined", "queued", "initializing", "waiting_for_resources")
_WORDS = {"timed_out": "timed out", "recovered": "taken from the execution that it recovers"}


@dataclass(frozen=True)
class Options:
    """Options of the command besides the plan and its inputs."""

    config: Path | None
    project: str
    domain: str
    version: str | None
    name: str | None


def start(plan: str, given: Sequence[str], options: Options, wait: bool) -> None:
    """Start a launch plan with inputs as ``name=value``, or find the execution of ``--name``; follow it to ``wait``.

    Raises:
        UserError: it cannot be started, or it does not succeed.
    """
    values = _pairs(given)
    flyte = Flyte(options.config, options.project, options.domain)
    if old := flyte.version():
        print(f"warning: {old}", file=sys.stderr, flush=True)
    execution = flyte.find(options.name) if options.name else None
    if execution is None:
        registered = flyte.plan(plan, options.version)
        execution = flyte.start(registered, values, options.name)
        print(f"{execution.name} started: {plan}, version {registered.id.version}", flush=True)
    elif execution.plan != plan or values:
        raise SettingsError(
            f"--name: {execution.name} is an execution of {execution.plan} already. Choose another name"
            + (", or leave --set out to follow it." if execution.plan == plan else ".")
        )
    else:
        print(f"{execution.name} is there already; it is not started again", flush=True)
    print(execution.link, flush=True)
    if wait:
        _wait(execution, _follow_command(plan, execution, options))


def _wait(execution: Execution, again: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # flytekit's own exits without a word
    try:
        seen = follow(execution)
    except KeyboardInterrupt:
        print(f"\n{execution.name} goes on. To follow it again: {again}", flush=True)
        raise SystemExit(130) from None
    if seen.phase != "succeeded":
        raise UserError(f"{execution.name} {describe_end(seen)}\n{execution.link}")
    print(f"\n{execution.result()}", flush=True)


def follow(execution: Execution) -> Seen:
    """Print a line for every change until the execution ends, and return its last state."""
    progress, answered = Progress(), time.monotonic()
    silent = False
    while True:
        try:
            seen = execution.look()
        except NoAnswerError as error:
            if time.monotonic() - answered > _PATIENCE:
                raise
            if not silent:
                _line(f"{error.message} It is asked again for {duration(_PATIENCE)}; the execution goes on.")
            silent = True
        else:
            answered, silent = time.monotonic(), False
            for line in progress.lines(seen, datetime.now(UTC)):
                _line(line)
            if seen.done:
                return seen
        time.sleep(_EVERY)


class Progress:
    """State that was printed of an execution, so that each change is printed once."""

    def __init__(self) -> None:
        self._phases: dict[str, str] = {}
        self._printed: set[tuple[str, int, str]] = set()

    def lines(self, seen: Seen, now: datetime) -> Iterator[str]:
        """Yield a line for each node whose phase changed, each attempt that failed, and each pod that cannot start."""
        width = max([24, *(len(node.path) for node in seen.nodes)])
        for node in seen.nodes:
            for attempt in node.attempts:
                for told in self._describe_attempt(node, attempt, now):
                    yield f"{node.path:<{width}}  {told}"
            # A node of a pod that waits is running to Flyte already.
            waits = node.attempts and node.attempts[-1].phase in _WAITING
            quiet = node.phase in ("undefined", "queued", "failing") or (node.phase == "running" and waits)
            if not quiet and self._phases.get(node.path) != node.phase:
                self._phases[node.path] = node.phase
                yield f"{node.path:<{width}}  {_phase(node)}".rstrip()

    def _describe_attempt(self, node: Node, attempt: Attempt, now: datetime) -> Iterator[str]:
        if attempt.phase in ("failed", "aborted") and node.phase not in _ENDED:
            told = f"attempt {attempt.number + 1} {attempt.phase}: {first_line(attempt.error)}"
        elif attempt.phase in _WAITING and attempt.reason:
            waited = (now - attempt.since.replace(tzinfo=UTC)).total_seconds()
            if waited < _WAITS:
                return
            told = f"waits: {' '.join(attempt.reason.split())}"
        else:
            return
        key = (node.path, attempt.number, told)
        if key not in self._printed:
            self._printed.add(key)
            yield told


def describe_end(seen: Seen) -> str:
    """Return the node that failed and its error, for an execution that did not succeed."""
    how = _WORDS.get(seen.phase, seen.phase)
    failed = [node for node in seen.nodes if node.phase in ("failed", "timed_out") and node.error]
    # Of nodes inside of each other the innermost, whose path is the longest, has the error itself.
    inner = max(failed, key=lambda node: node.path.count(" / "), default=None)
    if seen.phase == "aborted" or inner is None:
        return f"{how}: {seen.error}"
    return (
        f"{how} in {inner.path}:\n{message(inner.error)}\n"
        "What it made is in the store. To go on, remove the cause and start the plan again: what exists is found."
    )


def message(error: str) -> str:
    """Return the message of a task's error without its traceback."""
    _, found, text = error.partition("Message:")
    return (text if found else error).strip()


def first_line(error: str) -> str:
    """Return the first line of an error's message."""
    return next(iter(message(error).splitlines()), "no error is told").strip()


def _phase(node: Node) -> str:
    if node.phase == "succeeded":
        return "found in the cache" if node.cached else f"succeeded in {duration(node.seconds)}"
    told = _WORDS.get(node.phase, node.phase)
    return f"{told}: {first_line(node.error)}" if node.error and node.phase != "running" else told


def _pairs(given: Sequence[str]) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for one in given:
        name, found, value = one.partition("=")
        if not found or not name:
            raise SettingsError(f"--set: got {one!r}; allowed: name=value, such as seed=1.")
        if name in pairs:
            raise SettingsError(f"--set {name}: given twice. Leave one out.")
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
