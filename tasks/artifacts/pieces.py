"""Pieces of local files that are sent, and files that are put in their place once they have arrived."""

import base64
import hashlib
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def content(file: Path, start: int, count: int) -> bytearray:
    """A part of a file."""
    found = bytearray(count)
    with file.open("rb", buffering=0) as opened:
        opened.seek(start)
        del found[opened.readinto(found) :]
    return found


def part(file: Path, start: int, count: int, checked: bool) -> tuple[bytearray, dict[str, str]]:
    """A part of a file, with its checksum; one that is made here keeps no other request waiting."""
    found = content(file, start, count)
    if not checked:
        return found, {}
    return found, {"ChecksumCRC32": base64.b64encode(zlib.crc32(found).to_bytes(4, "big")).decode()}


def keep(found: bytearray, digest: str, target: Path) -> bool:
    """Writes a file at once if what was found has the digest; whether it has."""
    if hashlib.sha256(found).hexdigest() != digest:
        return False
    with beside(target) as staged:
        staged.write_bytes(found)
        staged.replace(target)
    return True


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A file to be moved to a place beside it; gone after the block, unless it was moved."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield staged
    finally:
        staged.unlink(missing_ok=True)
