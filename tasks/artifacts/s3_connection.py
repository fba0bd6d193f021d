"""How an S3 server is reached, which of its failures pass, and what the others mean.

Endpoint, region and credentials come from the standard AWS variables and files, or from ``FLYTE_AWS_ENDPOINT``,
``FLYTE_AWS_ACCESS_KEY_ID`` and ``FLYTE_AWS_SECRET_ACCESS_KEY``. ``MU_GRPO_S3_PATIENCE`` is the number of seconds for
which a request that fails is tried again, 120 unless set.
"""

import asyncio
import os
from typing import Any

import aiohttp
import s3fs
from aiobotocore.session import AioSession
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from tasks.artifacts.files import RESTORE, disk_fix

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
"""Descriptions of errors with their fixes, by the server's error code."""
_FAILED_CONDITIONS = {"PreconditionFailed", "412"}
"""Codes with which a server refuses a conditional request. Only some servers add which condition failed."""
_WITHOUT_REASON = "400"
"""The code of a refused HEAD request: its answer has no body that says why."""


class Damaged(Exception):
    """A download does not have the digest that its manifest names."""


TRANSFER_ERRORS = (OSError, BotoCoreError, ClientError, aiohttp.ClientError, asyncio.TimeoutError)
"""Errors that a request raises when it fails."""


def code(error: BaseException) -> str:
    """Return the server's code for what is wrong, such as NoSuchBucket; empty when the server did not answer."""
    answer = error if isinstance(error, ClientError) else error.__cause__
    return str(answer.response["Error"].get("Code", "")) if isinstance(answer, ClientError) else ""


def refused_by_condition(error: BaseException) -> bool:
    """Return True if a conditional request was refused because the object exists already."""
    return code(error) in _FAILED_CONDITIONS


def transient(error: BaseException) -> bool:
    """Return True if the same request may succeed a moment later."""
    if code(error) in {*_CREDENTIALS, _WITHOUT_REASON} or refused_by_condition(error):
        return False
    if isinstance(error, FileNotFoundError | PermissionError | NoCredentialsError):
        return False
    if isinstance(error, OSError) and disk_fix(error):
        return False
    return isinstance(error, TRANSFER_ERRORS) and "expired" not in str(error).lower()


def retrying() -> Retrying:
    """Return a caller that tries a function of a connection up to five times, while its error may pass."""
    return Retrying(
        retry=retry_if_exception(transient), stop=stop_after_attempt(5), wait=wait_exponential(max=30), reraise=True
    )


def connect(connections: int, timeout: float | None = None) -> s3fs.S3FileSystem:
    """Return a file system on the server that the environment names.

    Args:
        connections: the largest number of connections at once.
        timeout: seconds to wait for a connection and for an answer; 10 and 60 when None.
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
    """Leave the body out of a signature that covers the body's SHA-256 in a header."""
    if "x-amz-checksum-sha256" in request.headers:
        config = request.context["client_config"]
        # A copy: the config is that of all requests.
        request.context["client_config"] = config.merge(Config(s3={**config.s3, "payload_signing_enabled": False}))


def lost(error: Exception) -> bool:
    """Return True if the server has another object than a manifest names, or none: no later request changes that."""
    return isinstance(error, Damaged) or (isinstance(error, FileNotFoundError) and code(error) in {"NoSuchKey", "404"})


def explain(name: str, store: str, error: Exception, patience: float) -> str:
    """Return what went wrong with an object, and how to fix it; empty for an error that is not of this kind.

    Args:
        name: the object's address.
        store: the store's address.
        error: the exception that a request raised.
        patience: seconds for which the request was tried.
    """
    again = "start the same command again: what was committed is kept."
    if isinstance(error, Damaged):
        return f"{name}: corrupted: its sha256 is not the manifest's. {RESTORE}"
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return f"{name}: no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, then {again}"
    if isinstance(error, OSError) and error.errno and (fix := disk_fix(error)):
        return f"{name}: {error.strerror} in the local copy. {fix}, then {again}"
    if wrong := _CREDENTIALS.get(code(error)) or ("expired" in str(error).lower() and _EXPIRED):
        return f"{name}: {wrong}, then {again}"
    if isinstance(error, PermissionError):
        return (
            f"{name}: denied ({error}). Allow listing, reading, writing and deleting below {store} to these "
            f"credentials, then {again}"
        )
    if isinstance(error, FileNotFoundError):
        if code(error) == "NoSuchBucket":
            return f"{name}: the bucket does not exist. Create it or name another store, then {again}"
        if code(error) == "NoSuchUpload":
            return f"{name}: the server does not know of the upload any more. {again.capitalize()}"
        return f"{name}: missing, but the manifest names it. {RESTORE}"
    if isinstance(error, TRANSFER_ERRORS):
        waited = f"{patience:.0f} s"
        return f"{name}: failed for {waited}, at last with {error!r}. Check the server and the network, then {again}"
    return ""
