"""Objects of an S3 server: bounded in memory, tried again when the network or the server fails, digests checked.

Every request is a public call of s3fs. Files, and the parts of a large file, go side by side in threads.
"""

import base64
import errno
import hashlib
import mimetypes
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tasks.errors import DamagedError
from tasks.progress import bar
from tasks.store.files import RESTORE, StoredFile, atomic_path, sha256, side_by_side
from tasks.store.records import FileEntry
from tasks.store.s3_connection import (
    TRANSFER_ERRORS,
    code,
    connect,
    failure,
    patience,
    refused_by_condition,
    retrying,
)

PART_BYTES = 8 * 2**20
PARTS_AT_ONCE = 10
"""Parts in memory. A transfer takes a small multiple of ``PARTS_AT_ONCE * PART_BYTES``."""
_PARTS_OF_A_FILE = 4
_PARTS_OF_AN_UPLOAD = 10_000
_KEYS_OF_A_REQUEST = 1000
"""S3 takes no more."""
_FETCHES = 3
"""Downloads of a file whose digest differs, until the server's object counts as damaged."""
_DIGEST = "sha256"
_SHOWN_FROM_BYTES = 64 * 2**20
_MEBIBYTE = 2**20

Advance = Callable[[int], None]


class Bucket:
    """Objects below ``s3://bucket/prefix``; every key is relative to it.

    Args:
        uri: ``s3://bucket/prefix``.
        seconds: how long a failing request is tried again, and an answer is waited for; ``MU_GRPO_S3_PATIENCE``, and
            the connection's own, when None.
    """

    def __init__(self, uri: str, seconds: float | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._bucket, _, self._prefix = f"{self.uri.removeprefix('s3://')}/".partition("/")
        self._fs = connect(2 * PARTS_AT_ONCE, seconds)
        self._seconds = patience() if seconds is None else seconds
        self._retried = retrying(self._seconds)
        self._slots = threading.BoundedSemaphore(PARTS_AT_ONCE)

    def read(self, key: str) -> bytes | None:
        """Return the content of a small object; None when there is none."""
        with self._explained(key):
            try:
                # With more, the library would ask for the object's size first.
                return bytes(self._retried(self._fs.cat_file, self._path(key), max_concurrency=1))
            except FileNotFoundError as error:
                if code(error) == "NoSuchBucket":
                    raise
                return None

    def write(self, key: str, content: bytes) -> None:
        """Write an object, over one that is there."""
        with self._explained(key):
            self._retried(self._fs.pipe_file, self._path(key), content)

    def write_new(self, key: str, content: bytes) -> None:
        """Write an object unless there is one already.

        Of writers at the same time one wins where the server knows conditional writes, and the last one elsewhere.
        """
        with self._explained(key):
            try:
                self._retried(self._fs.pipe_file, self._path(key), content, mode="create")
            except OSError as error:
                if not refused_by_condition(error):
                    raise

    def listing(self, prefix: str) -> dict[str, StoredFile]:
        """Return size and age of every object below a prefix, by key."""
        found: dict[str, StoredFile] = {}
        below = f"{self._prefix}{prefix}/" if prefix else self._prefix
        further: dict[str, str] = {}
        with self._explained(prefix):
            while True:
                # Each page is tried again by itself: a long listing from its beginning might never end.
                page = self._call("list_objects_v2", Prefix=below, **further)
                for listed in page.get("Contents", []):
                    key = listed["Key"].removeprefix(self._prefix)
                    found[key] = StoredFile(int(listed["Size"]), listed["LastModified"].timestamp())
                if not page.get("IsTruncated"):
                    return found
                further = {"ContinuationToken": page["NextContinuationToken"]}

    def digest(self, key: str, size: int) -> str | None:
        """Return the SHA-256 of an object, one part of which at a time is in memory; None when there is none."""
        digest = hashlib.sha256()
        with self._explained(key):
            for start in range(0, size, PART_BYTES):
                try:
                    digest.update(self._part(key, start, min(start + PART_BYTES, size)))
                except FileNotFoundError:
                    return None
        return digest.hexdigest()

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete objects; return those that the server does not delete, each with its reason."""
        refused: list[str] = []
        for start in range(0, len(keys), _KEYS_OF_A_REQUEST):
            objects = [{"Key": f"{self._prefix}{key}"} for key in keys[start : start + _KEYS_OF_A_REQUEST]]
            with self._explained(keys[start]):
                answer = self._call("delete_objects", Delete={"Objects": objects, "Quiet": True})
            refused += [f"s3://{self._bucket}/{one.get('Key')} ({one.get('Code')})" for one in answer.get("Errors", [])]
        return refused

    def upload(self, folder: Path, files: Mapping[str, FileEntry], prefix: str) -> None:
        """Upload files of a folder to below a prefix; those that are there with the same digest are passed over."""
        total = sum(entry.bytes for entry in files.values())
        # What one request can take is sent again sooner than it is asked for.
        there = self.listing(prefix) if total > PART_BYTES else {}

        def one(name: str) -> None:
            key, entry = f"{prefix}/{name}", files[name]
            with self._explained(key):
                known = key in there and there[key].bytes == entry.bytes
                if not (known and self._has_digest(key, entry.sha256)):
                    send = self._put if entry.bytes <= PART_BYTES else self._put_in_parts
                    send(folder / name, entry, key, advance)

        with _shown(f"upload {prefix}", total) as advance:
            side_by_side(one, list(files), PARTS_AT_ONCE)

    def download(self, files: Mapping[str, FileEntry], folder: Path) -> None:
        """Download objects, by key; each appears in the folder once it has its digest."""

        def one(key: str) -> None:
            with self._explained(key):
                if not any(self._fetch(key, files[key], folder / key, advance) for _ in range(_FETCHES)):
                    raise DamagedError(f"{self.uri}/{key}: corrupted: its sha256 is not the manifest's. {RESTORE}")

        total = sum(entry.bytes for entry in files.values())
        with _shown(f"download {next(iter(files)).rpartition('/')[0]}", total) as advance:
            side_by_side(one, list(files), PARTS_AT_ONCE)

    def _put(self, file: Path, entry: FileEntry, key: str, advance: Advance) -> None:
        """Upload a file in one request; the server compares it with the digest that the manifest names."""
        digest = base64.b64encode(bytes.fromhex(entry.sha256)).decode()
        checksum = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": digest} if self._checked else {}
        with self._slots:
            content = file.read_bytes()
            self._retried(self._fs.pipe_file, self._path(key), content, **checksum, **_properties(file, entry))
        advance(entry.bytes)

    def _put_in_parts(self, file: Path, entry: FileEntry, key: str, advance: Advance) -> None:
        """Upload a file part by part, each with a checksum and tried again by itself."""
        size = max(PART_BYTES, -(-entry.bytes // _PARTS_OF_AN_UPLOAD))
        algorithm = {"ChecksumAlgorithm": "CRC32"} if self._checked else {}
        place = {"Key": f"{self._prefix}{key}"}
        begun = self._call("create_multipart_upload", **place, **algorithm, **_properties(file, entry))
        place["UploadId"] = begun["UploadId"]

        def part(number: int) -> dict[str, Any]:
            with self._slots, file.open("rb") as opened:
                opened.seek((number - 1) * size)
                body = opened.read(size)
                # Made here, and not by the library, whose one thread serves all requests.
                crc32 = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
                checksum = {"ChecksumCRC32": crc32} if algorithm else {}
                answer = self._call("upload_part", **place, PartNumber=number, Body=body, **algorithm, **checksum)
            advance(len(body))
            return {"PartNumber": number, "ETag": answer["ETag"], **checksum}

        try:
            parts = side_by_side(part, range(1, -(-entry.bytes // size) + 1), _PARTS_OF_A_FILE)
            try:
                self._call("complete_multipart_upload", **place, MultipartUpload={"Parts": parts})
            except FileNotFoundError:
                # A server that completed the upload, and whose answer was lost, does not know the upload any more.
                if not self._has_digest(key, entry.sha256):
                    raise
        except BaseException:
            with suppress(Exception):  # What failed is the error to report.
                self._fs.call_s3("abort_multipart_upload", Bucket=self._bucket, **place)
            raise

    def _fetch(self, key: str, entry: FileEntry, target: Path, advance: Advance) -> bool:
        """Download a file beside its place and move it there if it has its digest; return whether it has."""
        with atomic_path(target) as staged:
            staged.touch()

            def part(start: int) -> None:
                end = min(start + PART_BYTES, entry.bytes)
                with self._slots, staged.open("r+b") as file:
                    file.seek(start)
                    file.write(self._part(key, start, end))
                advance(end - start)

            side_by_side(part, range(0, entry.bytes, PART_BYTES), _PARTS_OF_A_FILE)
            whole = sha256(staged) == entry.sha256
            if whole:
                staged.replace(target)
            return whole

    def _part(self, key: str, start: int, end: int) -> bytes:
        return bytes(self._retried(self._fs.cat_file, self._path(key), start=start, end=end))

    def _has_digest(self, key: str, digest: str) -> bool:
        try:
            return bool(self._retried(self._fs.metadata, self._path(key)).get(_DIGEST) == digest)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.EINVAL:  # The answer to HEAD has no reason in it; that to the upload will have one.
                return False
            raise

    @property
    def _checked(self) -> bool:
        """True if the server is asked to check what it receives."""
        return bool(self._fs.s3.meta.config.request_checksum_calculation == "when_supported")

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer to a request of S3's own, tried again while its error may pass."""
        answer: dict[str, Any] = self._retried(self._fs.call_s3, method, Bucket=self._bucket, **arguments)
        return answer

    def _path(self, key: str) -> str:
        return f"{self._bucket}/{self._prefix}{key}"

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Raise errors of requests inside the block as what is wrong with the object, and how to fix it."""
        try:
            yield
        except TRANSFER_ERRORS as error:
            raise failure(f"{self.uri}/{key}", self.uri, error, self._seconds) from error


def _properties(file: Path, entry: FileEntry) -> dict[str, Any]:
    content_type = mimetypes.guess_type(file.name)[0]
    return {"Metadata": {_DIGEST: entry.sha256}} | ({"ContentType": content_type} if content_type else {})


@contextmanager
def _shown(title: str, total: int) -> Iterator[Advance]:
    """A progress bar over mebibytes, for a transfer that is large enough to wait for."""
    with bar(f"{title}, MiB" if total >= _SHOWN_FROM_BYTES else "", total // _MEBIBYTE) as progress:
        done, lock = 0, threading.Lock()

        def advance(count: int) -> None:
            nonlocal done
            with lock:
                done += count
                progress.reach(done // _MEBIBYTE)

        yield advance
