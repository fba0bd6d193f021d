"""The whole process killed at random moments: it goes on, repeats little, and ends with the same digest.

`make faults` does it 25 times on a disk and 25 times on S3.
"""

import signal
from collections import Counter
from pathlib import Path

import pytest

from tools.faults.kills import killed, side_by_side, undisturbed
from tools.s3 import S3


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("undisturbed")
    return undisturbed(folder, str(folder / "store"), {})


def test_on_a_disk(digest: str, tmp_path: Path) -> None:
    both = (signal.SIGKILL, signal.SIGTERM)
    result = killed(tmp_path, str(tmp_path / "store"), {}, times=2, seed=1, how=both)
    assert result.digest == digest
    assert result.kills == 2
    assert result.within_limits, result
    assert not list((tmp_path / "store/staging").iterdir())


def test_on_s3(digest: str, tmp_path: Path, bucket: str, s3: S3) -> None:
    result = killed(tmp_path, bucket, s3.environment(tmp_path / "cache"), times=2, seed=2)
    assert result.digest == digest
    assert result.kills == 2
    assert result.within_limits, result
    name, client = bucket.removeprefix("s3://"), s3.client()
    for key in s3.keys(name):
        client.copy_object(Bucket=name, Key=f"moved/{key}", CopySource={"Bucket": name, "Key": key})
        client.delete_object(Bucket=name, Key=key)
    elsewhere = tmp_path / "elsewhere"
    (again,) = side_by_side([elsewhere], f"{bucket}/moved", s3.environment(elsewhere / "cache"))
    assert (again.units, again.digest) == ([], digest), "a store that moved was not found to be complete"


def test_two_runs_at_once_do_nothing_twice(digest: str, tmp_path: Path) -> None:
    runs = side_by_side([tmp_path / "one", tmp_path / "other"], str(tmp_path / "store"), {})
    units = Counter(unit for run in runs for unit in run.units)
    assert any("another process does this work" in run.output for run in runs), "they were not at work at once"
    assert not [unit for unit, times in units.items() if times > 1]
    assert runs[0].digest == digest
    assert not list((tmp_path / "store/staging").iterdir())
