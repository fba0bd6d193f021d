"""The records that travel between tasks, and the manifest that makes a folder an artifact."""

from typing import Any, Self, cast

from pydantic import ConfigDict, Field, ValidationError

from tasks.settings.base import FlyteModel
from tasks.store.layout import Facts
from tasks.store.layout import Kind as Kind

SCHEMA = 1


class Record(FlyteModel):
    """Base of records: immutable, no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def parse(cls, text: bytes | None) -> Self | None:
        """Return the record in a file; None when there is none, or when it cannot be read here."""
        try:
            return cls.model_validate_json(text) if text else None
        except ValidationError:
            return None


class ArtifactRef(Record):
    """The name of an artifact, by its content. A moved store changes no reference."""

    kind: Kind
    digest: str
    """SHA-256 over the kind, every file's SHA-256 and the parents' digests."""

    @property
    def folder(self) -> str:
        """The artifact's folder in its store."""
        return f"{self.kind}/{self.digest[:16]}"

    @classmethod
    def of(cls, folder: str) -> Self:
        """Return the artifact in a folder, with an abbreviated digest."""
        kind, _, digest = folder.partition("/")
        return cls.model_validate({"kind": kind, "digest": digest})

    def __str__(self) -> str:
        return self.folder


class StoreRef(Record):
    """The address of a store, and the id that it got when it was made. Only the id enters cache keys."""

    uri: str
    id: str


class FileEntry(Record):
    """Digest and size of a file of an artifact."""

    sha256: str
    bytes: int


class Timings(Record):
    """When a step ran and what it spent its time on."""

    process: str
    """The process that ran the step; steps of one local run share a process."""
    process_started: float
    """Unix seconds."""
    started: float
    finished: float
    phases: dict[str, float]
    """Seconds of load, generate, verify, optimize and so on, without overlap, in all attempts."""
    earlier: float = 0.0
    """Seconds of these phases in attempts before the one that ended, as far as what they made was found again."""
    gpus: int = 0
    """The number that the step's processes saw together."""
    execution: str = ""
    """The execution of the step: Flyte's, or a command on this machine with all processes that it started."""
    waited: list[tuple[float, float]] = Field(default_factory=list)
    """Times until then in which its process only waited for another one that did the same work, in Unix seconds."""

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the step."""
        return self.finished - self.started


class Manifest(Record):
    """The record of an artifact: its files, its parents, and what made it. Its presence makes a folder an artifact."""

    schema_version: int
    kind: Kind
    digest: str
    files: dict[str, FileEntry]
    parents: dict[str, list[ArtifactRef]]
    """Artifacts that it was made from, by role."""
    settings: dict[str, Any]
    seed: int
    task: str
    code_version: str
    """The cache version of the task that made it."""
    commit: str
    packages: dict[str, str]
    facts: dict[str, Any]
    """Small results: counts, rates, means."""
    timings: Timings

    @property
    def known_facts(self) -> Facts:
        """The facts, with the types of those that other artifacts and commands read."""
        return cast(Facts, self.facts)

    @property
    def ref(self) -> ArtifactRef:
        """The reference to this artifact."""
        return ArtifactRef(kind=self.kind, digest=self.digest)
