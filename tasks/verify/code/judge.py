"""Judges one program by the tests of a reference answer."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tasks.verify.code.gold import Test, read_gold
from tasks.verify.code.launcher import End
from tasks.verify.code.play import DIGITS
from tasks.verify.code.sandbox import Ran, Sandbox
from tasks.verify.verdicts import Outcome


class DisturbedError(Exception):
    """A program ended for a reason outside of it."""

    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end = end


class ProgramJudge:
    """A judge of programs: ``judge(gold, program)`` returns an outcome.

    A program is right when every test passes; the first that does not ends the matter. A program that fails, or takes
    too long or too much, is wrong. It is ``timeout`` only where the machine gave the program no time.

    Args:
        limits: the fields of the settings ``verify.code``.
        before_each: called before a program runs.

    Raises:
        RuntimeError: programs cannot be confined here.
    """

    def __init__(self, limits: Mapping[str, Any], before_each: Callable[[], object] = lambda: None) -> None:
        sys.set_int_max_str_digits(DIGITS)
        self._limits = limits
        self._sandbox = Sandbox(limits, before_each)

    def close(self) -> None:
        """Ends the processes of the sandbox."""
        self._sandbox.close()

    def __call__(self, gold: str, program: str) -> Outcome:
        """Return ``correct``, ``wrong``, ``gold_unparsable`` or ``timeout``.

        Raises:
            DisturbedError: a program or its launcher was killed from outside.
        """
        try:
            tests = read_gold(gold, self._limits["output_mib"] << 20)
        except (ValueError, SyntaxError):
            return Outcome.GOLD_UNPARSABLE
        try:
            passed = all(self._passes(program, test) for test in tests)
        except DisturbedError as disturbed:
            if disturbed.end is End.STARVED:
                return Outcome.TIMEOUT
            raise
        return Outcome.CORRECT if passed else Outcome.WRONG

    def _passes(self, program: str, test: Test) -> bool:
        ran = self._run(program, test.mode, test.given)
        if ran.end is not End.WELL:
            return False
        try:
            return test.holds(ran.output, self._limits["float_tolerance"], self._run)
        except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):  # A program can write anything.
            return False

    def _run(self, program: str, mode: str, given: bytes) -> Ran:
        ran = self._sandbox.run(program, mode, given)
        if ran.end in (End.STARVED, End.KILLED):
            raise DisturbedError(ran.end)
        return ran
