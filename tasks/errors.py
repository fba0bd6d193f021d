"""Errors that a user can fix: each message names the thing, its value and what to do.

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
"""Characters of a library's own words that a message repeats."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""First bytes of what Git LFS leaves in place of a file whose content a clone has not fetched."""


class UserError(click.ClickException):
    """The base of every error whose message is meant for the user."""

    recoverable: ClassVar[bool] = False
    """Another attempt may succeed although nobody has fixed anything."""


class SettingsError(UserError):
    """A setting is unknown, missing, of the wrong type, or impossible together with another."""

    exit_code = 2


class ArtifactError(UserError):
    """A store cannot be read or written, or an artifact in it is not as it should be."""

    recoverable = True


class DamagedError(ArtifactError):
    """Files are missing or not what their manifest names: what they held must be restored or made again."""

    recoverable = False


class DataError(UserError):
    """A prompt file, a policy folder or a table does not hold what a step needs."""


class FetchError(DataError):
    """Prompts or a policy could not be fetched from S3 or from the hub."""

    recoverable = True


class GateError(UserError):
    """A measured quantity left the range in which going on makes sense."""


class NothingToLearnError(GateError):
    """No group of a stage has both better and worse responses, so every advantage is zero."""


class DeploymentError(UserError):
    """A cluster, or what was registered or pushed to it, is not as a run needs it."""


@contextmanager
def explain(what: str, advice: str) -> Iterator[None]:
    """Turn any error that a library raises on a model or file of the user's into a DataError of one line.

    Args:
        what: what could not be done, such as ``mine: transformers cannot load its tokenizer``.
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
