import sys
from contextlib import closing

import psutil
import pytest

from tasks.settings import CodeSettings
from tasks.verify.code.confine import missing_support
from tasks.verify.code.judge import Sandbox


@pytest.fixture(autouse=True, scope="module")
def no_process_is_left():
    if sys.platform != "linux":
        pytest.skip("programs are confined by Linux: seccomp and Landlock")
    assert missing_support(require_landlock=True) is None
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.fixture(scope="module")
def sandbox():
    with closing(Sandbox(CodeSettings().model_dump())) as sandbox:
        yield sandbox
