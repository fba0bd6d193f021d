"""Objects of an S3 server: bounded in memory, tried again when the network or the server fails, digests checked."""

import asyncio
import base64
import errno
import logging
import mimetypes
import os
import uuid
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from fsspec.asyn import sync
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_delay, wait_random_exponential

from tasks.artifacts.files import sha256
from tasks.artifacts.records import FileEntry
from tasks.artifacts.s3_connection import Damaged, OfObject, code, connect, explain, first_error, innermost, transient
from tasks.artifacts.transfer import Advance, Budget, shown
from tasks.errors import ArtifactError
from tasks.logs import logger

PART_BYTES = 8 * 2**20
PARTS_AT_ONCE = 10
"""Memory of a transfer stays below ``PARTS_AT_ONCE * PART_BYTES`` and the server library's own buffers."""
_PARTS_OF_A_FILE = 4
_CHUNK_BYTES = 2**18
_PARTS_OF_AN_UPLOAD = 10_000
_KEYS_OF_A_REQUEST = 1000
"""S3 takes no more."""
_FETCHES = 3
"""Of a file whose digest differs, until the server's object counts as damaged."""
_QUIET_ATTEMPTS = 5
"""Failures of one request before it is told."""
_DIGEST = "sha256"

T = TypeVar("T")


