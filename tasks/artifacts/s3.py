"""Objects of an S3 server: bounded in memory, tried again when the network or the server fails, digests checked."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fsspec.asyn import sync
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from tasks.artifacts.files import sha256
from tasks.artifacts.records import FileEntry
from tasks.artifacts.s3_connection import Damaged, connect, explain, first_error, transient
from tasks.artifacts.transfer import Advance, Budget, Relative, shown
from tasks.errors import ArtifactError

PART_BYTES = 8 * 2**20
PARTS_AT_ONCE = 16
"""Memory of a transfer stays below ``PARTS_AT_ONCE * PART_BYTES`` and the server library's own buffers."""
_PARTS_OF_A_FILE = 4
_DIGEST = "sha256"

T = TypeVar("T")


class Bucket:
    """Objects below ``s3://bucket/prefix``; every key is relative to it."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._base = self.uri.removeprefix("s3://")
        self._fs = connect(2 * PARTS_AT_ONCE)
        self._patience = float(os.environ.get("MU_GRPO_S3_PATIENCE", "120"))

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
        return self._run(prefix, self._retried(lambda: self._sizes(prefix)))

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects."""
        if keys:
            self._run(keys[0], self._retried(lambda: self._fs._bulk_delete([self._path(key) for key in keys])))

    def upload(self, folder: Path, files: Mapping[str, FileEntry], prefix: str) -> None:
        """Uploads files to below a prefix; those that are there with the same digest are passed over."""
        there = self.sizes(prefix)

        async def one(name: str, advance: Advance) -> None:
            entry, key = files[name], f"{prefix}/{name}"
            if there.get(key) == entry.bytes and await self._has_digest(key, entry.sha256):
                return
            put = self._fs._put_file
            await put(
                str(folder / name),
                self._path(key),
                callback=Relative(advance),
                chunksize=PART_BYTES,
                max_concurrency=_PARTS_OF_A_FILE,
                Metadata={_DIGEST: entry.sha256},
            )

        self._transfer(f"upload {prefix}", files, prefix, one)

    def download(self, prefix: str, files: Mapping[str, FileEntry], folder: Path) -> None:
        """Downloads files from below a prefix; each appears in the folder once it has its digest."""

        async def one(name: str, advance: Advance) -> None:
            entry, key = files[name], f"{prefix}/{name}"
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            staged = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                await self._fetch(key, entry.bytes, staged, advance)
                if await asyncio.to_thread(sha256, staged) != entry.sha256:
                    raise Damaged(key)
                staged.replace(target)
            finally:
                staged.unlink(missing_ok=True)

        self._transfer(f"download {prefix}", files, prefix, one)

    def _transfer(
        self,
        title: str,
        files: Mapping[str, FileEntry],
        prefix: str,
        one: Callable[[str, Advance], Coroutine[Any, Any, None]],
    ) -> None:
        total = sum(entry.bytes for entry in files.values())
        with shown(title, total) as advance:

            async def everything() -> None:
                budget = Budget(PARTS_AT_ONCE)

                async def within(name: str) -> None:
                    async with budget.take(min(_PARTS_OF_A_FILE, 1 + files[name].bytes // PART_BYTES)):
                        await self._retried(lambda: one(name, advance))

                async with asyncio.TaskGroup() as group:
                    for name in files:
                        group.create_task(within(name))

            self._run(prefix, everything())

    async def _fetch(self, key: str, size: int, target: Path, advance: Advance) -> None:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        parts = asyncio.Semaphore(_PARTS_OF_A_FILE)

        async def part(start: int) -> None:
            async with parts:
                end = min(start + PART_BYTES, size)
                content = await self._fs._cat_file(self._path(key), start=start, end=end)
                await asyncio.to_thread(os.pwrite, handle, content, start)
                advance(len(content))

        try:
            async with asyncio.TaskGroup() as group:
                for start in range(0, size, PART_BYTES):
                    group.create_task(part(start))
        finally:
            os.close(handle)

    async def _read(self, key: str) -> bytes | None:
        try:
            content: bytes = await self._retried(lambda: self._fs._cat_file(self._path(key)))
        except FileNotFoundError as error:
            if "bucket" in str(error):
                raise
            return None
        return content

    async def _write_new(self, key: str, content: bytes) -> None:
        try:
            await self._retried(lambda: self._fs._pipe_file(self._path(key), content, mode="create"))
        except FileExistsError:
            return

    async def _sizes(self, prefix: str) -> dict[str, int]:
        try:
            found = await self._fs._find(self._path(prefix), detail=True)
        except FileNotFoundError as error:
            if "bucket" in str(error):
                raise
            return {}
        return {path.removeprefix(f"{self._base}/"): int(info["size"]) for path, info in found.items()}

    async def _has_digest(self, key: str, digest: str) -> bool:
        bucket, name, _ = self._fs.split_path(self._path(key))
        head = await self._fs._call_s3("head_object", Bucket=bucket, Key=name)
        return bool(head.get("Metadata", {}).get(_DIGEST) == digest)

    def _path(self, key: str) -> str:
        return f"{self._base}/{key}"

    async def _retried(self, operation: Callable[[], Awaitable[T]]) -> T:
        retrying = AsyncRetrying(
            retry=retry_if_exception(transient),
            wait=wait_random_exponential(multiplier=0.2, max=20),
            stop=stop_after_delay(self._patience),
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
            if explained := explain(self.uri, key, self._patience, error):
                raise ArtifactError(explained) from error
            raise
        return result
