"""Lineage: the walk over the parents of artifacts, and the contents of a whole store."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tasks.errors import DamagedError
from tasks.store.files import OBJECTS_AT_ONCE, StoredFile, thread_map
from tasks.store.layout import KINDS, MADE, PROGRESS, RUNS
from tasks.store.records import ArtifactRef, Manifest
from tasks.store.store import Store, artifacts_among
from tasks.store.work import MadeRecord

_OF_RUN = re.compile(rf"{RUNS}/([0-9a-f]{{16}})\.json")


@dataclass(frozen=True)
class Lineage:
    """Artifacts and their parents. An artifact is named by its folder, as in ``policy/0123456789abcdef``."""

    manifests: Mapping[str, Manifest]
    missing: Mapping[str, DamagedError] = field(default_factory=dict)
    """Reasons why manifests are missing, by artifact."""

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """Parents of each artifact, including those without a manifest here."""
        return {
            name: list(dict.fromkeys(ref.folder for refs in manifest.parents.values() for ref in refs))
            for name, manifest in self.manifests.items()
        }

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Artifacts that were made from each artifact."""
        children: dict[str, list[str]] = defaultdict(list)
        for name, parents in self.parents.items():
            for parent in parents:
                children[parent].append(name)
        return dict(children)

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """Return these artifacts and all their ancestors, including those without a manifest here."""
        return _reachable(names, self.parents)

    def descendants(self, name: str) -> set[str]:
        """Return the artifacts that descend from an artifact."""
        return _reachable([name], self.children) - {name}

    def parents_of(self, manifest: Manifest, name: str) -> Iterator[Manifest]:
        """Yield the parents of an artifact under a name, as far as their manifests are known."""
        for ref in manifest.parents.get(name, ()):
            if ref.folder in self.manifests:
                yield self.manifests[ref.folder]

    def policies(self, last: Manifest) -> list[Manifest]:
        """Return a policy and the policies that it was trained from, oldest first, as far as manifests are known."""
        chain = [last]
        while parent := next(self.parents_of(chain[0], "policy"), None):
            chain.insert(0, parent)
        return chain

    def evaluated_policies(self, report: Manifest) -> list[Manifest]:
        """Return the policies that a run evaluated, in the order of its stages, as far as their manifests are known."""
        return [
            policy
            for evaluation in self.parents_of(report, "evaluations")
            for policy in self.parents_of(evaluation, "policy")
        ]


def ancestry(
    store: Store, refs: Iterable[ArtifactRef], names: Sequence[str] | None = None, copied: bool = True
) -> Lineage:
    """Read the manifests of artifacts and of their ancestors, through the parents with these names, or all parents.

    Local copies are read only if ``copied``.

    Raises:
        ArtifactError: the disk or the server fails, or another version of the code wrote an artifact.
    """
    manifests: dict[str, Manifest] = {}
    missing: dict[str, DamagedError] = {}
    generation = list(refs)
    while generation:
        parents = []
        for ref, manifest in zip(generation, store.read_manifests(generation, copied), strict=True):
            if isinstance(manifest, Manifest):
                manifests[ref.folder] = manifest
                parents += [
                    ref for name, refs in manifest.parents.items() if names is None or name in names for ref in refs
                ]
            else:
                missing[ref.folder] = manifest
        unread = {ref.folder: ref for ref in parents if ref.folder not in manifests and ref.folder not in missing}
        generation = list(unread.values())
    return Lineage(manifests, missing)


@dataclass(frozen=True)
class Contents(Lineage):
    """Everything in a store; on S3 it is read from the bucket and not from the local copy."""

    files: Mapping[str, StoredFile] = field(default_factory=dict)
    """Files of artifacts, of unfinished work and of records, by key."""
    records: Mapping[str, list[str]] = field(default_factory=dict)
    """Artifacts that the records of work and of runs name, by the records' keys; without unreadable records."""

    @cached_property
    def folders(self) -> dict[str, dict[str, StoredFile]]:
        """Files by folder and then by name; a folder is an artifact (with or without a manifest) or unfinished work."""
        folders: dict[str, dict[str, StoredFile]] = defaultdict(dict)
        for key, file in self.files.items():
            area, _, rest = key.partition("/")
            name, _, inside = rest.partition("/")
            if inside:
                folders[f"{area}/{name}"][inside] = file
        return dict(folders)


def read_contents(store: Store) -> Contents:
    """List a store and read its manifests and records.

    Raises:
        ArtifactError: the disk or the server fails, or another version of the code wrote an artifact.
    """
    files = store.listing((*KINDS, PROGRESS, MADE, RUNS))
    refs = artifacts_among(files)
    results = dict(zip((ref.folder for ref in refs), store.read_manifests(refs, False, "read manifests"), strict=True))
    keys = sorted(key for key in files if key.startswith(f"{MADE}/") and key.endswith(".json"))
    records = {key: [f"report/{match[1]}"] for key in files if (match := _OF_RUN.fullmatch(key))}
    texts = thread_map(store.original.read, keys, OBJECTS_AT_ONCE, "read records")
    for key, text in zip(keys, texts, strict=True):
        if record := MadeRecord.parse(text):
            records[key] = [ref.folder for ref in record.listed]
    return Contents(
        manifests={name: result for name, result in results.items() if isinstance(result, Manifest)},
        missing={name: result for name, result in results.items() if isinstance(result, DamagedError)},
        files=files,
        records=records,
    )


def _reachable(names: Iterable[str], edges: Mapping[str, Sequence[str]]) -> set[str]:
    """Return these names and all names that can be reached from them along edges."""
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(edges.get(name, ()))
    return reached
