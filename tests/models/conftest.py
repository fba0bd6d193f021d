"""A model folder like one that a user would bring."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    """A Hugging Face folder with the tiny policy, and the manifest that it has in another store."""
    return shutil.copytree(base, tmp_path / "mine")
