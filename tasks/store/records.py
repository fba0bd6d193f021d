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
        """Return the record in a file; None if there is none or this code cannot read it."""
        try:
            return cls.model_validate_json(text) if text else None
        except ValidationError:
            return None


class ArtifactRef(Record):
    """A reference to an artifact by its digest, which does not depend on the place of the store."""

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
    """The address of a store and its id. Only the id enters cache keys."""

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
    """Seconds of these phases that earlier attempts spent on parts that were used again."""
    gpus: int = 0
    """Number of GPUs of all processes of the step."""
    execution: str = ""
    """Id of the execution: Flyte's, or that of a local command and all processes that it started."""
    waited: list[tuple[float, float]] = Field(default_factory=list)
    """Times, in Unix seconds, in which the process waited for another one that did the same work."""

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
    """Artifacts that this one was made from, by role."""
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
        """The facts, typed for the code that reads them."""
        return cast(Facts, self.facts)

    @property
    def ref(self) -> ArtifactRef:
        """The reference to this artifact."""
        return ArtifactRef(kind=self.kind, digest=self.digest)
