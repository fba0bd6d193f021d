"""Errors that a user can fix. Each message names the field or file, its value, and how to fix it.

They derive from ``click.ClickException`` so that ``pyflyte run`` and ``mu-grpo`` print the message in a box instead of
a traceback.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self

import click

from tasks.formats import visible

_LONGEST = 400
"""Most characters of a library's error that a message repeats."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""First bytes of a Git LFS pointer, which a clone has in place of a file that was not fetched."""


class UserError(click.ClickException):
    """Base class of errors whose message is for the user."""

    recoverable: ClassVar[bool] = False
    """True if a retry may succeed without a fix."""


class SettingsError(UserError):
    """A setting is unknown, missing, of the wrong type, or not allowed together with another setting."""

    exit_code = 2


class ArtifactError(UserError):
    """A store cannot be read or written, or an artifact is missing or invalid."""

    problem = ""
    """The problem without the place and the fix; empty if the error was not made by ``of``."""

    @classmethod
    def of(cls, place: str, problem: str, fix: str, details: str = "") -> Self:
        """Return the error for a problem of a file or folder."""
        error = cls(f"{place}: {problem}{f' ({details})' if details else ''}. {fix}")
        error.problem = problem
        return error


class DamagedError(ArtifactError):
    """Files of an artifact are missing or differ from its manifest, and must be restored or made again."""


class StorageError(ArtifactError):
    """A disk, a server or another process prevents a step from using the store, perhaps only for a time."""

    recoverable = True


class DataError(UserError):
    """A file of prompts, a policy folder or a table lacks data that a step needs, or has invalid data."""


class FetchError(DataError):
    """Prompts or a policy could not be fetched from S3 or from the hub."""

    recoverable = True


class GateError(UserError):
    """A measured quantity left its allowed range, so that the run stops."""


class CollapseError(GateError):
    """A gradient or log-probabilities are not finite: training has destroyed the policy, or the engine is at fault."""


class NothingToLearnError(GateError):
    """No group of a stage has responses with different rewards, so that every advantage is zero."""


class DeploymentError(UserError):
    """A cluster, a registration or an image does not fit the run."""


class DeviceError(UserError):
    """GPUs are missing or fail, which may be the fault of one machine."""

    recoverable = True


@contextmanager
def explain(what: str, advice: str) -> Iterator[None]:
    """Turn an error that a library raises on a user's model or file into a DataError with one line.

    ``what`` is the failure, such as ``mine: transformers cannot load its tokenizer``, and ``advice`` the fix, in whole
    sentences.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        text = visible(f"{type(error).__name__}: {error}")  # A model's files can decide what it says.
        reason = textwrap.shorten(text, _LONGEST, placeholder=" ...").rstrip(".")
        raise DataError(f"{what}: {reason}. {advice}") from error


def check_extra(package: str, setting: str, otherwise: str = "", extra: str = "gpu") -> None:
    """Raise SettingsError if a package of an extra of this project, which ``setting`` needs, is not installed.

    ``otherwise`` continues the message with another fix.
    """
    if find_spec(package.replace("-", "_")) is None:
        install = f"Install it with `pip install 'mu-grpo[{extra}]'`"
        raise SettingsError(f"{setting}: {package} is not installed here. {install}{otherwise}.")


def check_fetched(file: Path, name: str) -> None:
    """Raise DataError if a file is a Git LFS pointer; ``name`` names the file in the message."""
    with file.open("rb") as opened:
        if opened.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise DataError(f"{name}: a pointer of Git LFS, not the file itself. Run `git lfs pull` in its folder.")
