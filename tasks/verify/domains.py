"""The kinds of judging, as far as they differ on this side of the worker processes."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from tasks.errors import SettingsError
from tasks.settings import CodeVerifySettings, FunctionVerifySettings, MathVerifySettings, VerifySettings
from tasks.settings.functions import find_function
from tasks.verify.answers import Extracted, extract, extract_program
from tasks.verify.code.confine import missing
from tasks.verify.code.launcher import LONGEST, PATIENCE

Job = tuple[str, ...]
"""What a judge is given: gold answer and extracted answer, or the arguments of a function."""
NOTHING = Extracted(None, False)


@dataclass(frozen=True)
class Domain:
    """A kind of judging: how jobs are read, how long a worker is waited for, and what messages name."""

    read: Callable[[str, str, str], tuple[Extracted, Job | None]]
    """From gold answer, response and prompt to what is extracted and a judge's job; None where there is no answer."""
    patience: float
    """Seconds by the clock after which a worker that says nothing is given up."""
    start_setting: str
    """What to name when workers do not start."""
    start_fix: str
    """What to do then."""
    failures_fix: str
    """What to do when too many responses cannot be judged."""
    folder: Callable[[], str | None] = lambda: None
    """The folder that a worker imports the user's module from."""


def domain_of(settings: VerifySettings) -> Domain:
    """Return the domain of ``verify.kind``."""
    if isinstance(settings, CodeVerifySettings):
        return Domain(
            _answers_by(extract_program, settings.code.max_program_characters),
            # A worker says something before each run of a program, and must give up on that before it is given up.
            LONGEST * settings.code.seconds + 30,
            "verify.kind: code",
            "docs/verifying.md tells what the verifier of programs needs.",
            "A program that takes too long is wrong; it times out where the machine gave it no time, and crashes where "
            "the machine killed it. Lower verify.workers or give the verifier more CPU against timeouts, more memory "
            f"(verify.workers times verify.code.memory_mib, {settings.code.memory_mib}, at worst) against crashes, or "
            "raise",
        )
    if isinstance(settings, FunctionVerifySettings):
        return Domain(
            lambda gold, response, prompt: (NOTHING, (prompt, response, gold)),
            PATIENCE * settings.deadline_seconds,
            f"verify.function: {settings.function}",
            f"Fix the function or its module, or raise verify.memory_mib ({settings.memory_mib}) if it needs more.",
            f"The log has the first traceback of {settings.function}. Fix the function, raise verify.deadline_seconds "
            f"({settings.deadline_seconds:g}) against timeouts, verify.memory_mib ({settings.memory_mib}) where it "
            "needs more, or",
            lambda: _checked_folder(settings),
        )
    if not isinstance(settings, MathVerifySettings):
        raise TypeError(f"no verifier for {type(settings).__name__}")
    return Domain(
        _answers_by(extract, settings.max_answer_characters),
        PATIENCE * settings.deadline_seconds,
        f"verify.memory_mib: {settings.memory_mib}",
        f"Raise verify.memory_mib (its default is {VerifySettings().memory_mib}). If that does not help, see whether "
        "`python -c 'import math_verify'` works.",
        f"Raise verify.deadline_seconds ({settings.deadline_seconds:g}) against timeouts, verify.memory_mib "
        f"({settings.memory_mib}) against crashes, or",
    )


def require(settings: VerifySettings) -> None:
    """Check that this machine can judge as ``verify.kind`` says.

    Raises:
        SettingsError: it cannot.
    """
    lacks = missing(settings.code.require_landlock) if isinstance(settings, CodeVerifySettings) else None
    if lacks:
        raise SettingsError(
            f"verify.kind: code; programs cannot be confined on this machine ({sys.platform}): {lacks}."
        )
    domain_of(settings).folder()


def _answers_by(
    find: Callable[[str], Extracted], longest: int
) -> Callable[[str, str, str], tuple[Extracted, Job | None]]:
    def read(gold: str, response: str, _prompt: str) -> tuple[Extracted, Job | None]:
        found = find(response)
        answered = found.answer is not None and len(found.answer) <= longest
        return found, (gold, found.answer or "") if answered else None

    return read


def _checked_folder(settings: FunctionVerifySettings) -> str:
    """Return the folder of the user's module, whose source must be the one that the settings were read with.

    Raises:
        SettingsError: the function is not found, or its source is another one.
    """
    try:
        found = find_function(settings.function)
    except ValueError as error:
        raise SettingsError(f"verify.function: got {settings.function!r}; {error}.") from None
    if found.digest != settings.source_digest:
        raise SettingsError(
            f"verify.function: {settings.function}; its source in {found.root} is not the one that the run began with "
            f"(digest {found.digest[:12]}, not {settings.source_digest[:12]}). Start the run again to judge everything "
            "by the source that is here; on a cluster, all images of a run must hold the same file."
        )
    return str(found.root)
