"""What differs between kinds of answers, on this side of the worker processes."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from tasks.errors import SettingsError
from tasks.settings import VerifySettings
from tasks.verify.answers import Extracted, extract, extract_program
from tasks.verify.code.confine import missing
from tasks.verify.code.launcher import LONGEST, PATIENCE


@dataclass(frozen=True)
class Domain:
    """A kind of answers."""

    extract: Callable[[str], Extracted]
    """Finds the answer in a response."""
    longest: int
    """Characters of an answer; a longer one counts as none."""
    patience: float
    """Seconds by the clock after which a worker that says nothing is given up."""
    start_setting: str
    """What to name when workers do not start."""
    start_mend: str
    """What to do then."""
    failures_mend: str
    """What to do when too many answers cannot be judged."""


def domain_of(settings: VerifySettings) -> Domain:
    """The domain of ``verify.kind``."""
    if settings.kind == "code":
        return Domain(
            extract_program,
            settings.code.max_program_characters,
            # A worker says something before each run of a program, and must give up on that before it is given up.
            LONGEST * settings.code.seconds + 30,
            "verify.kind: code",
            "docs/verifying.md tells what the verifier of programs needs.",
            "A program that takes too long is wrong; it times out where the machine gave it no time, and crashes where "
            "the machine killed it. Lower verify.workers or give the verifier more CPU against timeouts, more memory "
            f"(verify.workers times verify.code.memory_mib, {settings.code.memory_mib}, at worst) against crashes, or "
            "raise",
        )
    return Domain(
        extract,
        settings.max_answer_characters,
        PATIENCE * settings.deadline_seconds,
        f"verify.memory_mib: {settings.memory_mib}",
        f"Raise verify.memory_mib (its default is {VerifySettings().memory_mib}). If that does not help, see whether "
        "`python -c 'import math_verify'` works.",
        f"Raise verify.deadline_seconds ({settings.deadline_seconds:g}) against timeouts, verify.memory_mib "
        f"({settings.memory_mib}) against crashes, or",
    )


def require(settings: VerifySettings) -> None:
    """Looks whether this machine can judge answers of ``verify.kind``.

    Raises:
        SettingsError: it cannot.
    """
    lacks = missing(settings.code.require_landlock) if settings.kind == "code" else None
    if lacks:
        raise SettingsError(
            f"verify.kind: code; programs cannot be confined on this machine ({sys.platform}): {lacks}."
        )
