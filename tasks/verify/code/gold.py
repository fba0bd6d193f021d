r"""Gold answers of code problems, and comparison of outputs. A gold answer is a JSON object of one of three forms.

Standard input and output, as in LiveCodeBench, APPS and TACO; a text may be a list of its lines::

    {"inputs": ["2 3\n", ...], "outputs": ["5\n", ...]}

Calls of a function, or of a method of the class Solution. An input is a list of arguments; or, as in LiveCodeBench, a
text with one argument in JSON per line, and then the output is a text in JSON. If every output is a list of one item,
the item is right too, as in APPS and TACO, where lists often only wrap the outputs. JSON has no integers as keys: in a
list of arguments, a dict whose every key is an integer in JSON gets integers, and in an output both are right::

    {"fn_name": "add", "inputs": [[2, 3], ...], "outputs": [5, ...]}

Assertions on the values that functions of the program return, as in MBPP. ``setup`` is code with imports and names for
the assertions::

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
from importlib import import_module
from typing import Any

from tasks.verify.code.launcher import IMPORTED, pack, unpack

Run = Callable[[str, str, bytes], bytes | None]
"""A function that runs a program in a mode with an input, and returns its output, or None if it failed."""
_PREAMBLE_NAMES = {*IMPORTED, *(name for module in IMPORTED for name in dir(import_module(module)))}
READING_SECONDS = 10.0
"""CPU seconds to read the output of a program. The longest output takes a tenth, unless it is made to be slow."""
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Test:
    """A test of a program. ``given`` never has the expected output."""

    mode: str
    """Mode of the launcher: ``run``, ``call`` or ``check``."""
    given: bytes
    """Standard input of the program."""
    holds: Callable[[bytes, float, Run], bool]
    """A function that returns True if an output is right. Its arguments are the output, a tolerance, and a function
    that runs the check of an assertion. It raises ValueError, TypeError or RecursionError for an invalid output."""


@lru_cache(maxsize=1)  # Programs of a problem come one after another, and its tests can take hundreds of megabytes.
def read_gold(gold: str, longest_output: int) -> list[Test]:
    """Return the tests of a gold answer; a program can write ``longest_output`` bytes.

    Raises:
        ValueError: the gold answer has none of the three forms, has no test, or expects a longer output.
        SyntaxError: an assertion is not valid Python.
    """
    try:
        fields = json.loads(gold)
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        tests = _assertions(fields) if "asserts" in fields else _pairs(fields, longest_output)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not tests:
        raise ValueError("no tests")
    return tests


def _pairs(fields: dict[str, Any], longest_output: int) -> list[Test]:
    inputs, outputs, name = (fields.get(key) for key in ("inputs", "outputs", "fn_name"))
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise ValueError("inputs and outputs must be lists of the same length")
    if not isinstance(name, str | None):
        raise ValueError(f"fn_name {name!r} is not a name")
    pairs = list(zip(inputs, outputs, strict=True))
    if name is not None:
        # A problem whose every result is None would accept any function.
        wrapped = all(isinstance(one, list) and len(one) == 1 for one in outputs) and outputs != [[None]] * len(outputs)
        return [_call(name, given, expected, wrapped) for given, expected in pairs]
    pairs = [(_joined(given), _joined(expected)) for given, expected in pairs]
    for pair in pairs:
        if not all(isinstance(text, str) for text in pair):
            raise ValueError("inputs and outputs must be texts where there is no fn_name")
        if len(pair[1].encode()) > longest_output:
            raise ValueError(f"an output is longer than the {longest_output} bytes that a program can write")
    return [_text(*pair) for pair in pairs]


def _joined(lines: Any) -> Any:
    """Return the text of a list of lines, as some tests of APPS and TACO have; else the value itself."""
    return "\n".join(lines) if isinstance(lines, list) and all(isinstance(line, str) for line in lines) else lines


def _text(given: str, expected: str) -> Test:
    return Test("run", given.encode(), lambda output, tolerance, _: same_text(expected, output.decode(), tolerance))


def _call(name: str, given: Any, expected: Any, wrapped: bool) -> Test:
    if isinstance(given, str) and isinstance(expected, str):
        given, expected = [json.loads(line) for line in given.split("\n")], json.loads(expected)
    else:
        given = _with_integer_keys(given)
    if not isinstance(given, list):
        raise ValueError(f"{given!r} is not a list of arguments")

    def holds(output: bytes, tolerance: float, _run: Run) -> bool:
        (value,) = _values(output)
        return same_value(expected, value, tolerance) or (wrapped and same_value(expected[0], value, tolerance))

    return Test("call", json.dumps({"call": name, "arguments": pack(given)}).encode(), holds)


def _with_integer_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_integer_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    are_integers = all(_INTEGER.fullmatch(key) for key in value)
    return {int(key) if are_integers else key: _with_integer_keys(item) for key, item in value.items()}


def _assertions(fields: dict[str, Any]) -> list[Test]:
    setup, lines = fields.get("setup", ""), fields["asserts"]
    if not isinstance(setup, str) or not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ValueError("asserts must be a list of texts, setup a text")
    setup_tree = ast.parse(setup)
    return [_assertion(line, setup_tree) for line in lines]


def _assertion(line: str, setup: ast.Module) -> Test:
    """Split an assertion into calls of the program's functions, and the check of their values ``value_0``, ..."""
    setup_names = _bound_names(setup)
    body = ast.parse(line.strip()).body
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        raise ValueError(f"{line!r} is not one assertion")
    # If an assertion calls only functions with names of builtins, they are the program's functions.
    for excluded in (setup_names | set(dir(builtins)), setup_names):
        transformer = _CallReplacer(excluded)
        tree = transformer.visit(ast.parse(line.strip()))
        if calls := transformer.calls:
            break
    else:
        raise ValueError(f"{line!r} calls no function of the program")
    if any(_bound_names(tree) & _used_names(call) for call in calls):
        raise ValueError(f"{line!r} calls a function of the program with a name that the assertion binds")
    known = {*_bound_names(tree), *setup_names, *_PREAMBLE_NAMES, *(f"value_{index}" for index in range(len(calls)))}
    if "*" not in setup_names and (unknown := _used_names(tree) - known):
        raise ValueError(f"{line!r} uses {min(unknown)}, which may be of the program, outside of its calls")
    called = {_root_name(node) for call in calls for node in ast.walk(call)}
    functions = sorted(name for name in called if name is not None and name not in excluded)
    expressions = [ast.unparse(call) for call in calls]
    check = f"{_needed(setup, _used_names(tree))}\n{ast.unparse(tree)}"

    def holds(output: bytes, _tolerance: float, run: Run) -> bool:
        return len(_values(output)) == len(expressions) and run(check, "check", output) is not None

    needed = _needed(setup, set().union(*map(_used_names, calls)))
    request = {"setup": needed, "functions": functions, "expressions": expressions}
    return Test("call", json.dumps(request).encode(), holds)


