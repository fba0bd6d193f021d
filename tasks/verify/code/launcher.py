"""Launcher: a process that forks a confined process for every run of a program.

The launcher has no gold answers. It gets a program as the descriptor of a file in memory, which only the forked process
reads. Its environment holds only constants. A program can change everything in its own process, ``_execute`` included,
and so fake the values that its functions return. It cannot copy the expected values, because they are not in this
process.
"""

import atexit
import builtins
import dis
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from operator import index
from pathlib import Path
from typing import Any, NoReturn

_ROOT = str(Path(__file__).parents[3])
if __name__ == "__main__":  # With python -P and an empty environment, only Python's own modules can be imported.
    sys.path.insert(0, _ROOT)

from tasks.verify.code.confine import Confinement, die_with  # noqa: E402 (needs the line above)

PATIENCE = 5
"""Wall-clock limit, without the time in which a program waits for a CPU, as a multiple of the limit of CPU time."""
LONGEST = 4 * PATIENCE
"""Wall-clock limit, with the time in which a program waits for a CPU, as a multiple of the limit of CPU time."""
_POLL_MILLISECONDS = 20
_TICKS = os.sysconf("SC_CLK_TCK")

IMPORTED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
"""Modules that are imported for every program."""
_KINDS: dict[str, tuple[type[Any], Callable[[Any], Iterable[Any]], Callable[[Iterator[Any]], Any]]] = {
    **{kind.__name__: (kind, iter, kind) for kind in (tuple, set, frozenset, deque, bytes, bytearray)},
    "Iterator": (Iterator, iter, iter),
    "dict": (dict, lambda value: map(list, value.items()), dict),
    "KeysView": (KeysView, iter, lambda parts: dict.fromkeys(parts).keys()),
    "ItemsView": (ItemsView, iter, lambda parts: dict(parts).items()),
    "ValuesView": (ValuesView, iter, lambda parts: dict(enumerate(parts)).values()),
    "range": (range, lambda value: (value.start, value.stop, value.step), lambda parts: range(*parts)),
    "complex": (complex, lambda value: (value.real, value.imag), lambda parts: complex(*parts)),
    # Of texts, such as 1e999999999, Fraction could compute forever.
    "Fraction": (Fraction, Fraction.as_integer_ratio, lambda parts: Fraction(*map(index, parts))),
    "Decimal": (Decimal, lambda value: [str(value)], lambda parts: Decimal(*parts)),
    "datetime": (datetime, lambda value: [value.isoformat()], lambda parts: datetime.fromisoformat(*parts)),
    "date": (date, lambda value: [value.isoformat()], lambda parts: date.fromisoformat(*parts)),
    "timedelta": (timedelta, lambda value: [value // timedelta.resolution], lambda parts: timedelta(0, 0, *parts)),
}
"""Types of results beside those of JSON: a type, its parts, and how it is made of its parts, by name."""
DIGITS = 50_000
"""Most digits of an integer that is read or written, as in LiveCodeBench."""
_PREAMBLE = "\n".join(
    [f"from {name} import *" for name in IMPORTED]
    + [f"import {name}" for name in IMPORTED]
    + ["sys.setrecursionlimit(50000)", f"sys.set_int_max_str_digits({DIGITS})"]
)
"""Code that runs before every program, as in LiveCodeBench (lcb_runner/evaluation/testing_util.py)."""


class End(StrEnum):
    """The way in which a program ended."""

    WELL = "well"
    FAILED = "failed"
    """The program raised, ended with a status other than 0, or caused a signal."""
    LIMIT = "limit"
    """The program used too much CPU time, started too many threads, or slept too long."""
    STARVED = "starved"
    """The machine gave the program too little CPU time."""
    KILLED = "killed"
    """The program was killed from outside, for example because the machine ran out of memory."""


def main(parent: int, descriptor: int, limits: Mapping[str, Any]) -> None:
    """Run programs until the channel closes.

    A request is a mode with the descriptors of source, input and output; the reply is an ``End``.
    """
    die_with(parent)
    channel = socket.socket(fileno=descriptor)
    names: dict[str, Any] = {}
    exec(_PREAMBLE, names)  # noqa: S102 (a constant)
    sys.path.remove(_ROOT)
    sys.argv = ["program.py"]
    os.chdir("/")  # Relative paths of a program do not lead into the verifier's folder.
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
            _confine_and_execute(confinement, message.decode(), descriptors, names)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(_watch(process, limits).encode())


def _watch(process: int, limits: Mapping[str, Any]) -> End:
    """Wait for the end of a process, and kill the process if it breaks a limit."""
    handle = os.pidfd_open(process)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    start = time.monotonic()
    end = None
    while end is None and not poll.poll(_POLL_MILLISECONDS):
        cpu_seconds, threads = _cpu_and_threads(process)
        elapsed = time.monotonic() - start
        slow = cpu_seconds > limits["seconds"] or elapsed - _waiting_seconds(process) > PATIENCE * limits["seconds"]
        if slow or threads > limits["threads"]:
            end = End.LIMIT
        elif elapsed > LONGEST * limits["seconds"]:
            end = End.STARVED
    if end is not None:
        os.kill(process, signal.SIGKILL)
    os.close(handle)
    _, status, usage = os.wait4(process, 0)
    if end is None and usage.ru_utime + usage.ru_stime > limits["seconds"]:
        end = End.LIMIT
    return end or (End.KILLED if status == signal.SIGKILL else End.FAILED if status else End.WELL)


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


def _confine_and_execute(
    confinement: Confinement, mode: str, descriptors: list[int], names: dict[str, Any]
) -> NoReturn:
    """Confine the forked process and run the program; only the program's source, input and output stay open."""
    try:
        source, given, output = descriptors
        devnull = os.open(os.devnull, os.O_RDWR)
        for descriptor, number in ((given, 0), (output, 1), (devnull, 2)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        random.seed(0)  # A program that uses random numbers gets the same verdict every time.
        confinement.enter()
    except BaseException as error:
        os.write(1, str(error).encode())
        os.kill(os.getpid(), signal.SIGKILL)  # The program has not failed: the end is "killed".
    _execute(mode, source, names)


def _execute(mode: str, source: int, names: dict[str, Any]) -> NoReturn:
    """Run a program and end the process with status 0, the program's own status, or 1 after an error.

    ``source`` is the file descriptor of its source, ``names`` are the global names of the preamble, which it can use.
    """
    status = 1
    # Dataclasses, type hints and pickle look up a module by its name.
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
        threading._shutdown()  # type: ignore[attr-defined]  # wait for threads, as the interpreter does at its end
        atexit._run_exitfuncs()
        # As at the end of Python, the program's own stream is flushed first, and open files while modules still exist.
        _flush(sys.stdout)
        sys.stdout = sys.__stdout__
        for name in list(space):
            if not callable(space[name]) and not isinstance(space[name], types.ModuleType):
                del space[name]
        space.clear()
        _flush(sys.__stdout__)
    except BaseException:
        status = 1
    finally:
        os._exit(status & 0xFF)


def _flush(stream: Any) -> None:
    try:
        closed = stream is None or getattr(stream, "closed", False)
    except ValueError:  # It has been detached from its buffer.
        return
    if not closed:
        stream.flush()


def _run(text: str, names: dict[str, Any]) -> None:
    """Run a program that reads standard input and writes standard output."""
    _open_standard_streams()
    exec(compile(text, "<program>", "exec"), names)  # noqa: S102 (what the confinement is for)


def _call(text: str, names: dict[str, Any]) -> None:
    """Call functions of a program: standard input has the calls, and standard output gets the returned values."""
    request, replies = _read_input(), os.dup(1)
    _mute_streams()
    preamble, code = dict(names), compile(text, "<program>", "exec")
    exec(code, names)  # noqa: S102 (what the confinement is for)
    # Only functions that the program defines or imports are called: the preamble has functions of the same names.
    bound = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}
    own = {name: value for name, value in names.items() if name in bound or value is not preamble.get(name)}
    if "call" in request:
        name = request["call"]
        alone = name in own and not hasattr(own.get("Solution"), name)  # LiveCodeBench prefers the method.
        values = [(own[name] if alone else getattr(own["Solution"](), name))(*unpack(request["arguments"]))]
    else:
        scope = {name: value for name, value in own.items() if not hasattr(builtins, name)}
        scope |= {name: preamble[name] for name in IMPORTED}
        exec(request["setup"], scope)  # noqa: S102 (of the gold answer)
        scope |= {name: own[name] for name in request["functions"]}
        values = [eval(expression, scope) for expression in request["expressions"]]  # noqa: S307 (of the gold answer)
    data = json.dumps(pack(values)).encode()
    while data:
        data = data[os.write(replies, data) :]


def _check(text: str, names: dict[str, Any]) -> None:
    """Check assertions of the gold answer on values that a program returned, without the program in this process."""
    values = unpack(_read_input())
    _mute_streams()
    names |= {f"value_{index}": value for index, value in enumerate(values)}
    exec(compile(text, "<tests>", "exec"), names)  # noqa: S102 (of the gold answer)


_MODES: dict[str, Callable[[str, dict[str, Any]], None]] = {"run": _run, "call": _call, "check": _check}


def _read_input() -> Any:
    with os.fdopen(0, "rb", closefd=False) as file:
        return json.loads(file.read())


def _mute_streams() -> None:
    """Connect standard input and output of the program with /dev/null."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(devnull, number)
    _open_standard_streams()


def _open_standard_streams() -> None:
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = stdout  # type: ignore[misc]  # typeshed declares __stdout__ Final


def pack(value: Any) -> Any:
    """Return a value of Python's or numpy's plain types as a JSON value that tells lists, tuples, sets and dicts apart.

    An iterator is consumed.

    Raises:
        TypeError: the value, or a value in it, has another type.
    """
    if value is None or isinstance(value, int | float | str):
        return value  # JSON writes a subclass as its plain type; str(value) would be the name of a text in an Enum.
    if isinstance(value, list):
        return [pack(item) for item in value]
    for name, (collection, parts, _) in _KINDS.items():
        if isinstance(value, collection):
            return {name: [pack(part) for part in parts(value)]}
    if hasattr(value, "tolist"):
        return pack(value.tolist())
    raise TypeError(f"{type(value).__name__} is not a plain type")


def unpack(packed: Any) -> Any:
    """Return the value of a result of ``pack``; a subclass has become its plain type.

    Raises:
        ValueError, TypeError: the value is not a result of ``pack``.
    """
    if isinstance(packed, list):
        return [unpack(item) for item in packed]
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind not in _KINDS:
        raise ValueError(f"unknown kind {kind!r}")
    return _KINDS[kind][2](unpack(part) for part in content)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
