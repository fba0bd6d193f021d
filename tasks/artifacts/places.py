"""Where a store is: a folder or an S3 prefix, each with a marker that holds the store's id."""

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.artifacts.files import disk_errors
from tasks.artifacts.records import SCHEMA, StoreRef

if TYPE_CHECKING:
    from tasks.artifacts.s3 import Bucket

MARKER = "store.json"


def bucket_of(uri: str, patience: float | None = None) -> "Bucket | None":
    """The objects at an ``s3://`` address, asked with a patience of so many seconds; None for a folder."""
    if not uri.startswith("s3://"):
        return None
    from tasks.artifacts.s3 import Bucket  # Its packages take a second to load.

    return Bucket(uri, patience)


def local_copy(ref: StoreRef) -> Path:
    """The folder for what this machine read from, and wrote to, a store on S3."""
    base = os.environ.get("MU_GRPO_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "mu-grpo"
    return Path(base).expanduser() / ref.id


def folder_marker(root: Path, create: bool) -> str | None:
    """The marker of a store in a folder; None when there is none and none is to be made."""
    marker = root / MARKER
    if not marker.exists():
        if not create:
            return None
        with disk_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            staged = root / f"{MARKER}.{uuid.uuid4().hex}"
            staged.write_text(_new_marker())
            with suppress(FileExistsError):  # Another process made the store a moment before: its id counts.
                os.link(staged, marker)
            staged.unlink()
    return marker.read_text()


def bucket_marker(bucket: "Bucket", create: bool) -> bytes | None:
    """The marker of a store on S3; None when there is none and none is to be made."""
    found = bucket.read(MARKER)
    if found is None and create:
        bucket.write_new(MARKER, _new_marker().encode())
        found = bucket.read(MARKER)
    return found


def _new_marker() -> str:
    return json.dumps({"schema_version": SCHEMA, "id": uuid.uuid4().hex})
