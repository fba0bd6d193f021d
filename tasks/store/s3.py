"""An S3 server: connection, retries, errors with their fixes, and objects with checked digests.

Every request is a public call of s3fs. Files, and parts of large files, are transferred in parallel threads within
bounded memory. Endpoint, region and credentials come from the standard AWS variables and files, or from
``FLYTE_AWS_ENDPOINT``, ``FLYTE_AWS_ACCESS_KEY_ID`` and ``FLYTE_AWS_SECRET_ACCESS_KEY``.
"""

import base64
import hashlib
import logging
import math
import mimetypes
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import aiohttp
import s3fs
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError, PartialCredentialsError
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.loaders import create_loader
from tenacity import (
    RetryCallState,
    Retrying,
    before_sleep_log,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from tasks.errors import ArtifactError, DamagedError, SettingsError, StorageError
from tasks.process.logs import bar, logger
from tasks.store.files import OBJECTS_AT_ONCE, RESTORE, StoredFile, disk_fix, sha256, staged_file, thread_map
from tasks.store.records import FileEntry

PART_BYTES = 8 * 2**20
PARTS_AT_ONCE = 10
"""Number of parts in memory. A transfer needs a small multiple of ``PARTS_AT_ONCE * PART_BYTES``."""
_PARTS_OF_A_FILE = 4
_PARTS_OF_AN_UPLOAD = 10_000
_KEYS_OF_A_REQUEST = 1000
"""S3's limit."""
_FETCHES = 3
"""Number of downloads with a wrong digest after which the server's object counts as damaged."""
_DIGEST = "sha256"
_BAR_FROM_BYTES = 64 * 2**20
_MEGABYTE = 10**6

_QUIET_ATTEMPTS = 5
"""Number of failed attempts of a request before a warning."""
_KEYS = "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
_EXPIRED = "the credentials have expired. Renew them"
_UNKNOWN = f"the server does not know the access key. {_KEYS}"
_CREDENTIALS = {
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidAccessKeyId": _UNKNOWN,
    "XAdminUserNotFound": _UNKNOWN,  # of versitygw
    "InvalidToken": f"the server does not accept the session token. {_KEYS}",
    "SignatureDoesNotMatch": f"the secret key is not that of the access key. {_KEYS}",
    "RequestTimeTooSkewed": "the clocks of this machine and of the server differ. Set this machine's clock",
}
"""Problems and their fixes, by the server's error code."""
_NO_BUCKET = ("NoSuchBucket", "InvalidBucketName")
_TOO_SHORT = "InvalidRange"
"""The server's error code for bytes behind the end of an object."""

_API = create_loader()
"""The description of S3's API. It is read once, because reading it takes most of the time of connecting."""

Advance = Callable[[int], None]
TRANSFER_ERRORS = (OSError, BotoCoreError, ClientError, aiohttp.ClientError)
"""Errors that a request raises when it fails."""


def _code(error: BaseException) -> str:
    """Return the server's error code, such as NoSuchBucket; empty when the server did not answer."""
    answer = error if isinstance(error, ClientError) else error.__cause__
    return str(answer.response["Error"].get("Code", "")) if isinstance(answer, ClientError) else ""


def _exists_already(error: BaseException) -> bool:
    """Return True if a conditional request was refused because the object exists already."""
    return _code(error) in {"PreconditionFailed", "412"}  # Only some servers name the condition that failed.


def _patience() -> float:
    """Return the seconds that ``MU_GRPO_S3_PATIENCE`` holds, 120 when it is empty or not set."""
    text = os.environ.get("MU_GRPO_S3_PATIENCE") or "120"
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:  # nan is not at least 0 either.
        raise SettingsError(f"MU_GRPO_S3_PATIENCE: got {text!r}; allowed: a number of seconds from 0 on, such as 120.")
    return seconds


def retrying(seconds: float | None = None) -> Retrying:
    """Return a caller that retries a request for some seconds, as long as its errors may be temporary."""
    return Retrying(
        retry=retry_if_exception(_transient),
        wait=wait_random_exponential(multiplier=0.2, max=20),
        stop=stop_after_delay(_patience() if seconds is None else seconds),
        before_sleep=_warn,
        reraise=True,
    )


def _credentials_problem(error: BaseException) -> str:
    """Return the problem of credentials that are not accepted, and its fix; empty for other errors."""
    # Some providers of credentials, such as SSO, give no code. The certificate of a server can expire too.
    expired = "expired" in str(error).lower() and not isinstance(error, NoConnectionError | HTTPClientError)
    return _CREDENTIALS.get(_code(error), _EXPIRED if expired else "")


def _transient(error: BaseException) -> bool:
    if _credentials_problem(error) or _code(error) in (*_NO_BUCKET, _TOO_SHORT) or _exists_already(error):
        return False
    if isinstance(error, FileNotFoundError | PermissionError | NoCredentialsError | PartialCredentialsError):
        return False
    if isinstance(error, OSError) and disk_fix(error):
        return False
    return isinstance(error, TRANSFER_ERRORS)


def _warn(state: RetryCallState) -> None:
    level = logging.DEBUG if state.attempt_number < _QUIET_ATTEMPTS else logging.WARNING
    before_sleep_log(logger(), level)(state)


def connect(timeout: float | None = None) -> s3fs.S3FileSystem:
    """Return a file system on the server that the environment names.

    It waits ``timeout`` seconds for a connection and for an answer (10 and 60 when None).
    """
    variable = os.environ.get
    endpoint = variable("AWS_ENDPOINT_URL_S3") or variable("AWS_ENDPOINT_URL") or variable("FLYTE_AWS_ENDPOINT")
    standard = variable("AWS_ACCESS_KEY_ID") or variable("AWS_PROFILE")
    session = AioSession()
    session.register_component("data_loader", _API)
    files = s3fs.S3FileSystem(
        key=None if standard else variable("FLYTE_AWS_ACCESS_KEY_ID"),
        secret=None if standard else variable("FLYTE_AWS_SECRET_ACCESS_KEY"),
        endpoint_url=endpoint or None,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": timeout or 10,
            "read_timeout": timeout or 60,
            "retries": {"mode": "standard", "total_max_attempts": 1},
            # Few servers except Amazon's support bucket names in host names.
            "s3": {"addressing_style": variable("FLYTE_AWS_ADDRESSING_STYLE") or ("path" if endpoint else "auto")},
            "max_pool_connections": OBJECTS_AT_ONCE,
            "user_agent": "mu-grpo",
        },
        session=session,
        skip_instance_cache=True,
    )
    # This turns off s3fs's retries, as total_max_attempts does botocore's: ``retrying`` alone sets the time.
    files.retries = 1
    return files


