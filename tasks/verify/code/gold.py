r"""Reads the reference answer of a code problem: a JSON object with its tests, in one of three forms.

Standard input and output, as LiveCodeBench, APPS and TACO have them::

    {"inputs": ["2 3\n", ...], "outputs": ["5\n", ...]}

Calls of a function, or of a method of the class Solution; every input is a list of arguments, or a text with one
argument in JSON per line, and then its output is JSON too (LiveCodeBench)::

    {"fn_name": "add", "inputs": [[2, 3], ...], "outputs": [5, ...]}

Assertions on what functions of the program give, as in MBPP; ``setup`` holds imports and names of the assertions' own::

    {"asserts": ["assert add(2, 3) == 5", ...], "setup": "import math"}
"""

import ast
import builtins
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from tasks.verify.code.compare import same_text, same_value
from tasks.verify.code.launcher import End
from tasks.verify.code.play import IMPORTED
from tasks.verify.code.sandbox import Ran
from tasks.verify.code.values import unpack

Run = Callable[[str, str, bytes], Ran]
"""``Sandbox.run``."""
READING_SECONDS = 10.0
"""Of CPU, for what a program gave; the most that it can write takes a tenth of that, unless it is made to take long."""


class Test(Protocol):
    """One test of a program; nothing of what it expects is in ``given``."""

    @property
    def mode(self) -> str:
        """How the program is run: one of ``play.MODES``."""

    @property
    def given(self) -> bytes:
        """The program's standard input."""

    def holds(self, output: bytes, tolerance: float, run: Run) -> bool:
        """Whether the program's output is right.

        Raises:
            ValueError, TypeError, RecursionError: it is none of what a program can give.
        """


@dataclass(frozen=True)
class TextTest:
    """A program that reads standard input and writes standard output."""

    text: str
    expected: str
    mode = "run"

    @property
    def given(self) -> bytes:
        """See ``Test``."""
        return self.text.encode(errors="surrogatepass")

    def holds(self, output: bytes, tolerance: float, run: Run) -> bool:  # noqa: ARG002 (see Test)
        """See ``Test``."""
        return same_text(self.expected, output.decode(), tolerance)


@dataclass(frozen=True)
class CallTest:
    """A call of one of the program's functions."""

    name: str
    arguments: list[Any]
    expected: Any
    mode = "call"

    @property
    def given(self) -> bytes:
        """See ``Test``."""
        return json.dumps({"call": self.name, "arguments": self.arguments}).encode()

    def holds(self, output: bytes, tolerance: float, run: Run) -> bool:  # noqa: ARG002 (see Test)
        """See ``Test``."""
        (value,) = _values(output)
        return same_value(self.expected, value, tolerance)


@dataclass(frozen=True)
class AssertTest:
    """An assertion, cut in two: calls of the program's functions, and what is then asked of their values."""

    setup: str
    functions: list[str]
    """Names that the program must give a meaning to."""
    expressions: list[str]
    """The calls."""
    check: str
    """The assertion with ``value_0``, ``value_1``, ... for the calls; runs where the program is not."""
    mode = "call"

    @property
    def given(self) -> bytes:
        """See ``Test``."""
        asked = {"setup": self.setup, "functions": self.functions, "expressions": self.expressions}
        return json.dumps(asked).encode()

    def holds(self, output: bytes, tolerance: float, run: Run) -> bool:  # noqa: ARG002 (see Test)
        """See ``Test``."""
        values = _values(output)
        if not isinstance(values, list) or len(values) != len(self.expressions):
            return False
        return run(self.check, "check", output).end is End.WELL


def _values(output: bytes) -> Any:
    """Read the values that a program wrote.

    Raises:
        ValueError: it takes too long to read, as a set does whose elements the program chose to have one hash.
    """

    def give_up(*_: object) -> None:
        raise ValueError(f"not read within {READING_SECONDS:g} s")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, READING_SECONDS)
    try:
        return unpack(json.loads(output))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@lru_cache(maxsize=4)
