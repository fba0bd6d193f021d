"""Runs a program, calls its functions, or checks a test, inside of a confined process.

The program shares the process with what is here and can do to it what it likes. It can thereby give other values than
its functions return, which are still its own: what is expected is not in this process.
"""

import atexit
import json
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

IMPORTED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
"""Modules that every program may take as imported."""
DIGITS = 50_000
"""Longest whole number that is read or written, as in LiveCodeBench."""
PREAMBLE = "\n".join(
    [f"from {name} import *" for name in IMPORTED]
    + [f"import {name}" for name in IMPORTED]
    + ["sys.setrecursionlimit(50000)", f"sys.set_int_max_str_digits({DIGITS})"]
)
"""Lines that go before every program: LiveCodeBench's (lcb_runner/evaluation/testing_util.py)."""


def play(mode: str, source: int, names: dict[str, Any]) -> NoReturn:
    """Run a program and end the process: with 0, with the status that the program ends itself with, or with 1.

    Args:
        mode: one of ``MODES``.
        source: file descriptor of the program.
        names: what the program finds.
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
            MODES[mode](text, space)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter does at its end: wait for threads
        atexit._run_exitfuncs()
        _forget(space)
        for stream in (sys.stdout, sys.__stdout__):
            if stream is not None and not stream.closed:
                stream.flush()
    except BaseException:  # Whatever it was: the program has failed.
        status = 1
    finally:
        os._exit(status & 0xFF)


def _forget(space: dict[str, Any]) -> None:
    """Write files that were left open, as Python does at its end, while modules and functions are still there."""
    for name in list(space):
        if not callable(space[name]) and not isinstance(space[name], types.ModuleType):
            del space[name]
    space.clear()


def _run(text: str, names: dict[str, Any]) -> None:
    """Run a program that reads standard input and writes standard output."""
    _open_standard_streams()
    exec(compile(text, "<program>", "exec"), names)  # noqa: S102 (what the confinement is for)


def _call(text: str, names: dict[str, Any]) -> None:
    """Call a program's functions: standard input says how, and standard output gets what they return."""
    asked, replies = json.loads(_given()), os.dup(1)
    _silence()
    before = dict(names)
    exec(compile(text, "<program>", "exec"), names)  # noqa: S102 (what the confinement is for)
    # What is called must be the program's: the preamble and Python have functions of the same names.
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
    """Check assertions of the reference on values that the program gave. The program is not in this process."""
    values = unpack(json.loads(_given()))
    _silence()
    names |= {f"value_{index}": value for index, value in enumerate(values)}
    exec(compile(text, "<tests>", "exec"), names)  # noqa: S102 (of the reference)


MODES: dict[str, Callable[[str, dict[str, Any]], None]] = {"run": _run, "call": _call, "check": _check}


def _given() -> bytes:
    with os.fdopen(0, "rb", closefd=False) as file:
        return file.read()


def _silence() -> None:
    """Let the program read nothing and print nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    _open_standard_streams()


def _open_standard_streams() -> None:
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = stdout  # type: ignore[misc]  # typeshed declares __stdout__ Final


def pack(value: Any) -> Any:
    """Return a JSON value that keeps tuples, sets and dictionaries apart, for a value of plain types or of numpy's.

    Raises:
        TypeError: of another type.
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
    """Return the value that was packed, with a subclass as its base.

    Raises:
        ValueError, TypeError: nothing that ``pack`` gives.
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
