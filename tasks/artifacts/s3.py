"""Objects of an S3 server: bounded in memory, tried again when the network or the server fails, digests checked."""

import asyncio
import base64
import errno
import mimetypes
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tasks.artifacts import pieces
from tasks.artifacts.files import sha256
from tasks.artifacts.records import FileEntry
from tasks.artifacts.s3_connection import Damaged, OfObject, code, innermost, refused_by_condition
from tasks.artifacts.s3_requests import Requests
from tasks.artifacts.transfer import Advance, Budget, shown

PART_BYTES = 8 * 2**20
PARTS_AT_ONCE = 10
"""Memory of a transfer stays below ``PARTS_AT_ONCE * PART_BYTES`` and the server library's own buffers."""
_PARTS_OF_A_FILE = 4
_NOTES_AT_ONCE = 16
"""Small objects that are read side by side."""
_CHUNK_BYTES = 2**18
_PARTS_OF_AN_UPLOAD = 10_000
_KEYS_OF_A_REQUEST = 1000
"""S3 takes no more."""
_FETCHES = 3
"""Of a file whose digest differs, until the server's object counts as damaged."""
_DIGEST = "sha256"

T = TypeVar("T")


class Bucket(Requests):
    """Objects below ``s3://bucket/prefix``; every key is relative to it.

    Args:
        uri: ``s3://bucket/prefix``.
        patience: seconds for which a request that fails is tried again, and for which an answer is waited; those of
            ``MU_GRPO_S3_PATIENCE`` and of the connection without it.
    """

    def __init__(self, uri: str, patience: float | None = None) -> None:
        super().__init__(uri, 2 * PARTS_AT_ONCE, patience)

    def read(self, key: str) -> bytes | None:
        """The content of an object; None when there is none."""
        return self._run(key, self._read(key))

    def read_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """The contents of many small objects, in the order of their keys; None for one that is not there."""

        async def everything() -> list[bytes | None]:
            free = asyncio.Semaphore(_NOTES_AT_ONCE)

            async def one(key: str) -> bytes | None:
                async with free:
                    return await _about(key, self._read(key))

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(key)) for key in keys]
            return [task.result() for task in tasks]

        return self._run("", everything()) if keys else []

    def write(self, key: str, content: bytes) -> None:
        """Writes an object, over one that is there."""
        self._run(key, self._call("put_object", key, Body=content))

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
            some = keys[start : start + _KEYS_OF_A_REQUEST]
            self._run(some[0], self._delete(some))

    def upload(self, folder: Path, files: Mapping[str, FileEntry], prefix: str) -> None:
        """Uploads files to below a prefix; those that are there with the same digest are passed over.

        Args:
            folder: where the files are.
            files: by their names in the folder.
            prefix: of their objects.
        """
        entries = {f"{prefix}/{name}": entry for name, entry in files.items()}

        async def everything(advance: Advance) -> None:
            # What one request can take is sent again sooner than it is asked for.
            asked = sum(entry.bytes for entry in entries.values()) > PART_BYTES
            there = await self._sizes(prefix) if asked else {}

            async def one(key: str) -> None:
                entry = entries[key]
                if there.get(key) == entry.bytes and await self._has_digest(key, entry.sha256):
                    return
                await self._put(folder / key.removeprefix(f"{prefix}/"), entry, key, advance)

            await self._each(entries, one)

        with shown(f"upload {prefix}", _total(entries)) as advance:
            self._run(prefix, everything(advance))

    def download(self, files: Mapping[str, FileEntry], folder: Path) -> None:
        """Downloads objects, by key; each appears in the folder once it has its digest."""

        async def one(key: str, advance: Advance) -> None:
            entry, target = files[key], folder / key
            fetch = self._fetch_whole if entry.bytes <= PART_BYTES else self._fetch_in_parts
            for _ in range(_FETCHES):
                if await fetch(key, entry, target, advance):
                    return
            raise Damaged

        with shown(f"download {next(iter(files)).rpartition('/')[0]}", _total(files)) as advance:
            self._run("", self._each(files, lambda key: one(key, advance)))

    async def _each(self, files: Mapping[str, FileEntry], one: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Does one thing to every object, by key, as many at once as the budget allows."""
        budget = Budget(PARTS_AT_ONCE)

        async def within(key: str) -> None:
            async with budget.take(min(_PARTS_OF_A_FILE, 1 + files[key].bytes // PART_BYTES)):
                await _about(key, one(key))

        async with asyncio.TaskGroup() as group:
            for key in files:
                group.create_task(within(key))

    async def _put(self, file: Path, entry: FileEntry, key: str, advance: Advance) -> None:
        content_type = mimetypes.guess_type(file.name)[0]
        properties = {"Metadata": {_DIGEST: entry.sha256}} | ({"ContentType": content_type} if content_type else {})
        checked = (await self._fs.set_session()).meta.config.request_checksum_calculation == "when_supported"
        if entry.bytes <= PART_BYTES:
            content = await asyncio.to_thread(pieces.content, file, 0, entry.bytes)
            # The server compares what arrives with the digest that the manifest names.
            digest = base64.b64encode(bytes.fromhex(entry.sha256)).decode()
            checksum = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": digest} if checked else {}
            await self._call("put_object", key, Body=content, **checksum, **properties)
            advance(entry.bytes)
            return
        size = max(PART_BYTES, -(-entry.bytes // _PARTS_OF_AN_UPLOAD))
        algorithm = {"ChecksumAlgorithm": "CRC32"} if checked else {}
        upload = {"UploadId": (await self._call("create_multipart_upload", key, **algorithm, **properties))["UploadId"]}
        parts = asyncio.Semaphore(_PARTS_OF_A_FILE)

        async def part(number: int, start: int) -> dict[str, Any]:
            async with parts:
                body, checksum = await asyncio.to_thread(pieces.part, file, start, size, checked)
                answer = await self._call(
                    "upload_part", key, PartNumber=number, Body=body, **algorithm, **checksum, **upload
                )
                advance(len(body))
                return {"PartNumber": number, "ETag": answer["ETag"], **checksum}

        try:
            async with asyncio.TaskGroup() as group:
                starts = enumerate(range(0, entry.bytes, size), 1)
                made = [group.create_task(part(number, start)) for number, start in starts]
            await self._complete(key, entry.sha256, [task.result() for task in made], upload)
        except BaseException:
            with suppress(Exception):  # What failed is the error to report.
                await self._request("abort_multipart_upload", key, **upload)
            raise

    async def _complete(self, key: str, digest: str, parts: list[dict[str, Any]], upload: dict[str, str]) -> None:
        try:
            await self._call("complete_multipart_upload", key, MultipartUpload={"Parts": parts}, **upload)
        except FileNotFoundError:
            # To a server that completed the upload, and whose answer was lost, the upload is not known any more.
            if not await self._has_digest(key, digest):
                raise

    async def _fetch_whole(self, key: str, entry: FileEntry, target: Path, advance: Advance) -> bool:
        """Fetches a file of one part through memory; whether it had its digest."""
        content = bytearray(entry.bytes)

        def put(chunk: bytes, start: int) -> None:
            content[start : start + len(chunk)] = chunk

        if content:
            await self._retried(lambda: self._fetch_part(key, 0, entry.bytes, put))
        advance(entry.bytes)
        return await asyncio.to_thread(pieces.keep, content, entry.sha256, target)

    async def _fetch_in_parts(self, key: str, entry: FileEntry, target: Path, advance: Advance) -> bool:
        """Fetches a file of several parts onto the disk; whether it had its digest."""
        parts = asyncio.Semaphore(_PARTS_OF_A_FILE)

        async def part(start: int) -> None:
            async with parts:
                end = min(start + PART_BYTES, entry.bytes)
                # Into the memory of the system, in the loop: a thread costs more, and could outlive the file.
                await self._retried(lambda: self._fetch_part(key, start, end, partial(os.pwrite, file.fileno())))
                advance(end - start)

        with pieces.beside(target) as staged:
            with staged.open("wb", buffering=0) as file:
                async with asyncio.TaskGroup() as group:
                    for start in range(0, entry.bytes, PART_BYTES):
                        group.create_task(part(start))
            whole = await asyncio.to_thread(sha256, staged) == entry.sha256
            if whole:
                staged.replace(target)
            return whole

    async def _fetch_part(self, key: str, start: int, end: int, put: Callable[[bytes, int], object]) -> None:
        async with (await self._request("get_object", key, Range=f"bytes={start}-{end - 1}"))["Body"] as body:
            while chunk := await body.read(_CHUNK_BYTES):
                put(chunk, start)
                start += len(chunk)

    async def _read(self, key: str) -> bytes | None:
        async def content() -> bytes:
            async with (await self._request("get_object", key))["Body"] as body:
                return bytes(await body.read())

        try:
            return await self._retried(content)
        except FileNotFoundError as error:
            if code(error) == "NoSuchBucket":
                raise
            return None

    async def _write_new(self, key: str, content: bytes) -> None:
        try:
            await self._call("put_object", key, Body=content, IfNoneMatch="*")
        except OSError as error:
            if not refused_by_condition(error):
                raise

    async def _delete(self, keys: Sequence[str]) -> None:
        some = [f"{self._bucket}/{self._name(key)}" for key in keys]
        await self._retried(lambda: self._fs._bulk_delete(some))

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


def _total(files: Mapping[str, FileEntry]) -> int:
    return sum(entry.bytes for entry in files.values())


async def _about(key: str, work: Awaitable[T]) -> T:
    """The work's result; its error, of whatever kind, goes on with the key of its object."""
    try:
        return await work
    except Exception as error:  # of whatever kind: it goes on with the key of its object
        raise OfObject(key, innermost(error)) from None
