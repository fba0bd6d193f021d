"""An S3 server behind a proxy that can do faults to its requests."""

from collections.abc import Iterator

import pytest

from tools.faults.proxy import Proxy, proxy
from tools.s3 import S3


@pytest.fixture(scope="module")
def flaky(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxy(s3, tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def place(bucket: str, flaky: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket, reached through the proxy."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", flaky.endpoint)
    yield bucket
    flaky.heal()
