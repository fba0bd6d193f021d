"""A model folder like one that a user would bring."""

import shutil
from pathlib import Path

import pytest

from tasks.store import ArtifactRef, Store


@pytest.fixture
def folder(small: tuple[Store, ArtifactRef], tmp_path: Path) -> Path:
    """A Hugging Face folder with the tiny policy."""
    store, policy = small
    shutil.copytree(store.path(policy), tmp_path / "mine")
    (tmp_path / "mine" / "manifest.json").unlink()
    return tmp_path / "mine"