def _needed(setup: ast.Module, names: set[str]) -> str:
    """Return the statements of a setup that code with these names needs.

    No process gets others: the program must not see a reference solution, and the check lacks the program's classes.
    """
    targets = {statement: _targets(statement) for statement in setup.body}
    assigned = set().union(*targets.values())
    kept: set[ast.stmt] = set()

    def is_needed(statement: ast.stmt) -> bool:
        # Statements that assign nothing, such as loops, count by all assigned names in them, and imports always.
        about = targets[statement] or _used_names(statement) & assigned
        return not about or not about.isdisjoint(names)

    while more := {statement for statement in setup.body if statement not in kept and is_needed(statement)}:
        kept |= more
        names = names.union(*map(_used_names, more))
    return "\n".join(ast.unparse(statement) for statement in setup.body if statement in kept)


def _targets(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines, assigns, or changes, such as x of ``x[0] = 1``."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return set().union(*map(_used_names, targets))
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return _used_names(target)
    return set()


class _CallReplacer(ast.NodeTransformer):
    """A transformer that replaces outermost calls with attributes by ``value_0``, ..., but not ``excluded`` names."""

    def __init__(self, excluded: set[str]) -> None:
        self.calls: list[ast.expr] = []
        self._excluded = excluded

    def visit_Call(self, node: ast.expr) -> ast.AST:
        name = _root_name(node)
        if name is None or name in self._excluded:
            return self.generic_visit(node)
        self.calls.append(node)
        return ast.Name(f"value_{len(self.calls) - 1}", ast.Load())

    visit_Attribute = visit_Call


def _root_name(node: ast.AST) -> str | None:
    """Return the first name of a call, or of an attribute of its result, such as f of ``f(2).g(3)`` and ``f(2).x``.

    It is None without a call, and for a module of the preamble, such as math of ``math.isclose(x, 1)``.
    """
    parent, calls = node, False
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        calls |= isinstance(node, ast.Call)
        parent, node = node, node.func if isinstance(node, ast.Call) else node.value
    if not calls or not isinstance(node, ast.Name) or (isinstance(parent, ast.Attribute) and node.id in IMPORTED):
        return None
    return node.id


def _used_names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _bound_names(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.alias(name=name, asname=alias):
                names.add((alias or name).split(".")[0])
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.arg(arg=name):
                names.add(name)
    return names


def _values(output: bytes) -> Any:
    """Return the values in the output of a program.

    Raises:
        ValueError: reading takes too long, for example a set whose elements all have the same hash.
    """

    def give_up(*_: object) -> None:
        raise ValueError(f"not read within {READING_SECONDS:g} s")

    previous = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, READING_SECONDS)
    try:
        return unpack(json.loads(output))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def same_text(expected: str, given: str, tolerance: float) -> bool:
    """Return True if two texts have the same words in the same lines; empty lines at start and end are ignored.

    Words are equal as texts or as decimal numbers. If the expected number has a point or an exponent, the difference
    may be up to ``tolerance``, relative or absolute. A tolerance of 0 compares as LiveCodeBench does.
    """
    lines, given_lines = ([line.split() for line in text.strip().split("\n")] for text in (expected, given))
    return len(lines) == len(given_lines) and all(
        line == other
        or (len(line) == len(other) and all(_same_word(*words, tolerance) for words in zip(line, other, strict=True)))
        for line, other in zip(lines, given_lines, strict=True)
    )


def same_value(expected: Any, given: Any, tolerance: float) -> bool:
    """Return True if a returned value equals an expected value of JSON; a tuple equals a list, as in LiveCodeBench.

    The difference from an expected float may be up to ``tolerance``, relative or absolute.
    """
    if isinstance(expected, list):
        return (
            isinstance(given, list | tuple)
            and len(expected) == len(given)
            and all(same_value(*pair, tolerance) for pair in zip(expected, given, strict=True))
        )
    if isinstance(expected, dict):
        if not isinstance(given, dict):
            return False
        # Of integers, which JSON has turned into texts. A dict may have both 1 and "1".
        named = {str(key) if type(key) is int else key: value for key, value in given.items()}
        return (
            len(named) == len(given)
            and expected.keys() == named.keys()
            and all(same_value(value, named[key], tolerance) for key, value in expected.items())
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
    except InvalidOperation:  # The exponent is too large.
        return False
    if not tolerance or expected.lstrip("+-").isdigit():
        return False
    # Numbers beyond the largest float, such as 1e400 and 1e500, would both be infinite.
    return math.isfinite(float(expected)) and _close(float(expected), float(given), tolerance)


def _close(expected: float, given: float, tolerance: float) -> bool:
    try:
        return expected == given or math.isclose(expected, given, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # The integer is too large for a float.
        return False
