"""The whole process killed at random moments: it goes on, repeats little, and ends with the same digest.

`make faults` does it 25 times on a disk and 25 times on S3.
"""

import signal
from collections import Counter
from pathlib import Path

import pytest

from tools.faults.kills import FinishedRun, run_at_once, run_with_kills
from tools.s3 import S3

Pair = tuple[list[FinishedRun], Path]
"""Two runs that nothing disturbed, which were started at once on one store; the store."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    return run_at_once([folder / "one", folder / "other"], str(folder / "store"), {}), folder / "store"


def test_two_runs_at_once_do_nothing_twice(pair: Pair) -> None:
    runs, store = pair
    units = Counter(unit for run in runs for unit in run.units)
    assert any("another process does this work" in run.output for run in runs), "they were not at work at once"
    assert not [unit for unit, times in units.items() if times > 1]
    assert not list((store / "staging").iterdir())


def test_a_run_on_a_disk_that_is_killed_twice_ends_with_the_same_digest(pair: Pair, tmp_path: Path) -> None:
    both = (signal.SIGKILL, signal.SIGTERM)
    result = run_with_kills(tmp_path, str(tmp_path / "store"), {}, times=2, seed=1, how=both)
    assert result.digest == pair[0][0].digest
    assert result.kills == 2
    assert result.within_limits, result
    assert not list((tmp_path / "store/staging").iterdir())


def test_a_killed_run_on_s3_has_the_same_digest_and_can_move(pair: Pair, tmp_path: Path, bucket: str, s3: S3) -> None:
    result = run_with_kills(tmp_path, bucket, s3.environment(tmp_path / "cache"), times=1, seed=2)
    assert result.digest == pair[0][0].digest
    assert result.kills == 1
    assert result.within_limits, result
    name, client = bucket.removeprefix("s3://"), s3.client()
    for key in s3.keys(name):
        client.copy_object(Bucket=name, Key=f"moved/{key}", CopySource={"Bucket": name, "Key": key})
        client.delete_object(Bucket=name, Key=key)
    elsewhere = tmp_path / "elsewhere"
    (again,) = run_at_once([elsewhere], f"{bucket}/moved", s3.environment(elsewhere / "cache"))
    assert (again.units, again.digest) == ([], result.digest), "a store that moved was not found to be complete"