def _failure(name: str, store: str, error: Exception, seconds: float) -> ArtifactError:
    """Return an error with the problem of an object, after some seconds of retries, and its fix."""
    again = "start the same command again: committed artifacts are kept."
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        text = "no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    elif isinstance(error, OSError) and (fix := disk_fix(error)):
        text = f"{error.strerror} in the local copy. {fix}"
    elif problem := _credentials_problem(error):
        text = problem
    elif isinstance(error, PermissionError):
        text = f"denied ({error}). Allow listing, reading, writing and deleting below {store} to these credentials"
    elif _code(error) in _NO_BUCKET:
        text = "the bucket does not exist. Create it or name another store"
    elif _code(error) == "NoSuchUpload":
        return StorageError(f"{name}: the server does not know of the upload any more. {again.capitalize()}")
    elif isinstance(error, FileNotFoundError):
        return DamagedError(f"{name}: missing, but the manifest names it. {RESTORE}")
    else:
        text = f"failed for {seconds:.0f} s, at last with {error!r}. Check the server and the network"
    return StorageError(f"{name}: {text}, then {again}")


class Bucket:
    """Objects below ``s3://bucket/prefix``; keys are relative to this address.

    ``seconds`` limits the retries of a failing request and the wait for an answer. None stands for
    ``MU_GRPO_S3_PATIENCE`` and the time-outs of ``connect``.
    """

    def __init__(self, uri: str, seconds: float | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._bucket, _, self._prefix = f"{self.uri.removeprefix('s3://')}/".partition("/")
        self._fs = connect(seconds)
        self._seconds = _patience() if seconds is None else seconds
        self._retried = retrying(self._seconds)
        self._slots = threading.BoundedSemaphore(PARTS_AT_ONCE)

    def within(self, seconds: float) -> "Bucket":
        """Return the same bucket with another limit for each request, in seconds."""
        return Bucket(self.uri, seconds)

    def read(self, key: str) -> bytes | None:
        """Return the content of a small object; None when there is none."""
        with self._explain_errors(key):
            try:
                # With a larger max_concurrency, s3fs would request the object's size first.
                return bytes(self._retried(self._fs.cat_file, self._path(key), max_concurrency=1))
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
                return None

    def write(self, key: str, content: bytes) -> None:
        """Write or overwrite an object."""
        with self._explain_errors(key):
            self._retried(self._fs.pipe_file, self._path(key), content)

    def write_new(self, key: str, content: bytes) -> bool:
        """Write an object unless it exists; return whether it was written.

        If several processes write at the same time, the first one wins where the server supports conditional writes,
        and the last one elsewhere.
        """
        with self._explain_errors(key):
            try:
                self._retried(self._fs.pipe_file, self._path(key), content, mode="create")
            except OSError as error:
                if not _exists_already(error):
                    raise
                return False
        return True

    def listing(self, prefix: str) -> dict[str, StoredFile]:
        """Return size and time of change of every object below a prefix, by key."""
        objects: dict[str, StoredFile] = {}
        continuation: dict[str, str] = {}
        with self._explain_errors(prefix):
            while True:
                # Each page is retried alone, because a long listing that starts again might never end.
                page = self._call("list_objects_v2", Prefix=f"{self._prefix}{prefix}/", **continuation)
                for entry in page.get("Contents", []):
                    key = entry["Key"].removeprefix(self._prefix)
                    objects[key] = StoredFile(int(entry["Size"]), entry["LastModified"].timestamp())
                if not page.get("IsTruncated"):
                    return objects
                continuation = {"ContinuationToken": page["NextContinuationToken"]}

    def digest(self, key: str, size: int) -> str | None:
        """Return the SHA-256 of an object, which is read part by part; None when there is no object."""
        digest = hashlib.sha256()
        with self._explain_errors(key):
            for start in range(0, size, PART_BYTES):
                try:
                    with self._slots if size > _MEGABYTE else nullcontext():
                        digest.update(self._part(key, start, min(start + PART_BYTES, size)))
                except FileNotFoundError:
                    return None
        return digest.hexdigest()

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete objects; return those that the server refuses to delete, each with the reason."""
        refused: list[str] = []
        for start in range(0, len(keys), _KEYS_OF_A_REQUEST):
            objects = [{"Key": f"{self._prefix}{key}"} for key in keys[start : start + _KEYS_OF_A_REQUEST]]
            with self._explain_errors(keys[start]):
                answer = self._call("delete_objects", Delete={"Objects": objects, "Quiet": True})
            refused += [
                f"s3://{self._bucket}/{error.get('Key')} ({error.get('Code')})" for error in answer.get("Errors", [])
            ]
        return refused

    def upload(self, folder: Path, files: Mapping[str, FileEntry], prefix: str) -> None:
        """Upload files of a folder below a prefix, except those that the server has with the same digest."""
        total = sum(entry.bytes for entry in files.values())
        # Files that fit into one request are sent without asking, which is faster.
        objects = self.listing(prefix) if total > PART_BYTES else {}

        def upload_file(name: str) -> None:
            key, entry = f"{prefix}/{name}", files[name]
            with self._explain_errors(key):
                same_size = key in objects and objects[key].bytes == entry.bytes
                if not (same_size and self._has_digest(key, entry.sha256)):
                    send = self._put if entry.bytes <= PART_BYTES else self._put_in_parts
                    send(folder / name, entry, key, advance)

        with _progress(f"upload {prefix}", total) as advance:
            thread_map(upload_file, list(files), PARTS_AT_ONCE)

    def download(self, files: Mapping[str, FileEntry], folder: Path) -> None:
        """Download objects by key; each file appears in the folder after its digest was checked."""

        def download_file(key: str) -> None:
            with self._explain_errors(key):
                if not any(self._fetch(key, files[key], folder, advance) for _ in range(_FETCHES)):
                    # A step whose objects have the expected sizes counts as done, so this one must go first.
                    raise DamagedError(
                        f"{self.uri}/{key}: corrupted: its sha256 is not the manifest's. Delete this object. {RESTORE}"
                    )

        total = sum(entry.bytes for entry in files.values())
        with _progress(f"download {next(iter(files)).rpartition('/')[0]}", total) as advance:
            thread_map(download_file, list(files), PARTS_AT_ONCE)

    def _put(self, file: Path, entry: FileEntry, key: str, advance: Advance) -> None:
        """Upload a file in one request; the server compares it with the digest of the manifest."""
        digest = base64.b64encode(bytes.fromhex(entry.sha256)).decode()
        checksum = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": digest} if self._checked else {}
        with self._slots:
            content = file.read_bytes()
            self._retried(self._fs.pipe_file, self._path(key), content, **checksum, **_properties(file, entry))
        advance(entry.bytes)

    def _put_in_parts(self, file: Path, entry: FileEntry, key: str, advance: Advance) -> None:
        """Upload a file in parts, each with its own checksum and retries."""
        size = max(PART_BYTES, -(-entry.bytes // _PARTS_OF_AN_UPLOAD))
        algorithm = {"ChecksumAlgorithm": "CRC32"} if self._checked else {}
        upload = {"Key": f"{self._prefix}{key}"}
        answer = self._call("create_multipart_upload", **upload, **algorithm, **_properties(file, entry))
        upload["UploadId"] = answer["UploadId"]

        def part(number: int) -> dict[str, Any]:
            with self._slots, file.open("rb") as opened:
                opened.seek((number - 1) * size)
                body = opened.read(size)
                # It is computed here, because s3fs would compute it in the one thread that serves all requests.
                crc32 = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
                checksum = {"ChecksumCRC32": crc32} if algorithm else {}
                answer = self._call("upload_part", **upload, PartNumber=number, Body=body, **algorithm, **checksum)
            advance(len(body))
            return {"PartNumber": number, "ETag": answer["ETag"], **checksum}

        try:
            parts = thread_map(part, range(1, -(-entry.bytes // size) + 1), _PARTS_OF_A_FILE)
            try:
                self._call("complete_multipart_upload", **upload, MultipartUpload={"Parts": parts})
            except FileNotFoundError:
                # If only the answer was lost, the upload is complete, and the server has forgotten its id.
                if not self._has_digest(key, entry.sha256):
                    raise
        except BaseException:
            with suppress(Exception):  # The first error is the one to report.
                self._fs.call_s3("abort_multipart_upload", Bucket=self._bucket, **upload)
            raise

    def _fetch(self, key: str, entry: FileEntry, folder: Path, advance: Advance) -> bool:
        """Download a file, and move it into the folder if its digest is right; return whether it is."""
        with staged_file(folder, folder / key) as staged:
            staged.touch()

            def part(start: int) -> None:
                end = min(start + PART_BYTES, entry.bytes)
                with self._slots, staged.open("r+b") as file:
                    file.seek(start)
                    file.write(self._part(key, start, end))
                advance(end - start)

            thread_map(part, range(0, entry.bytes, PART_BYTES), _PARTS_OF_A_FILE)
            undamaged = sha256(staged) == entry.sha256
            if undamaged:
                staged.replace(folder / key)
            return undamaged

    def _part(self, key: str, start: int, end: int) -> bytes:
        """Return bytes of an object; none where it is shorter, so that its digest shows the damage."""
        try:
            return bytes(self._retried(self._fs.cat_file, self._path(key), start=start, end=end))
        except OSError as error:
            if _code(error) != _TOO_SHORT:
                raise
            return b""

    def _has_digest(self, key: str, digest: str) -> bool:
        try:
            return bool(self._retried(self._fs.metadata, self._path(key)).get(_DIGEST) == digest)
        except FileNotFoundError:
            return False

    @property
    def _checked(self) -> bool:
        """True if requests ask the server to check the received bytes."""
        return bool(self._fs.s3.meta.config.request_checksum_calculation == "when_supported")

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer to a request of S3's API, with retries."""
        answer: dict[str, Any] = self._retried(self._fs.call_s3, method, Bucket=self._bucket, **arguments)
        return answer

    def _path(self, key: str) -> str:
        return f"{self._bucket}/{self._prefix}{key}"

    @contextmanager
    def _explain_errors(self, key: str) -> Iterator[None]:
        """Raise errors of requests inside the block as errors with the object's problem and its fix."""
        try:
            yield
        except TRANSFER_ERRORS as error:
            raise _failure(f"{self.uri}/{key}", self.uri, error, self._seconds) from error


def _properties(file: Path, entry: FileEntry) -> dict[str, Any]:
    content_type = mimetypes.guess_type(file.name)[0]
    return {"Metadata": {_DIGEST: entry.sha256}} | ({"ContentType": content_type} if content_type else {})


@contextmanager
def _progress(title: str, total: int) -> Iterator[Advance]:
    """Show a progress bar in MB for a large transfer; yield a function that adds bytes to it."""
    with bar(f"{title}, MB" if total >= _BAR_FROM_BYTES else "", total // _MEGABYTE) as progress:
        done, lock = 0, threading.Lock()

        def advance(count: int) -> None:
            nonlocal done
            with lock:
                done += count
                progress.reach(done // _MEGABYTE)

        yield advance
