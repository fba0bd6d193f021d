"""How an S3 server is reached, which of its failures pass, and what the others mean.

Endpoint, region and credentials come from the standard AWS variables and files, or from ``FLYTE_AWS_ENDPOINT``,
``FLYTE_AWS_ACCESS_KEY_ID`` and ``FLYTE_AWS_SECRET_ACCESS_KEY``. ``MU_GRPO_S3_PATIENCE`` is the number of seconds for
which a request that fails is tried again, 120 unless set.
"""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

import aiohttp
import s3fs
from aiobotocore.session import AioSession
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from tasks.artifacts.files import RESTORE, disk_mend

_UNACCEPTED = "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
_EXPIRED = "the credentials have expired. Renew them"
_CREDENTIALS = {
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidAccessKeyId": f"the server does not know the access key. {_UNACCEPTED}",
    "InvalidToken": f"the server does not accept the session token. {_UNACCEPTED}",
    "SignatureDoesNotMatch": f"the secret key is not that of the access key. {_UNACCEPTED}",
    "RequestTimeTooSkewed": "the clocks of this machine and of the server differ. Set this machine's clock",
}
"""By the server's error code: what is wrong, and the mend."""
_FAILED_CONDITIONS = {"PreconditionFailed", "412"}
"""Codes of the refusal of a conditional request. Only some servers add which condition it was."""
_WITHOUT_REASON = "400"
"""The code of a refusal of HEAD: its answer has no body."""

T = TypeVar("T")


class Damaged(Exception):
    """A download does not have the digest that its manifest names."""


class OfObject(Exception):
    """What went wrong with one of many objects."""

    def __init__(self, key: str, error: Exception) -> None:
        super().__init__(key)
        self.key, self.error = key, error


TRANSFER_ERRORS = (OSError, BotoCoreError, ClientError, aiohttp.ClientError, asyncio.TimeoutError)
"""What a request raises when it fails."""


def _of_transfer(error: BaseException) -> bool:
    return isinstance(error, TRANSFER_ERRORS)


def code(error: BaseException) -> str:
    """The server's code for what is wrong, such as NoSuchBucket; empty when the server did not answer."""
    answer = error if isinstance(error, ClientError) else error.__cause__
    return str(answer.response["Error"].get("Code", "")) if isinstance(answer, ClientError) else ""


def refused_by_condition(error: BaseException) -> bool:
    """Return True if a conditional request was refused because the object exists already."""
    return code(error) in _FAILED_CONDITIONS


def transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    if code(error) in {*_CREDENTIALS, _WITHOUT_REASON} or refused_by_condition(error):
        return False
    if isinstance(error, FileNotFoundError | PermissionError | NoCredentialsError):
        return False
    if isinstance(error, OSError) and disk_mend(error):
        return False
    return _of_transfer(error) and "expired" not in str(error).lower()


def retrying() -> Retrying:
    """Calls a function of a connection again, a few times, while what fails may pass."""
    return Retrying(
        retry=retry_if_exception(transient), stop=stop_after_attempt(5), wait=wait_exponential(max=30), reraise=True
    )


def connect(connections: int, timeout: float | None = None) -> s3fs.S3FileSystem:
    """The server that the environment names, with so many connections at once.

    Args:
        connections: at most.
        timeout: seconds for a connection and for an answer; 10 and 60 without it.
    """
    environment = os.environ
    endpoint = next(
        (
            environment[name]
            for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "FLYTE_AWS_ENDPOINT")
            if environment.get(name)
        ),
        None,
    )
    key, secret = environment.get("FLYTE_AWS_ACCESS_KEY_ID"), environment.get("FLYTE_AWS_SECRET_ACCESS_KEY")
    own = environment.get("AWS_ACCESS_KEY_ID") or environment.get("AWS_PROFILE")
    # Servers other than Amazon's seldom answer to host names made of bucket names.
    style = environment.get("FLYTE_AWS_ADDRESSING_STYLE") or ("path" if endpoint else "auto")
    session = AioSession()
    session.register("before-sign.s3.PutObject", _sign_no_body_twice)
    files = s3fs.S3FileSystem(
        session=session,
        key=None if own else key,
        secret=None if own else secret,
        endpoint_url=endpoint,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": timeout or 10,
            "read_timeout": timeout or 60,
            "retries": {"mode": "standard", "total_max_attempts": 1},
            "s3": {"addressing_style": style},
            "max_pool_connections": connections,
            "user_agent": "mu-grpo",
        },
        skip_instance_cache=True,
    )
    # Both libraries try again by themselves, as often as they see fit; here the patience that was asked for decides.
    files.retries = 1
    return files


def _sign_no_body_twice(request: AWSRequest, **_: Any) -> None:
    """Leaves the body out of a signature that covers its SHA-256 in a header."""
    if "x-amz-checksum-sha256" in request.headers:
        config = request.context["client_config"]
        # A copy: the config is that of all requests.
        request.context["client_config"] = config.merge(Config(s3={**config.s3, "payload_signing_enabled": False}))


def lost(error: Exception) -> bool:
    """Whether the server has another object than a manifest names, or none: what no later request changes."""
    return isinstance(error, Damaged) or (isinstance(error, FileNotFoundError) and code(error) in {"NoSuchKey", "404"})


def explain(uri: str, failed: OfObject, patience: float) -> str:
    """What went wrong with an object, and what to do; empty for an error that is not of this kind."""
    name, error = f"{uri}/{failed.key}", failed.error
    again = "start the same command again: what was committed is kept."
    if isinstance(error, Damaged):
        return f"{name}: corrupted: its sha256 is not the manifest's. {RESTORE}"
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return f"{name}: no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, then {again}"
    if isinstance(error, OSError) and error.errno and (mend := disk_mend(error)):
        return f"{name}: {error.strerror} in the local copy. {mend}, then {again}"
    if wrong := _CREDENTIALS.get(code(error)) or ("expired" in str(error).lower() and _EXPIRED):
        return f"{name}: {wrong}, then {again}"
    if isinstance(error, PermissionError):
        return (
            f"{name}: denied ({error}). Allow listing, reading, writing and deleting below {uri} to these "
            f"credentials, then {again}"
        )
    if isinstance(error, FileNotFoundError):
        if code(error) == "NoSuchBucket":
            return f"{name}: the bucket does not exist. Create it or name another store, then {again}"
        if code(error) == "NoSuchUpload":
            return f"{name}: the server does not know of the upload any more. {again.capitalize()}"
        return f"{name}: missing, but the manifest names it. {RESTORE}"
    if _of_transfer(error):
        waited = f"{patience:.0f} s"
        return f"{name}: failed for {waited}, at last with {error!r}. Check the server and the network, then {again}"
    return ""


async def first_error(work: Coroutine[Any, Any, T]) -> T:
    """The work's result; of a group's errors the first."""
    try:
        return await work
    except ExceptionGroup as group:
        raise innermost(group) from None


def innermost(error: Exception) -> Exception:
    """Of a group's errors the first; another error as it is."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
