"""What a deck shows besides settings, time and digest, and where it reads that."""

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tasks.artifacts import Store
from tasks.artifacts.records import Manifest
from tasks.decks.charts import Bar, Curve, bars
from tasks.report.examples import Example

ROWS = 12
"""Most rows of anything: a deck is looked at, not searched."""


def first_of(rows: Sized) -> str:
    """What is added to the title of more rows than are shown."""
    return f", the first {ROWS} of {len(rows)}" if len(rows) > ROWS else ""


@dataclass(frozen=True)
class Table:
    """Rows, under headings if these say anything; texts of any length."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of_first(cls, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> "Table":
        """The first of many rows."""
        return cls(title + first_of(rows), headings, rows[:ROWS])


@dataclass
class Contents:
    """What is looked at of an artifact."""

    tiles: dict[str, str] = field(default_factory=dict)
    curves: list[Curve] = field(default_factory=list)
    bars: dict[str, list[Bar]] = field(default_factory=dict)
    """By what they count."""
    tables: list[Table] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    page: str = ""
    """A whole page, of an artifact that is one."""

    def count(self, what: str, counts: Mapping[str, float]) -> None:
        """Bars, unless there is nothing to count."""
        if any(counts.values()):
            self.bars[what + first_of(counts)] = bars(dict(islice(counts.items(), ROWS)))

    def warn(self, facts: Iterable[Mapping[str, Any]]) -> None:
        """The warnings among facts of artifacts, if there are any."""
        if warnings := [[one["warning"]] for one in facts if "warning" in one]:
            self.tables.append(Table.of_first("Warnings", [""], warnings))


@dataclass(frozen=True)
class Shelf:
    """Artifacts of one kind and their files, as far as they are on this machine: a deck fetches nothing."""

    store: Store
    manifests: list[Manifest]

    def parents(self, role: str) -> "Shelf":
        """The artifacts that the first one was made from."""
        refs = self.manifests[0].parents.get(role, [])
        return Shelf(self.store, [self.store.manifest(ref) for ref in refs])

    def file(self, manifest: Manifest, name: str) -> Path | None:
        """A file of an artifact; None when it is not here."""
        path = self.store.root / manifest.ref.folder / name
        return path if name in manifest.files and path.is_file() else None

    def files(self, name: str) -> list[Path]:
        """Those of a name, of all the artifacts."""
        found = (self.file(manifest, name) for manifest in self.manifests)
        return [path for path in found if path is not None]
