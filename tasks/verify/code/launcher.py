"""The launcher: a clean process that forks a confined process for each program, and the code of that process.

The launcher knows no gold answer and reads no program: both are files in memory, which the forked process alone reads.
Its environment is a few constants, and its working directory is deleted. A program runs in the same process as
``_play`` and can change it, so it can give other values than its functions return. These are still values of the
program, since the expected values are not in this process.
"""

import atexit
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

_ROOT = str(Path(__file__).parents[3])
if __name__ == "__main__":  # With python -P and an empty environment only Python's own modules are found.
    sys.path.insert(0, _ROOT)

from tasks.verify.code.confine import Confinement, die_with  # noqa: E402 (found by the line above)

PATIENCE = 5
"""Factor of the CPU limit that gives the limit of wall-clock time, without time in which it waited for a CPU."""
LONGEST = 4 * PATIENCE
"""Factor of the CPU limit that gives the limit of wall-clock time with the wait for a CPU."""
_LOOK_MILLISECONDS = 20
_TICKS = os.sysconf("SC_CLK_TCK")

IMPORTED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
"""Modules that are imported for every program."""
DIGITS = 50_000
"""Most digits of an integer that is read or written, as in LiveCodeBench."""
_PREAMBLE = "\n".join(
    [f"from {name} import *" for name in IMPORTED]
    + [f"import {name}" for name in IMPORTED]
    + ["sys.setrecursionlimit(50000)", f"sys.set_int_max_str_digits({DIGITS})"]
)
"""Lines before every program, those of LiveCodeBench (lcb_runner/evaluation/testing_util.py)."""


class End(StrEnum):
    """How a program ended."""

    WELL = "well"
    FAILED = "failed"
    """It raised, exited with a status other than 0, or caused a signal."""
    LIMIT = "limit"
    """It took too much CPU time, made too many threads, or slept."""
    STARVED = "starved"
    """The machine gave it no CPU time."""
    KILLED = "killed"
    """It was killed from outside, perhaps because the machine ran out of memory."""


def main(parent: int, descriptor: int, limits: Mapping[str, Any]) -> None:
    """Serve until the channel closes: receive a mode and descriptors of source, input and output; send an ``End``."""
    die_with(parent)
    channel = socket.socket(fileno=descriptor)
    names: dict[str, Any] = {}
    exec(_PREAMBLE, names)  # noqa: S102 (a constant)
    sys.path.remove(_ROOT)
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)  # noqa: PTH106 (no file can be made in it any more)
    confinement = Confinement(limits)
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 16, 3)
        if not message:
            return
        process = os.fork()
        if not process:
            channel.close()
            _become(confinement, message.decode(), descriptors, names)
        for one in descriptors:
            os.close(one)
        channel.send(_watch(process, limits).encode())


def _watch(process: int, limits: Mapping[str, Any]) -> End:
    """Wait for the end of a process, and kill it if it exceeds a limit."""
    handle = os.pidfd_open(process)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    start = time.monotonic()
    found = None
    while found is None and not poll.poll(_LOOK_MILLISECONDS):
        cpu_seconds, threads = _cpu_and_threads(process)
        elapsed = time.monotonic() - start
        slow = cpu_seconds > limits["seconds"] or elapsed - _waiting_seconds(process) > PATIENCE * limits["seconds"]
        if slow or threads > limits["threads"]:
            found = End.LIMIT
        elif elapsed > LONGEST * limits["seconds"]:
            found = End.STARVED
    if found is not None:
        os.kill(process, signal.SIGKILL)
    os.close(handle)
    _, status, usage = os.wait4(process, 0)
    if found is None and usage.ru_utime + usage.ru_stime > limits["seconds"]:
        found = End.LIMIT
    return found or (End.KILLED if status == signal.SIGKILL else End.FAILED if status else End.WELL)


def _cpu_and_threads(process: int) -> tuple[float, int]:
    """Return the CPU time of a process in seconds, and its number of threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[17])


def _waiting_seconds(process: int) -> float:
    """Return the seconds in which the first thread waited for a CPU; 0 if the kernel does not count them."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


def _become(confinement: Confinement, mode: str, descriptors: list[int], names: dict[str, Any]) -> NoReturn:
    """Become the program, in the forked process, with only its source, input and output open."""
    try:
        source, given, output = descriptors
        nowhere = os.open(os.devnull, os.O_RDWR)
        for one, place in ((given, 0), (output, 1), (nowhere, 2)):
            os.dup2(one, place)
            os.close(one)
        random.seed(0)  # Programs with random numbers get the same verdict again.
        confinement.enter()
    except BaseException as error:
        os.write(1, str(error).encode())
        os.kill(os.getpid(), signal.SIGKILL)  # Not the program's fault.
    _play(mode, source, names)


