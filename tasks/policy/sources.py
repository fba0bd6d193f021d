"""Fetch a base policy from a folder, an S3 prefix or the Hugging Face hub."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tasks.artifacts.fetch import fetch, snapshot
from tasks.artifacts.layout import MANIFEST
from tasks.errors import DataError
from tasks.logs import logger
from tasks.policy.checks import check_folder, check_model
from tasks.policy.files import ADAPTER, INDEX, WEIGHTS, weight_files
from tasks.settings import PolicySettings

_ALL_WEIGHTS = "*.safetensors"
_FILES = ["*.json", _ALL_WEIGHTS, "*.model", "*.txt", "*.jinja"]
_CODE = ["*.py"]


def fetch_policy(folder: Path, settings: PolicySettings, chat: bool = False) -> dict[str, Any]:
    """Copy a policy's files into a folder, and check them.

    Args:
        folder: to copy to.
        settings: the source.
        chat: as for ``check_model``.

    Returns:
        Facts about the source: the hub's commit.

    Raises:
        DataError: the source cannot be used, with what is missing.
    """
    source = settings.path or ""
    patterns = _FILES + (_CODE if settings.trust_remote_code else [])
    facts: dict[str, Any] = {}
    with TemporaryDirectory(dir=folder.parent) as fetched:
        if source.startswith("s3://"):
            local = Path(fetched)
            fetch(source, local, "policy.path", lambda name: any(fnmatch(name, pattern) for pattern in patterns))
        elif (local := Path(source).expanduser()).is_dir():
            pass
        elif source.startswith((".", "/", "~")):
            raise DataError(f"policy.path: {source!r} is no folder.")
        else:
            local = snapshot("model", source, settings.revision, patterns, "policy.path")
            facts["revision"] = local.name
        with _naming_source(source, local):
            check_folder(local, settings.trust_remote_code)
        # Beside its weights a folder may hold them once more in another form. A policy of another store has a manifest,
        # which tells of that artifact.
        left = {MANIFEST, ADAPTER, *([INDEX] if (local / WEIGHTS).is_file() else [])}
        files = {file for pattern in patterns if pattern != _ALL_WEIGHTS for file in local.glob(pattern)}
        if local / ADAPTER in files:
            logger().info("policy.path: %s is left out: there is a whole model, and no adapter beside it", ADAPTER)
        for file in sorted(files.union(weight_files(local))):
            if file.name not in left:
                shutil.copyfile(file, folder / file.name)
    with _naming_source(source, folder):
        check_model(folder, chat)
    return facts


@contextmanager
def _naming_source(source: str, place: Path) -> Iterator[None]:
    """Name the source in errors about a temporary folder."""
    try:
        yield
    except DataError as error:
        raise DataError(error.message.replace(str(place), source)) from error
