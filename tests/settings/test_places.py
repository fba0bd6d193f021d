"""Addresses that would be taken for folders, and buckets that no client takes, are refused before anything starts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.cluster.shapes import shape_of
from tasks.errors import ArtifactError, DataError, SettingsError
from tasks.settings import PolicySettings
from tasks.settings.base import in_bucket, is_place
from tasks.store import Store
from tasks.store.fetch import fingerprint

NONE = ["", " ", "s3://", "s3:///runs", "s3://Bad Bucket/runs", "s3:/bucket/runs", "S3://bucket/runs"]
OTHERS = ["gs://bucket/runs", "file:///tmp/runs", "https://example.com/runs"]
HERE = ["runs", "./a:b", "/tmp/a b", "~/runs", "Qwen/Qwen3-8B", "..", "a:b"]
BUCKETS = ["s3://bucket", "s3://bucket/a b/c", "s3://arn:aws:s3:eu-central-1:123456789012:accesspoint:mine/runs"]


@pytest.mark.parametrize("text", HERE + BUCKETS)
def test_places_of_stores_files_and_models(text: str) -> None:
    assert is_place(text)
    assert in_bucket(text) == (text in BUCKETS)


@pytest.mark.parametrize("text", NONE + OTHERS)
def test_what_is_no_place_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        with pytest.raises(ArtifactError, match=r"cannot be a store; allowed: a folder, or s3://bucket/prefix"):
            Store.open(text, create=create)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SettingsError, match=r"path: got .*allowed: a folder, s3://.* or the name of a model"):
        PolicySettings.parse({"path": text})


def test_a_store_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("not mounted")
    too_long, dangling = "r" * 300, "File exists. A file, or a link to a disk that is not mounted, is in the"
    message = "File name too long. The file system allows no such name: choose another store"
    for place, create, error in ((too_long, True, message), (too_long, False, message), ("link", True, dangling)):
        with pytest.raises(ArtifactError, match=error):
            Store.open(place, create=create)


@pytest.mark.parametrize("use", [Store.open, fingerprint, lambda path: shape_of(PolicySettings(path=path))])
def test_the_home_of_a_user_that_this_machine_does_not_know(use: Callable[[str], object]) -> None:
    with pytest.raises(DataError, match="'~nosuchuser/runs': this machine knows no such user"):
        use("~nosuchuser/runs")


def test_a_place_that_cannot_be_read() -> None:
    with pytest.raises(DataError, match=r"rrr cannot be read: File name too long\. Allow reading it"):
        fingerprint("r" * 300)
