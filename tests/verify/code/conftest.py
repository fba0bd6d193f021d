import sys

import psutil
import pytest

from tasks.settings import CodeSettings
from tasks.verify.code.confine import missing
from tasks.verify.code.judge import Sandbox


def pytest_collection_modifyitems(items):
    if sys.platform != "linux":
        skip = pytest.mark.skip(reason="programs are confined by Linux: seccomp and Landlock")
        for item in items:
            if "tests/verify/code/" in item.path.as_posix():
                item.add_marker(skip)


@pytest.fixture(autouse=True, scope="module")
def no_process_is_left():
    assert missing(require_landlock=True) is None
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(CodeSettings().model_dump()) as sandbox:
        yield sandbox