def read_gold(gold: str, longest_output: int) -> list[Test]:
    """Return the tests of a reference answer.

    Args:
        gold: JSON, see above.
        longest_output: bytes that a program can write.

    Raises:
        ValueError: it is of no form above, has no test, or expects more than a program can write; says what is wrong.
    """
    try:
        read = json.loads(gold)
        if not isinstance(read, dict):
            raise ValueError("no JSON object")
        tests: list[Test] = _assertions(read) if "asserts" in read else _pairs(read, longest_output)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not tests:
        raise ValueError("no tests")
    return tests


def _pairs(read: dict[str, Any], longest_output: int) -> list[Test]:
    inputs, outputs, name = (read.get(key) for key in ("inputs", "outputs", "fn_name"))
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise ValueError("inputs and outputs must be lists of the same length")
    if not isinstance(name, str | None):
        raise ValueError(f"fn_name {name!r} is no name")
    pairs = list(zip(inputs, outputs, strict=True))
    if name is not None:
        return [_call(name, given, expected) for given, expected in pairs]
    for pair in pairs:
        if not all(isinstance(text, str) for text in pair):
            raise ValueError("inputs and outputs must be texts where there is no fn_name")
        if len(pair[1].encode()) > longest_output:
            raise ValueError(f"an output is longer than the {longest_output} bytes that a program can write")
    return [TextTest(given, expected) for given, expected in pairs]


def _call(name: str, given: Any, expected: Any) -> CallTest:
    if isinstance(given, str) and isinstance(expected, str):
        return CallTest(name, [json.loads(line) for line in given.split("\n")], json.loads(expected))
    if not isinstance(given, list):
        raise ValueError(f"{given!r} is no list of arguments")
    return CallTest(name, given, expected)


def _assertions(read: dict[str, Any]) -> list[Test]:
    setup, lines = read.get("setup", ""), read["asserts"]
    if not isinstance(setup, str) or not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ValueError("asserts must be a list of texts, setup a text")
    known = _bound(ast.parse(setup))
    return [_assertion(line, setup, known) for line in lines]


def _assertion(line: str, setup: str, known: set[str]) -> AssertTest:
    body = ast.parse(line.strip()).body
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        raise ValueError(f"{line!r} is not one assertion")
    # A program's function may have the name of one of Python's, when no other is called.
    for known_here in (known | set(dir(builtins)), known):
        calls = _Calls(known_here)
        tree = calls.visit(ast.parse(line.strip()))
        if calls.found:
            break
    else:
        raise ValueError(f"{line!r} calls no function of the program")
    if any(_bound(tree) & {one.id for one in ast.walk(call) if isinstance(one, ast.Name)} for call in calls.found):
        raise ValueError(f"{line!r} calls a function of the program with a name of its own")
    functions = sorted({name for call in calls.found for name in _called(call) if name not in known_here})
    return AssertTest(setup, functions, [ast.unparse(call) for call in calls.found], f"{setup}\n{ast.unparse(tree)}")


class _Calls(ast.NodeTransformer):
    """A transformer that replaces the outermost calls of functions that neither Python nor the setup knows by names."""

    def __init__(self, known: set[str]) -> None:
        self.found: list[ast.Call] = []
        self._known = known

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a call of one of the program's functions."""
        name = _program_root(node)
        if name is None or name in self._known:
            return self.generic_visit(node)
        self.found.append(node)
        return ast.Name(f"value_{len(self.found) - 1}", ast.Load())


def _root(node: ast.AST) -> str | None:
    """Return the name that a call begins with, such as Solution of ``Solution().add(2, 3)``."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _program_root(node: ast.Call) -> str | None:
    """Return the same, but None for a module that is always there, such as math of ``math.isclose(x, 1)``."""
    function = node.func
    while isinstance(function, ast.Attribute):
        function = function.value
    of_module = function is not node.func and isinstance(function, ast.Name) and function.id in IMPORTED
    return None if of_module else _root(node)


def _called(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) if isinstance(node, ast.Call) and (name := _program_root(node)) is not None}


def _bound(tree: ast.AST) -> set[str]:
    """Return the names that a piece of code binds."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return names
