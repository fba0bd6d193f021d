"""Errors that a user can fix. Each message names the thing, its value and the fix.

They derive from ``click.ClickException`` so that ``pyflyte run`` and ``mu-grpo`` print the message in a box instead of
a traceback.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import click

_LONGEST = 400
"""Most characters of a library's message that are repeated."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""First bytes of what Git LFS leaves in place of a file whose content a clone has not fetched."""


class UserError(click.ClickException):
    """Base of all errors with a message for the user."""

    recoverable: ClassVar[bool] = False
    """Whether another attempt may succeed without a fix."""


class SettingsError(UserError):
    """A setting is unknown, missing, of the wrong type, or does not fit another one."""

    exit_code = 2


class ArtifactError(UserError):
    """A store cannot be read or written, or an artifact in it is wrong."""

    recoverable = True


class DamagedError(ArtifactError):
    """Files are missing or differ from their manifest, and must be restored or made again."""

    recoverable = False


class DataError(UserError):
    """A prompt file, a policy folder or a table lacks something that a step needs."""


class FetchError(DataError):
    """Prompts or a policy could not be fetched from S3 or from the hub."""

    recoverable = True


class GateError(UserError):
    """A measured quantity left the range in which a run may continue."""


class NothingToLearnError(GateError):
    """No group of a stage has both better and worse responses, so every advantage is zero."""


class DeploymentError(UserError):
    """A cluster, an image or a registration does not fit the run."""


@contextmanager
def explain(what: str, advice: str) -> Iterator[None]:
    """Turn any error of a library about a user's model or file into a DataError of one line.

    Args:
        what: what failed, such as ``mine: transformers cannot load its tokenizer``.
        advice: how to fix it, in whole sentences.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        why = textwrap.shorten(f"{type(error).__name__}: {error}", _LONGEST, placeholder=" ...").rstrip(".")
        raise DataError(f"{what}: {why}. {advice}") from error


def check_fetched(file: Path, name: str) -> None:
    """Raise DataError if a file is a pointer of Git LFS; ``name`` is what the message calls the file."""
    with file.open("rb") as opened:
        if opened.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise DataError(f"{name}: a pointer of Git LFS, and no such file yet. Run `git lfs pull` in its folder.")
