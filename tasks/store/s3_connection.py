"""Connects to an S3 server, tells failures that pass from those that do not, and names the fix for the others.

Endpoint, region and credentials come from the standard AWS variables and files, or from ``FLYTE_AWS_ENDPOINT``,
``FLYTE_AWS_ACCESS_KEY_ID`` and ``FLYTE_AWS_SECRET_ACCESS_KEY``.
"""

import asyncio
import logging
import os

import aiohttp
import s3fs
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from tenacity import (
    RetryCallState,
    Retrying,
    before_sleep_log,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from tasks.errors import ArtifactError, DamagedError
from tasks.logs import logger
from tasks.store.files import RESTORE, disk_fix

_QUIET_ATTEMPTS = 5
"""Failed attempts of one request before a warning."""
_KEYS = "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
_EXPIRED = "the credentials have expired. Renew them"
_CREDENTIALS = {
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidAccessKeyId": f"the server does not know the access key. {_KEYS}",
    "InvalidToken": f"the server does not accept the session token. {_KEYS}",
    "SignatureDoesNotMatch": f"the secret key is not that of the access key. {_KEYS}",
    "RequestTimeTooSkewed": "the clocks of this machine and of the server differ. Set this machine's clock",
}
"""Problems and their fixes, by the server's error code."""
_WITHOUT_REASON = "400"
"""The code of a refused HEAD request: its answer has no body that says why."""

TRANSFER_ERRORS = (OSError, BotoCoreError, ClientError, aiohttp.ClientError, asyncio.TimeoutError)
"""Errors that a request raises when it fails."""


def patience() -> float:
    """Return the number of seconds for which a failing request is tried again."""
    return float(os.environ.get("MU_GRPO_S3_PATIENCE", "120"))


def code(error: BaseException) -> str:
    """Return the server's code for what is wrong, such as NoSuchBucket; empty when the server did not answer."""
    answer = error if isinstance(error, ClientError) else error.__cause__
    return str(answer.response["Error"].get("Code", "")) if isinstance(answer, ClientError) else ""


def refused_by_condition(error: BaseException) -> bool:
    """Return True if a conditional request was refused because the object exists already."""
    return code(error) in {"PreconditionFailed", "412"}  # Only some servers add which condition failed.


def retrying(seconds: float) -> Retrying:
    """Return a caller that tries a request again for some seconds, while its error may pass."""
    return Retrying(
        retry=retry_if_exception(_transient),
        wait=wait_random_exponential(multiplier=0.2, max=20),
        stop=stop_after_delay(seconds),
        before_sleep=_warn,
        reraise=True,
    )


def _transient(error: BaseException) -> bool:
    if code(error) in {*_CREDENTIALS, _WITHOUT_REASON} or refused_by_condition(error):
        return False
    if isinstance(error, FileNotFoundError | PermissionError | NoCredentialsError):
        return False
    if isinstance(error, OSError) and disk_fix(error):
        return False
    return isinstance(error, TRANSFER_ERRORS) and "expired" not in str(error).lower()


def _warn(state: RetryCallState) -> None:
    level = logging.DEBUG if state.attempt_number < _QUIET_ATTEMPTS else logging.WARNING
    before_sleep_log(logger(), level)(state)


def connect(connections: int, timeout: float | None = None) -> s3fs.S3FileSystem:
    """Return a file system on the server that the environment names.

    It has so many connections at most, and waits so many seconds for one and for an answer: 10 and 60 when None.
    """
    named = os.environ.get
    endpoint = named("AWS_ENDPOINT_URL_S3") or named("AWS_ENDPOINT_URL") or named("FLYTE_AWS_ENDPOINT")
    own = named("AWS_ACCESS_KEY_ID") or named("AWS_PROFILE")
    files = s3fs.S3FileSystem(
        key=None if own else named("FLYTE_AWS_ACCESS_KEY_ID"),
        secret=None if own else named("FLYTE_AWS_SECRET_ACCESS_KEY"),
        endpoint_url=endpoint or None,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": timeout or 10,
            "read_timeout": timeout or 60,
            "retries": {"mode": "standard", "total_max_attempts": 1},
            # Servers other than Amazon's seldom answer to host names made of bucket names.
            "s3": {"addressing_style": named("FLYTE_AWS_ADDRESSING_STYLE") or ("path" if endpoint else "auto")},
            "max_pool_connections": connections,
            "user_agent": "mu-grpo",
        },
        skip_instance_cache=True,
    )
    # Both libraries try again by themselves, as often as they see fit; here the patience that was asked for decides.
    files.retries = 1
    return files


def failure(name: str, store: str, error: Exception, seconds: float) -> ArtifactError:
    """Return the error that says what went wrong with an object, which was tried for some seconds, and the fix."""
    again = "start the same command again: what was committed is kept."
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        text = "no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    elif isinstance(error, OSError) and (fix := disk_fix(error)):
        text = f"{error.strerror} in the local copy. {fix}"
    elif wrong := _CREDENTIALS.get(code(error)) or ("expired" in str(error).lower() and _EXPIRED):
        text = wrong
    elif isinstance(error, PermissionError):
        text = f"denied ({error}). Allow listing, reading, writing and deleting below {store} to these credentials"
    elif code(error) == "NoSuchBucket":
        text = "the bucket does not exist. Create it or name another store"
    elif code(error) == "NoSuchUpload":
        return ArtifactError(f"{name}: the server does not know of the upload any more. {again.capitalize()}")
    elif isinstance(error, FileNotFoundError):
        return DamagedError(f"{name}: missing, but the manifest names it. {RESTORE}")
    else:
        text = f"failed for {seconds:.0f} s, at last with {error!r}. Check the server and the network"
    return ArtifactError(f"{name}: {text}, then {again}")
