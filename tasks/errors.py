"""Errors that a user can fix: each message names the thing, its value and what to do.

They derive from ``click.ClickException`` so that ``pyflyte run`` and ``mu-grpo`` print the message in a box instead of
a traceback.
"""

from typing import ClassVar

import click


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
