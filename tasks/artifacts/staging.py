"""Folders in which files are prepared, on the disk of the store, until they are moved to their place."""

import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tasks.artifacts.files import disk_errors
from tasks.artifacts.layout import STAGING


@contextmanager
def staged(root: Path) -> Iterator[Path]:
    """A folder to prepare files in; removed after the block, unless it was moved."""
    folder = root / STAGING / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
    try:
        with disk_errors(root):
            folder.mkdir(parents=True)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def leftovers(root: Path) -> list[Path]:
    """Return the folders of writers that died on this machine."""
    host, found = socket.gethostname(), []
    for folder in (root / STAGING).glob("*"):
        owner, _, _ = folder.name.rpartition("-")
        writer_host, _, pid = owner.rpartition("-")
        if writer_host == host and pid.isdigit() and not psutil.pid_exists(int(pid)):
            found.append(folder)
    return found
