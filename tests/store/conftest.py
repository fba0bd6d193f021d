"""S3 servers: the fastest one that is here, or every make for the tests with ``writers.EVERY_MAKE``."""

from collections.abc import Iterator

import pytest

from tools.s3 import S3, rclone, server, versitygw
from tools.system_programs import find


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 server."""
    make = getattr(request, "param", "versitygw" if find("versitygw") else "moto")
    folder = tmp_path_factory.mktemp("s3") / "served"
    started = {"versitygw": versitygw(folder), "rclone": rclone(folder)}.get(make, server())
    with started as running:
        yield running
