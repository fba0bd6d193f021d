"""Fetch the files of a source: from a path, from the Hugging Face hub, or from a mirror of it.

A mirror is a folder or an ``s3://`` prefix with the files of a data set at ``<mirror>/<data set>/<file>``.
"""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.data.files import SUFFIXES, Named
from tasks.errors import DataError
from tasks.settings import EvaluateSettings, PromptsSettings, SourceSettings
from tasks.store.fetch import fetch, fingerprint, snapshot


@contextmanager
def source_files(source: SourceSettings, setting: str, mirror: str | None = None) -> Iterator[list[Named]]:
    """Yield the files of a source, in their order, which exist on this machine inside the block.

    Args:
        source: a source other than arithmetic.
        setting: name of its setting, for errors.
        mirror: the mirror that replaces the hub.
    """
    with ExitStack() as fetched:
        if source.path is not None:
            yield _own_files(source.path, setting, fetched)
        elif mirror:
            yield list(_of_mirror(mirror, source, setting, fetched))
        else:
            yield _of_hub(source, setting)


def _own_files(path: str, setting: str, fetched: ExitStack) -> list[Named]:
    """Return a file, or the files of a folder by name."""
    folder = Path(path).expanduser()
    if path.endswith(SUFFIXES) or folder.is_file():
        return [(_local(path, setting, fetched), path)]
    if path.startswith("s3://"):
        folder = Path(fetched.enter_context(TemporaryDirectory()))
        fetch(path, folder, setting, lambda name: name.endswith(SUFFIXES))
    names = sorted(file.name for file in folder.glob("*") if file.suffix in SUFFIXES)
    if not names:
        raise DataError(f"{setting}: no such file, or a folder without files: {path}; allowed: {', '.join(SUFFIXES)}.")
    return [(folder / name, f"{path.rstrip('/')}/{name}") for name in names]


def _local(path: str, setting: str, fetched: ExitStack) -> Path:
    """Return the local path of a file; a copy of a file on S3 exists while ``fetched`` is open."""
    if not path.startswith("s3://"):
        return Path(path).expanduser()
    folder = Path(fetched.enter_context(TemporaryDirectory()))
    fetch(path, folder, setting)
    return folder / path.rpartition("/")[2]


def _of_hub(source: SourceSettings, setting: str) -> list[Named]:
    found = snapshot("dataset", source.hub or "", source.pinned or source.revision, source.files, setting)
    for file in source.files:
        if not (found / file).is_file():
            raise DataError(
                f"{setting}: {source.hub} has no file {file!r} at revision {source.revision} (commit {found.name}). "
                "Name another in files, or another revision."
            )
    return [(found / file, f"{source.hub}/{file}") for file in source.files]


def _of_mirror(mirror: str, source: SourceSettings, setting: str, fetched: ExitStack) -> Iterator[Named]:
    for file in source.files:
        place = _place(mirror, source, file)
        local = _local(place, setting, fetched)
        if not local.is_file():
            raise DataError(
                f"{setting}: the mirror has no {place}. Copy it there from {source.hub} at revision {source.revision}."
            )
        yield local, f"{source.hub}/{file}"


def _place(mirror: str, source: SourceSettings, file: str) -> str:
    return f"{mirror.rstrip('/')}/{source.hub}/{file}"


def source_fingerprint(source: SourceSettings | None, mirror: str | None = None) -> str:
    """Return a fingerprint of the files of a path or a mirror; empty for other sources."""
    if source is not None and source.path is not None:
        return fingerprint(source.path)
    if source is None or source.hub is None or not mirror:
        return ""
    found = [fingerprint(_place(mirror, source, file)) for file in source.files]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def with_commits(evaluate: EvaluateSettings, mirror: str | None) -> EvaluateSettings:
    """Return the settings with the commits of their benchmarks' revisions; a mirror has no commits.

    Raises:
        DataError: the hub has no such revision, or does not answer and its files were not fetched before.
    """
    found = [
        one.model_copy(update={"source": _with_commit(one.source, f"evaluate.benchmarks, {one.name}", mirror)})
        for one in evaluate.benchmarks
    ]
    return evaluate.model_copy(update={"benchmarks": found})


def prompts_with_commit(prompts: PromptsSettings, mirror: str | None) -> PromptsSettings:
    """Return the settings with the commit of their source's revision; see ``with_commits``."""
    return prompts.model_copy(update={"source": _with_commit(prompts.source, "prompts.source", mirror)})


def _with_commit(source: SourceSettings | None, setting: str, mirror: str | None) -> SourceSettings | None:
    if source is None or source.hub is None or mirror:
        return source
    if source.pinned:
        return source.model_copy(update={"commit": source.pinned})
    try:
        found = snapshot("dataset", source.hub, source.revision, source.files, setting)
    except DataError as error:
        raise DataError(
            f"{error.message} Revision {source.revision!r} of it must be looked up when a run opens. Give a commit in "
            "source.revision, name a mirror in operation.mirror, or leave it out."
        ) from None
    return source.model_copy(update={"commit": found.name})
