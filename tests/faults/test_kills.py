"""The whole process killed at random moments: it goes on, repeats little, and ends with the same digest.

`make faults` does it 25 times on a disk and 25 times on S3.
"""

import signal
from pathlib import Path

import pytest

from tests.faults.kills import killed, undisturbed
from tests.s3 import S3


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("undisturbed")
    return undisturbed(folder, str(folder / "store"), {})


def test_on_a_disk(digest: str, tmp_path: Path) -> None:
    both = (signal.SIGKILL, signal.SIGTERM)
    result = killed(tmp_path, str(tmp_path / "store"), {}, times=4, seed=1, how=both)
    assert result.digest == digest
    assert result.kills == 4
    assert result.within_limits, result
    assert not list((tmp_path / "store/staging").iterdir())


def test_on_s3(digest: str, tmp_path: Path, bucket: str, s3: S3) -> None:
    result = killed(tmp_path, bucket, s3.environment(tmp_path / "cache"), times=2, seed=2)
    assert result.digest == digest
    assert result.kills == 2
    assert result.within_limits, result
