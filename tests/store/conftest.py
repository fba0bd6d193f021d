"""Stores on S3 are tested on servers of several makes."""

from collections.abc import Iterator

import pytest

from tools.s3 import S3, rclone, server, versitygw


@pytest.fixture(scope="session", params=["moto", "versitygw", "rclone"])
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 server."""
    folder = tmp_path_factory.mktemp("s3") / "served"
    started = {"versitygw": versitygw(folder), "rclone": rclone(folder)}.get(request.param, server())
    with started as running:
        yield running