def _play(mode: str, source: int, names: dict[str, Any]) -> NoReturn:
    """Run a program and exit with 0, with the program's own exit status, or with 1 after an error.

    Args:
        mode: one of ``_MODES``.
        source: file descriptor of the program.
        names: names that are defined for the program.
    """
    status = 1
    # Dataclasses, type hints and pickle look a module up by its name.
    module = types.ModuleType("__main__" if mode == "run" else "program")
    space = vars(module)
    space.update(names, __name__=module.__name__)
    sys.modules[module.__name__] = module
    try:
        try:
            with os.fdopen(source, "rb") as file:
                text = file.read().decode()
            _MODES[mode](text, space)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at its end
        atexit._run_exitfuncs()
        # Open files are flushed, as by Python at its end, while modules and functions still exist.
        for name in list(space):
            if not callable(space[name]) and not isinstance(space[name], types.ModuleType):
                del space[name]
        space.clear()
        for stream in (sys.stdout, sys.__stdout__):
            if stream is not None and not stream.closed:
                stream.flush()
    except BaseException:  # Whatever it was: the program has failed.
        status = 1
    finally:
        os._exit(status & 0xFF)


def _run(text: str, names: dict[str, Any]) -> None:
    """Run a program that reads standard input and writes standard output."""
    _open_standard_streams()
    exec(compile(text, "<program>", "exec"), names)  # noqa: S102 (what the confinement is for)


def _call(text: str, names: dict[str, Any]) -> None:
    """Call a program's functions by the request on standard input, and write their values to standard output."""
    asked, replies = _read_input(), os.dup(1)
    _mute_streams()
    before = dict(names)
    exec(compile(text, "<program>", "exec"), names)  # noqa: S102 (what the confinement is for)
    # The called function must be the program's, since the preamble and Python may have one of the same name.
    own = {name: value for name, value in names.items() if name not in before or value is not before[name]}
    if "call" in asked:
        name = asked["call"]
        values = [(own[name] if name in own else getattr(own["Solution"](), name))(*asked["arguments"])]
    else:
        known = {name: before[name] for name in IMPORTED}
        exec(asked["setup"], known)  # noqa: S102 (of the reference)
        known |= {name: own[name] for name in asked["functions"]}
        values = [eval(expression, known) for expression in asked["expressions"]]  # noqa: S307 (of the reference)
    data = json.dumps(pack(values)).encode()
    while data:
        data = data[os.write(replies, data) :]


def _check(text: str, names: dict[str, Any]) -> None:
    """Check assertions of the gold answer on values of the program, which does not run in this process."""
    values = unpack(_read_input())
    _mute_streams()
    names |= {f"value_{index}": value for index, value in enumerate(values)}
    exec(compile(text, "<tests>", "exec"), names)  # noqa: S102 (of the reference)


_MODES: dict[str, Callable[[str, dict[str, Any]], None]] = {"run": _run, "call": _call, "check": _check}


def _read_input() -> Any:
    with os.fdopen(0, "rb", closefd=False) as file:
        return json.loads(file.read())


def _mute_streams() -> None:
    """Redirect standard input and output of the program to /dev/null."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    _open_standard_streams()


def _open_standard_streams() -> None:
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = stdout  # type: ignore[misc]  # typeshed declares __stdout__ Final


def pack(value: Any) -> Any:
    """Encode a value of plain types, or of numpy's, in JSON that distinguishes tuples, sets and dictionaries.

    Raises:
        TypeError: the value has another type.
    """
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list):
        return [pack(one) for one in value]
    if isinstance(value, tuple | set | frozenset):
        return {"tuple" if isinstance(value, tuple) else "set": [pack(one) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[pack(key), pack(one)] for key, one in value.items()]}
    if hasattr(value, "tolist"):
        return pack(value.tolist())
    raise TypeError(f"{type(value).__name__} is no plain type")


def unpack(packed: Any) -> Any:
    """Decode a value of ``pack``; an instance of a subclass becomes one of its base.

    Raises:
        ValueError, TypeError: it is no value of ``pack``.
    """
    if isinstance(packed, list):
        return [unpack(one) for one in packed]
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "dict":
        return {unpack(key): unpack(one) for key, one in content}
    if kind not in ("tuple", "set"):
        raise ValueError(f"unknown kind {kind!r}")
    return (tuple if kind == "tuple" else set)(unpack(one) for one in content)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
