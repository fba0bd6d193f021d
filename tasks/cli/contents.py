"""What a store holds, read from where it is: from its folder, or from S3 and not from the local copy."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from tasks.artifacts.files import MANIFEST, sha256
from tasks.artifacts.progress import FOLDER as PROGRESS
from tasks.artifacts.records import KINDS, ArtifactRef, Manifest
from tasks.artifacts.store import Store
from tasks.artifacts.work import MADE, MadeRecord
from tasks.errors import ArtifactError
from tasks.stored.reports import RUNS

_AREAS = (*KINDS, PROGRESS, MADE, RUNS)
_OF_RUN = re.compile(rf"{RUNS}/([0-9a-f]{{16}})\.json")
_REQUESTS = 16
"""At once, of small files."""


class StoredFile(NamedTuple):
    """A file or an object."""

    bytes: int
    modified: float
    """Unix seconds."""


class Place(Protocol):
    """Where files lie; keys are relative to the store."""

    def listing(self, area: str) -> dict[str, StoredFile]:
        """Every file below a folder, by key."""
        ...

    def read(self, key: str) -> bytes | None:
        """The content of a small file; None when there is none."""
        ...

    def digest(self, key: str, size: int) -> str | None:
        """SHA-256 of a file of ``size`` bytes; None when there is none."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes files."""
        ...


class Folder:
    """A place on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listing(self, area: str) -> dict[str, StoredFile]:
        """Every file below a folder, by key."""
        found = {}
        for folder, _, names in os.walk(self._root / area, onerror=_raise_unless_gone):
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):  # Deleted while it was listed.
                    state = path.stat()
                    found[path.relative_to(self._root).as_posix()] = StoredFile(state.st_size, state.st_mtime)
        return found

    def read(self, key: str) -> bytes | None:
        """The content of a file; None when there is none."""
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError:
            return None

    def digest(self, key: str, size: int) -> str | None:  # noqa: ARG002 - of any size
        """SHA-256 of a file; None when there is none."""
        try:
            return sha256(self._root / key)
        except FileNotFoundError:
            return None

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes files, and the folders below an area that are empty then."""
        for key in keys:
            path = self._root / key
            path.unlink(missing_ok=True)
            for folder in list(path.parents)[: key.count("/") - 1]:
                with suppress(OSError):  # Not empty yet.
                    folder.rmdir()


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def place_of(store: Store) -> Place:
    """Where a store is."""
    if store.remote is None:
        return Folder(store.root)
    from tasks.cli.objects import Objects  # Its packages take a second to load.

    return Objects(store.ref.uri)


@dataclass(frozen=True)
class Contents:
    """Everything in a store. An artifact is named by its folder, as in ``policy/0123456789abcdef``."""

    files: dict[str, StoredFile]
    """Of artifacts, of unfinished work and of records, by key."""
    manifests: dict[str, Manifest]
    """By artifact."""
    unreadable: dict[str, str]
    """Artifacts whose manifest cannot be read, and why."""
    records: dict[str, list[str]]
    """Records of work and of runs by key, and the artifacts that they are about; those not readable are left out."""

    @cached_property
    def folders(self) -> dict[str, dict[str, StoredFile]]:
        """Files by artifact (with or without a manifest) or by unfinished work, and in it by name."""
        found: dict[str, dict[str, StoredFile]] = defaultdict(dict)
        for key, file in self.files.items():
            area, _, rest = key.partition("/")
            name, _, inside = rest.partition("/")
            if inside:
                found[f"{area}/{name}"][inside] = file
        return dict(found)

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """The artifacts that each was made from, whether they are here or not."""
        return {
            name: list(dict.fromkeys(ref.folder for refs in manifest.parents.values() for ref in refs))
            for name, manifest in self.manifests.items()
        }

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """These artifacts and all that they descend from, whether they are here or not."""
        return reachable(names, self.parents)

    def descendants(self, name: str) -> set[str]:
        """The artifacts that descend from one."""
        return reachable([name], self._children) - {name}

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for name, parents in self.parents.items():
            for parent in parents:
                found[parent].append(name)
        return found


def reachable(names: Iterable[str], edges: Mapping[str, Sequence[str]]) -> set[str]:
    """These names and all that edges lead to from them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(edges.get(name, ()))
    return found


def read_contents(store: Store, place: Place) -> Contents:
    """Lists a store and reads its manifests and records."""
    files: dict[str, StoredFile] = {}
    for area in _AREAS:
        files |= place.listing(area)
    names = sorted(
        key.removesuffix(f"/{MANIFEST}")
        for key in files
        if key.split("/")[0] in KINDS and key.split("/")[2:] == [MANIFEST]
    )
    keys = sorted(key for key in files if key.startswith(f"{MADE}/") and key.endswith(".json"))
    with ThreadPoolExecutor(_REQUESTS) as pool:
        read = dict(zip(names, pool.map(lambda name: _manifest(store, name), names), strict=True))
        records = dict(zip(keys, pool.map(lambda key: _record(place, key), keys), strict=True))
    of_runs = {key: [f"report/{found[1]}"] for key in files if (found := _OF_RUN.fullmatch(key))}
    return Contents(
        files=files,
        manifests={name: found for name, found in read.items() if isinstance(found, Manifest)},
        unreadable={name: found for name, found in read.items() if isinstance(found, str)},
        records=of_runs | {key: found for key, found in records.items() if found is not None},
    )


def _manifest(store: Store, name: str) -> Manifest | str:
    try:
        return store.manifest(ArtifactRef.of(name), copied=False)
    except ArtifactError as error:
        # Of "place: what is wrong (details). What to do." the middle.
        return error.message.partition(f"{MANIFEST}: ")[2].partition(" (")[0].partition(". ")[0]


def _record(place: Place, key: str) -> list[str] | None:
    try:
        made = MadeRecord.model_validate_json(place.read(key) or b"").artifacts
    except ValidationError:
        return None
    return [ref.folder for ref in (made if isinstance(made, list) else [made])]
