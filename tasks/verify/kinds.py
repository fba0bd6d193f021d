"""The kinds of judging (``verify.kind``), as far as they differ outside of the worker processes."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from tasks.errors import SettingsError
from tasks.settings import CodeVerifySettings, FunctionVerifySettings, MathVerifySettings, VerifySettings
from tasks.settings.functions import find_function
from tasks.verify.code.confine import missing
from tasks.verify.code.launcher import LONGEST, PATIENCE
from tasks.verify.verdicts import Extracted, extract, extract_program

Job = tuple[str, ...]
"""The texts that a judge is given: gold answer and extracted answer, or the arguments of a function."""
Read = Callable[[str, str, str], tuple[Extracted, Job | None]]
"""Takes gold answer, response and prompt; returns what is extracted, and a judge's job, None without an answer."""


@dataclass(frozen=True)
class Kind:
    """A kind of judging: how jobs are read, how long a worker is waited for, and what messages say."""

    read: Read
    patience: float
    """Seconds by the clock after which a worker that says nothing is given up."""
    setting: str
    """The setting to name when workers do not start."""
    start_fix: str
    """The fix that the message proposes then."""
    failures_fix: str
    """The fix when too many responses cannot be judged, up to the name of the setting that allows more."""
    check: Callable[[], str | None] = lambda: None
    """Raises SettingsError where this machine cannot judge in this way; returns a folder of modules for the worker."""


def kind_of(settings: VerifySettings) -> Kind:
    """Return the kind of judging that settings ask for."""
    memory_mib = settings.memory_mib
    if isinstance(settings, CodeVerifySettings):
        return Kind(
            _answers_by(extract_program, settings.code.max_program_characters),
            # A worker says something before each run of a program, and must give up on that before it is given up.
            LONGEST * settings.code.seconds + 30,
            "verify.kind: code",
            "docs/verifying.md tells what the verifier of programs needs.",
            "A program that takes too long is wrong; it times out where the machine gave it no time, and crashes where "
            "the machine killed it. Lower verify.workers or give the verifier more CPU against timeouts, more memory "
            f"(verify.workers times verify.code.memory_mib, {settings.code.memory_mib}, at worst) against crashes, or "
            "raise",
            lambda: _check_confinement(settings),
        )
    if isinstance(settings, FunctionVerifySettings):
        return Kind(
            lambda gold, response, prompt: (Extracted(), (prompt, response, gold)),
            PATIENCE * settings.deadline_seconds,
            f"verify.function: {settings.function}",
            f"Fix the function or its module, or raise verify.memory_mib ({memory_mib}) if it needs more.",
            f"The log has the first traceback of {settings.function}. Fix the function, raise verify.deadline_seconds "
            f"({settings.deadline_seconds:g}) against timeouts, verify.memory_mib ({memory_mib}) where it needs more, "
            "or",
            lambda: _check_source(settings),
        )
    if not isinstance(settings, MathVerifySettings):
        raise TypeError(f"no verifier for {type(settings).__name__}")
    return Kind(
        _answers_by(extract, settings.max_answer_characters),
        PATIENCE * settings.deadline_seconds,
        f"verify.memory_mib: {memory_mib}",
        f"Raise verify.memory_mib (its default is {VerifySettings().memory_mib}). If that does not help, see whether "
        "`python -c 'import math_verify'` works.",
        f"Raise verify.deadline_seconds ({settings.deadline_seconds:g}) against timeouts, verify.memory_mib "
        f"({memory_mib}) against crashes, or",
    )


def _answers_by(find: Callable[[str], Extracted], longest: int) -> Read:
    def read(gold: str, response: str, _prompt: str) -> tuple[Extracted, Job | None]:
        found = find(response)
        answered = found.answer is not None and len(found.answer) <= longest
        return found, (gold, found.answer or "") if answered else None

    return read


def _check_confinement(settings: CodeVerifySettings) -> None:
    if lacks := missing(settings.code.require_landlock):
        raise SettingsError(
            f"verify.kind: code; programs cannot be confined on this machine ({sys.platform}): {lacks}."
        )


def _check_source(settings: FunctionVerifySettings) -> str:
    """Return the folder of the user's module, whose source must be the one that the settings were read with."""
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
