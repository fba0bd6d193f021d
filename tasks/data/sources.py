"""Files of a source, from a path, from the Hugging Face hub, or from a mirror of the hub.

A mirror is a folder or an ``s3://`` prefix that holds the files of a data set at ``<mirror>/<data set>/<file>``.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from tasks.data.files import SUFFIXES, NamedFile
from tasks.errors import DataError, FetchError
from tasks.formats import first_names
from tasks.process.logs import logger
from tasks.settings import BenchmarkSettings, EvaluateSettings, PolicySettings, PromptsSettings, SourceSettings
from tasks.settings.base import local_path
from tasks.store.fetch import fetch, fingerprint, snapshot

_ALLOWED = ", ".join(SUFFIXES)
_SPLIT = re.compile(r"(?<![^-_.])(?:train|test|val(?:id(?:ation)?)?|dev|eval)(?=[-_.])")
"""A split as a word of a file's name, such as ``train-00000-of-00001.parquet`` of the hub, or ``sums_test.jsonl``."""
Sourced = TypeVar("Sourced", BenchmarkSettings, PromptsSettings)


@contextmanager
def source_files(source: SourceSettings, setting: str, mirror: str | None = None) -> Iterator[list[NamedFile]]:
    """Yield the files of a source, with a path or a data set of the hub, in their order.

    Copies of remote files are removed at the end of the block. ``setting`` names the source in errors.

    Raises:
        DataError: a file is missing or cannot be fetched.
    """
    with ExitStack() as fetched:
        if source.path is not None:
            yield _path_files(source.path, setting, fetched)
        elif mirror:
            yield list(_mirror_files(mirror, source, setting, fetched))
        else:
            yield _hub_files(source, setting)


def _path_files(path: str, setting: str, fetched: ExitStack) -> list[NamedFile]:
    """Return the file at a path, or the files of a folder without hidden ones, sorted by name."""
    local = _local(path, setting, fetched)
    if local.is_file():
        return [(local, path)]
    names = sorted(file.name for file in local.glob("[!.]*") if file.suffix in SUFFIXES and file.is_file())
    if not names:
        raise DataError(
            f"{setting}: no such file, or a folder without files: {path}; allowed: {_ALLOWED}. A data set "
            "of the Hugging Face hub is named in source.hub, with source.files."
        )
    if {"dataset_dict.json", "state.json"} & {*names}:
        raise DataError(f"{setting}: {path} was made by datasets.save_to_disk; name a file made by Dataset.to_parquet.")
    splits = sorted({found[0] for name in names if (found := _SPLIT.search(name))})
    if len(splits) > 1:
        raise DataError(
            f"{setting}: {path} has files of several splits: {', '.join(splits)}. Name one file, or a folder with the "
            "files of one split."
        )
    others = sorted(file.name for file in local.glob("[!.]*.*") if file.suffix not in (*SUFFIXES, ".md"))
    if others:
        logger().warning("%s: %s is read without %s; allowed: %s", setting, path, first_names(others, 4), _ALLOWED)
    return [(local / name, f"{path.rstrip('/')}/{name}") for name in names]


def _local(path: str, setting: str, fetched: ExitStack) -> Path:
    """Return the local path of a file or a folder; files on S3 are copied until ``fetched`` closes."""
    if not path.startswith("s3://"):
        return local_path(path)
    folder = Path(fetched.enter_context(TemporaryDirectory()))
    fetch(path, folder, setting, lambda name: name.endswith(SUFFIXES))
    file = folder / path.rpartition("/")[2]
    return file if file.is_file() else folder


def _hub_files(source: SourceSettings, setting: str) -> list[NamedFile]:
    folder = snapshot("dataset", source.hub or "", source.pinned or source.revision, source.files, setting)
    for file in source.files:
        if not (folder / file).is_file():
            raise DataError(
                f"{setting}: {source.hub} has no file {file!r} at revision {source.revision} (commit {folder.name}). "
                "To fix it: name another file in source.files, or another revision."
            )
    return [(folder / file, f"{source.hub}/{file}") for file in source.files]


def _mirror_files(mirror: str, source: SourceSettings, setting: str, fetched: ExitStack) -> Iterator[NamedFile]:
    for file in source.files:
        path = _mirror_path(mirror, source, file)
        local = _local(path, setting, fetched)
        if not local.is_file():
            raise DataError(
                f"{setting}: the mirror has no {path}. Copy it there from {source.hub} at revision {source.revision}."
            )
        yield local, f"{source.hub}/{file}"


def _mirror_path(mirror: str, source: SourceSettings, file: str) -> str:
    return f"{mirror.rstrip('/')}/{source.hub}/{file}"


def source_fingerprint(source: SourceSettings | None, mirror: str | None = None) -> str:
    """Return a text that changes when files at a path or in a mirror change; empty for other sources."""
    if source is not None and source.path is not None:
        return fingerprint(source.path)
    if source is None or source.hub is None or not mirror:
        return ""
    fingerprints = [fingerprint(_mirror_path(mirror, source, file)) for file in source.files]
    return hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()


def policy_fingerprint(policy: PolicySettings) -> str:
    """Return a text that changes when the files of a policy change; for a model of the hub, its commit.

    Raises:
        FetchError: the hub has no such model; or it does not answer, and its cache on this machine lacks the model.
    """
    found, path = fingerprint(policy.path), policy.path or "."
    if found or path.startswith(("s3://", ".", "/", "~")):
        return found
    return snapshot("model", path, policy.revision, [], "policy.path").name


def with_commits(evaluate: EvaluateSettings, mirror: str | None) -> EvaluateSettings:
    """Return the settings with the commit of each benchmark; see ``with_commit``."""
    benchmarks = [with_commit(one, one.full_name, mirror) for one in evaluate.benchmarks]
    return evaluate.model_copy(update={"benchmarks": benchmarks})


def with_commit(settings: Sourced, setting: str, mirror: str | None) -> Sourced:
    """Return the settings with the commit of the hub for the revision of their source; none with a mirror.

    ``setting`` names the source in errors.

    Raises:
        FetchError: the hub has no such revision; or the hub does not answer, and its cache on this machine lacks the
            files.
    """
    source = settings.source
    if source is None or source.hub is None or mirror:
        return settings
    try:
        commit = source.pinned or snapshot("dataset", source.hub, source.revision, source.files, setting).name
    except FetchError as error:
        raise FetchError(
            f"{error.message} A run looks up revision {source.revision!r} of {source.hub} when it opens. To fix it: "
            f"set source.revision to a commit, set operation.mirror, or remove {source.hub} from the settings."
        ) from None
    return settings.model_copy(update={"source": source.model_copy(update={"commit": commit})})