class Bucket:
    """Objects below ``s3://bucket/prefix``; every key is relative to it.

    Args:
        uri: ``s3://bucket/prefix``.
        patience: seconds for which a request that fails is tried again, and for which an answer is waited; those of
            ``MU_GRPO_S3_PATIENCE`` and of the connection without it.
    """

    def __init__(self, uri: str, patience: float | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._base = self.uri.removeprefix("s3://")
        self._bucket, _, self._prefix = f"{self._base}/".partition("/")
        self._fs = connect(2 * PARTS_AT_ONCE, patience)
        self._patience = float(os.environ.get("MU_GRPO_S3_PATIENCE", "120")) if patience is None else patience

    def read(self, key: str) -> bytes | None:
        """The content of an object; None when there is none."""
        return self._run(key, self._read(key))

    def write(self, key: str, content: bytes) -> None:
        """Writes an object, over one that is there."""
        self._run(key, self._retried(lambda: self._fs._pipe_file(self._path(key), content)))

    def write_new(self, key: str, content: bytes) -> None:
        """Writes an object unless there is one already.

        Of writers at the same time one wins where the server knows conditional writes, and the last one elsewhere.
        """
        self._run(key, self._write_new(key, content))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Bytes of every object below a prefix, by key."""
        return self._run(prefix, self._sizes(prefix))

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects."""
        for start in range(0, len(keys), _KEYS_OF_A_REQUEST):
            some = [self._path(key) for key in keys[start : start + _KEYS_OF_A_REQUEST]]
            self._run(keys[start], self._retried(partial(self._fs._bulk_delete, some)))

    def upload(self, folder: Path, files: Mapping[str, FileEntry], prefix: str) -> None:
        """Uploads files to below a prefix; those that are there with the same digest are passed over."""
        entries = {f"{prefix}/{name}": entry for name, entry in files.items()}
        # What one request can take is sent again sooner than it is asked for.
        asked = sum(entry.bytes for entry in entries.values()) > PART_BYTES
        there = self.sizes(prefix) if asked else {}

        async def one(key: str, advance: Advance) -> None:
            entry = entries[key]
            if there.get(key) == entry.bytes and await self._has_digest(key, entry.sha256):
                return
            await self._put(folder / key.removeprefix(f"{prefix}/"), entry, key, advance)

        self._transfer(f"upload {prefix}", entries, one)

    def download(self, files: Mapping[str, FileEntry], folder: Path) -> None:
        """Downloads objects, by key; each appears in the folder once it has its digest."""

        async def one(key: str, advance: Advance) -> None:
            entry, target = files[key], folder / key
            target.parent.mkdir(parents=True, exist_ok=True)
            staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            try:
                for _ in range(_FETCHES):
                    await self._fetch(key, entry.bytes, staged, advance)
                    if await asyncio.to_thread(sha256, staged) == entry.sha256:
                        staged.replace(target)
                        return
                raise Damaged
            finally:
                staged.unlink(missing_ok=True)

        self._transfer(f"download {next(iter(files)).rpartition('/')[0]}", files, one)

    def _transfer(
        self, title: str, files: Mapping[str, FileEntry], one: Callable[[str, Advance], Coroutine[Any, Any, None]]
    ) -> None:
        """Does one thing to every object, by key, as many at once as the budget allows."""
        total = sum(entry.bytes for entry in files.values())
        with shown(title, total) as advance:

            async def everything() -> None:
                budget = Budget(PARTS_AT_ONCE)

                async def within(key: str) -> None:
                    async with budget.take(min(_PARTS_OF_A_FILE, 1 + files[key].bytes // PART_BYTES)):
                        try:
                            await one(key, advance)
                        except Exception as error:  # of whatever kind: it goes on with the key of its object
                            raise OfObject(key, innermost(error)) from None

                async with asyncio.TaskGroup() as group:
                    for key in files:
                        group.create_task(within(key))

            self._run("", everything())

    async def _put(self, file: Path, entry: FileEntry, key: str, advance: Advance) -> None:
        content_type = mimetypes.guess_type(file.name)[0]
        properties = {"Metadata": {_DIGEST: entry.sha256}} | ({"ContentType": content_type} if content_type else {})
        checked = (await self._fs.set_session()).meta.config.request_checksum_calculation == "when_supported"
        if entry.bytes <= PART_BYTES:
            body = await asyncio.to_thread(_body, file, 0, entry.bytes, checked)
            await self._call("put_object", key, **body, **properties)
            advance(entry.bytes)
            return
        size = max(PART_BYTES, -(-entry.bytes // _PARTS_OF_AN_UPLOAD))
        algorithm = {"ChecksumAlgorithm": "CRC32"} if checked else {}
        upload = {"UploadId": (await self._call("create_multipart_upload", key, **algorithm, **properties))["UploadId"]}
        parts = asyncio.Semaphore(_PARTS_OF_A_FILE)

        async def part(number: int, start: int) -> dict[str, Any]:
            async with parts:
                body = await asyncio.to_thread(_body, file, start, size, checked)
                answer = await self._call("upload_part", key, PartNumber=number, **body, **upload)
                advance(len(body["Body"]))
                checksum = {"ChecksumCRC32": body["ChecksumCRC32"]} if checked else {}
                return {"PartNumber": number, "ETag": answer["ETag"], **checksum}

        try:
            async with asyncio.TaskGroup() as group:
                starts = enumerate(range(0, entry.bytes, size), 1)
                made = [group.create_task(part(number, start)) for number, start in starts]
            await self._complete(key, entry.sha256, [task.result() for task in made], upload)
        except BaseException:
            with suppress(Exception):  # What failed is the error to report.
                await self._fs._call_s3("abort_multipart_upload", Bucket=self._bucket, Key=self._name(key), **upload)
            raise

    async def _complete(self, key: str, digest: str, parts: list[dict[str, Any]], upload: dict[str, str]) -> None:
        try:
            await self._call("complete_multipart_upload", key, MultipartUpload={"Parts": parts}, **upload)
        except FileNotFoundError:
            # To a server that completed the upload, and whose answer was lost, the upload is not known any more.
            if not await self._has_digest(key, digest):
                raise

    async def _fetch(self, key: str, size: int, target: Path, advance: Advance) -> None:
        parts = asyncio.Semaphore(_PARTS_OF_A_FILE)

        async def part(start: int) -> None:
            async with parts:
                end = min(start + PART_BYTES, size)
                await self._retried(lambda: self._fetch_part(key, start, end, file))
                advance(end - start)

        with target.open("wb", buffering=0) as file:
            async with asyncio.TaskGroup() as group:
                for start in range(0, size, PART_BYTES):
                    group.create_task(part(start))

    async def _fetch_part(self, key: str, start: int, end: int, file: FileIO) -> None:
        found = {"Bucket": self._bucket, "Key": self._name(key), "Range": f"bytes={start}-{end - 1}"}
        async with (await self._fs._call_s3("get_object", **found))["Body"] as body:
            while chunk := await body.read(_CHUNK_BYTES):
                # Into the memory of the system, in the loop: a thread costs more, and could outlive the file.
                start += os.pwrite(file.fileno(), chunk, start)

    async def _read(self, key: str) -> bytes | None:
        try:
            # Without concurrency the library asks for no size first: the answer to HEAD cannot tell what went wrong.
            content: bytes = await self._retried(lambda: self._fs._cat_file(self._path(key), max_concurrency=1))
        except FileNotFoundError as error:
            if code(error) == "NoSuchBucket":
                raise
            return None
        return content

    async def _write_new(self, key: str, content: bytes) -> None:
        try:
            await self._retried(lambda: self._fs._pipe_file(self._path(key), content, mode="create"))
        except FileExistsError:
            return

    async def _sizes(self, prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        below = self._name(f"{prefix}/" if prefix else "")
        further: dict[str, str] = {}
        while True:
            # Page by page, each tried again: a long listing from its beginning might never end.
            page = await self._call("list_objects_v2", Prefix=below, **further)
            for listed in page.get("Contents", []):
                found[listed["Key"].removeprefix(self._prefix)] = int(listed["Size"])
            if not page.get("IsTruncated"):
                return found
            further = {"ContinuationToken": page["NextContinuationToken"]}

    async def _has_digest(self, key: str, digest: str) -> bool:
        try:
            head = await self._call("head_object", key)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.EINVAL:  # The answer to HEAD has no reason in it; that to the upload will have one.
                return False
            raise
        return bool(head.get("Metadata", {}).get(_DIGEST) == digest)

    def _path(self, key: str) -> str:
        return f"{self._base}/{key}"

    def _name(self, key: str) -> str:
        return f"{self._prefix}{key}"

    def _tell(self, state: RetryCallState) -> None:
        """Says that a request is tried again: the first times only when asked for, later because somebody waits."""
        error = state.outcome.exception() if state.outcome else None
        level = logging.DEBUG if state.attempt_number < _QUIET_ATTEMPTS else logging.WARNING
        logger().log(
            level,
            "%s: %s; attempt %d failed, trying again for %.0f s",
            *(self.uri, error or "no answer", state.attempt_number),
            max(0.0, self._patience - (state.seconds_since_start or 0.0)),
        )

    async def _call(self, method: str, key: str = "", **arguments: Any) -> dict[str, Any]:
        of_object = {"Key": self._name(key)} if key else {}
        return await self._retried(lambda: self._fs._call_s3(method, Bucket=self._bucket, **of_object, **arguments))

    async def _retried(self, operation: Callable[[], Awaitable[T]]) -> T:
        retrying = AsyncRetrying(
            retry=retry_if_exception(transient),
            wait=wait_random_exponential(multiplier=0.2, max=20),
            stop=stop_after_delay(self._patience),
            before_sleep=self._tell,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return await operation()
        raise AssertionError("a retry ends with a result or an error")

    def _run(self, key: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            result: T = sync(self._fs.loop, first_error, work)
        except Exception as error:
            of_object = error if isinstance(error, OfObject) else OfObject(key, error)
            if explained := explain(self.uri, of_object, self._patience):
                raise ArtifactError(explained) from of_object.error
            raise of_object.error from None
        return result


def _body(file: Path, start: int, count: int, checked: bool) -> dict[str, Any]:
    """A part of a file as arguments of a request; a checksum that is made here keeps no other request waiting."""
    content = bytearray(count)
    with file.open("rb", buffering=0) as opened:
        opened.seek(start)
        del content[opened.readinto(content) :]
    checksum = base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
    return {"Body": content} | ({"ChecksumAlgorithm": "CRC32", "ChecksumCRC32": checksum} if checked else {})
