r"""Read the gold answer of a code problem, and compare outputs. It is a JSON object with tests in one of three forms.

Standard input and output, as in LiveCodeBench, APPS and TACO::

    {"inputs": ["2 3\n", ...], "outputs": ["5\n", ...]}

Calls of a function, or of a method of the class Solution. An input is a list of arguments, or a text with an argument
in JSON in each line; its output is then JSON too (LiveCodeBench)::

    {"fn_name": "add", "inputs": [[2, 3], ...], "outputs": [5, ...]}

Assertions about values of the program's functions, as in MBPP; ``setup`` holds imports and names for them::

    {"asserts": ["assert add(2, 3) == 5", ...], "setup": "import math"}
"""

import ast
import builtins
import json
import math
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from tasks.verify.code.launcher import IMPORTED, unpack

Run = Callable[[str, str, bytes], bytes | None]
"""Function that runs a program in a mode with an input, and returns its output, or None if it failed."""
READING_SECONDS = 10.0
"""Limit of CPU seconds to parse the output of a program. The longest output takes a tenth, unless it is hostile."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Test:
    """A test of a program; ``given`` does not reveal the expected output."""

    mode: str
    """Mode in which the program is run: ``run``, ``call`` or ``check``."""
    given: bytes
    """The program's standard input."""
    holds: Callable[[bytes, float, Run], bool]
    """Function of the output, a tolerance, and a way to run the second half of an assertion. It returns whether the
    output is right, and raises ValueError, TypeError or RecursionError for an output of another format."""


@lru_cache(maxsize=4)
def read_gold(gold: str, longest_output: int) -> list[Test]:
    """Return the tests of a gold answer; programs can write ``longest_output`` bytes.

    Raises:
        ValueError: it has none of the forms above, no test, or a longer output than a program can write.
        SyntaxError: an assertion is not Python.
    """
    try:
        read = json.loads(gold)
        if not isinstance(read, dict):
            raise ValueError("no JSON object")
        tests = _assertions(read) if "asserts" in read else _pairs(read, longest_output)
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
    return [_text(*pair) for pair in pairs]


def _text(given: str, expected: str) -> Test:
    def holds(output: bytes, tolerance: float, _run: Run) -> bool:
        return same_text(expected, output.decode(), tolerance)

    return Test("run", given.encode(errors="surrogatepass"), holds)


def _call(name: str, given: Any, expected: Any) -> Test:
    if isinstance(given, str) and isinstance(expected, str):
        given, expected = [json.loads(line) for line in given.split("\n")], json.loads(expected)
    if not isinstance(given, list):
        raise ValueError(f"{given!r} is no list of arguments")

    def holds(output: bytes, tolerance: float, _run: Run) -> bool:
        (value,) = _values(output)
        return same_value(expected, value, tolerance)

    return Test("call", json.dumps({"call": name, "arguments": given}).encode(), holds)


def _assertions(read: dict[str, Any]) -> list[Test]:
    setup, lines = read.get("setup", ""), read["asserts"]
    if not isinstance(setup, str) or not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ValueError("asserts must be a list of texts, setup a text")
    known = _bound(ast.parse(setup))
    return [_assertion(line, setup, known) for line in lines]


def _assertion(line: str, setup: str, known: set[str]) -> Test:
    """Split an assertion: calls of the program's functions, and an assertion about their values ``value_0``, ..."""
    body = ast.parse(line.strip()).body
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        raise ValueError(f"{line!r} is not one assertion")
    # If no other function is called, one of Python's names is taken for a function of the program.
    for known_here in (known | set(dir(builtins)), known):
        calls = _Calls(known_here)
        tree = calls.visit(ast.parse(line.strip()))
        if calls.found:
            break
    else:
        raise ValueError(f"{line!r} calls no function of the program")
    if any(_bound(tree) & {one.id for one in ast.walk(call) if isinstance(one, ast.Name)} for call in calls.found):
        raise ValueError(f"{line!r} calls a function of the program with a name of its own")
    called = {_root(node) for call in calls.found for node in ast.walk(call) if isinstance(node, ast.Call)}
    functions = sorted(name for name in called if name is not None and name not in known_here)
    expressions, check = [ast.unparse(call) for call in calls.found], f"{setup}\n{ast.unparse(tree)}"

    def holds(output: bytes, _tolerance: float, run: Run) -> bool:
        values = _values(output)
        if not isinstance(values, list) or len(values) != len(expressions):
            return False
        return run(check, "check", output) is not None

    asked = {"setup": setup, "functions": functions, "expressions": expressions}
    return Test("call", json.dumps(asked).encode(), holds)


class _Calls(ast.NodeTransformer):
    """Replaces the outermost calls of unknown functions, of neither Python nor the setup, by names."""

    def __init__(self, known: set[str]) -> None:
        self.found: list[ast.Call] = []
        self._known = known

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _root(node)
        if name is None or name in self._known:
            return self.generic_visit(node)
        self.found.append(node)
        return ast.Name(f"value_{len(self.found) - 1}", ast.Load())


def _root(call: ast.Call) -> str | None:
    """Return the first name of a call, such as Solution of ``Solution().add(2, 3)``.

    It is None for an imported module, such as math of ``math.isclose(x, 1)``.
    """
    node = call.func
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name) and node is not call.func and node.id in IMPORTED:
        return None
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _bound(tree: ast.AST) -> set[str]:
    """Return the names that code binds."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.alias(name=name, asname=other):
                names.add((other or name).split(".")[0])
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.arg(arg=name):
                names.add(name)
    return names


def _values(output: bytes) -> Any:
    """Parse the values that a program wrote.

    Raises:
        ValueError: it takes too long, such as a set whose elements have equal hashes.
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


def same_text(expected: str, given: str, tolerance: float) -> bool:
    """Compare texts by lines and words, ignoring space between words, at ends of lines, and around the text.

    Words are equal as texts or as decimal numbers. If the expected number has a point or an exponent, it may differ by
    ``tolerance``, relative or absolute. LiveCodeBench compares by value, which is a tolerance of 0.
    """
    lines, given_lines = ([line.split() for line in text.strip().split("\n")] for text in (expected, given))
    return len(lines) == len(given_lines) and all(
        line == other
        or (len(line) == len(other) and all(_same_word(*words, tolerance) for words in zip(line, other, strict=True)))
        for line, other in zip(lines, given_lines, strict=True)
    )


def same_value(expected: Any, given: Any, tolerance: float) -> bool:
    """Compare a returned value with a JSON value; a tuple counts as a list, as in LiveCodeBench.

    An expected float may differ by ``tolerance``, relative or absolute.
    """
    if isinstance(expected, list):
        return (
            isinstance(given, list | tuple)
            and len(expected) == len(given)
            and all(same_value(*pair, tolerance) for pair in zip(expected, given, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(given, dict)
            and expected.keys() == given.keys()
            and all(same_value(one, given[key], tolerance) for key, one in expected.items())
        )
    if isinstance(expected, float) and isinstance(given, int | float):
        return _close(expected, given, tolerance)
    return bool(expected == given)


def _same_word(expected: str, given: str, tolerance: float) -> bool:
    if expected == given:
        return True
    if not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(given)):
        return False
    try:
        if Decimal(expected) == Decimal(given):
            return True
    except InvalidOperation:  # an exponent beyond all bounds
        return False
    return not expected.lstrip("+-").isdigit() and _close(float(expected), float(given), tolerance)


def _close(expected: float, given: float, tolerance: float) -> bool:
    try:
        return expected == given or math.isclose(expected, given, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an integer beyond all floats
        return False
