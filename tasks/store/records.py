"""Records that are passed between tasks, and the manifest, which makes a folder an artifact."""

import json
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from tasks.errors import ArtifactError
from tasks.settings.base import FlyteModel
from tasks.store.layout import Facts, Kind

SCHEMA = 1


def check_schema(name: str, text: bytes) -> None:
    """Raise ArtifactError if another version of the code wrote the JSON file ``name``; a damaged file passes."""
    try:
        version = json.loads(text)["schema_version"]
    except (ValueError, KeyError, TypeError):
        return
    if version != SCHEMA:
        raise ArtifactError.of(name, f"schema version {version}; this code reads {SCHEMA}", "Update the code.")


class Record(FlyteModel):
    """Base of records: immutable, no unknown fields."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def parse(cls, text: bytes | None) -> Self | None:
        """Return the record in a file's content; None when there is no content, or when this code cannot read it."""
        try:
            return cls.model_validate_json(text) if text else None
        except ValidationError:
            return None


class ArtifactRef(Record):
    """Reference to an artifact by its content, which stays valid when the store is moved."""

    kind: Kind
    digest: str
    """SHA-256 over the kind, every file's SHA-256 and the parents' digests."""

    @property
    def folder(self) -> str:
        """Folder of the artifact in its store."""
        return f"{self.kind}/{self.digest[:16]}"

    @classmethod
    def of(cls, folder: str) -> Self:
        """Return the reference to the artifact in a folder, with an abbreviated digest."""
        kind, _, digest = folder.partition("/")
        return cls.model_validate({"kind": kind, "digest": digest})

    def __str__(self) -> str:
        return self.folder


class StoreMarker(Record):
    """Content of the file that makes a folder or a prefix a store."""

    schema_version: int
    id: str = Field(min_length=1)


class StoreRef(Record):
    """Address of a store, and its id from the time of its creation. Only the id enters cache keys."""

    uri: str
    id: str


class FileEntry(Record):
    """Digest and size of a file of an artifact."""

    sha256: str
    bytes: int


def _check_name(name: str) -> str:
    if {"", ".", ".."} & set(name.split("/")):
        raise ValueError("allowed: the name of a file below the folder")
    return name


Files = dict[Annotated[str, AfterValidator(_check_name)], FileEntry]
"""Files of a folder by their names, which may not lead out of it, because files from S3 are written by these names."""


class Timings(Record):
    """Times of a step: when it ran, and how long each phase took."""

    process: str
    """Process that ran the step; the steps of one local run share a process."""
    process_started: float
    """Unix seconds."""
    started: float
    finished: float
    phases: dict[str, float]
    """Seconds of each phase (load, generate, verify, optimize and so on), without overlap, over all attempts."""
    earlier: float = 0.0
    """Seconds of these phases in attempts before the last one, as far as their results were reused."""
    gpus: int = 0
    """Number of GPUs that the process saw, times the nodes of its group; some may not have been used."""
    gpu_models: list[str] = Field(default_factory=list)
    """Name, memory and driver of each of these GPUs on the machine of the leading process."""
    execution: str = ""
    """Execution of the step: Flyte's, or a command on this machine with all processes that it started."""
    idle_since: float = 0.0
    """End of the process's previous step, of any run, in Unix seconds; 0 if this is its first step."""
    waited: list[tuple[float, float]] = Field(default_factory=list)
    """Intervals, in Unix seconds, in which the process only waited for another process with the same work."""

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of all attempts of the step, without the time between them."""
        return self.finished - self.started + self.earlier


class Manifest(Record):
    """Record of an artifact: its files, its parents and its step. A folder with a manifest is an artifact."""

    schema_version: int
    kind: Kind
    digest: str
    files: Files
    parents: dict[str, list[ArtifactRef]]
    """Artifacts that this one was made from, by the name of the input."""
    settings: dict[str, Any]
    seed: int
    task: str
    code_version: str
    """Cache version of the task that made the artifact."""
    commit: str
    packages: dict[str, str]
    facts: dict[str, Any]
    """Small results: counts, rates, means."""
    timings: Timings

    @property
    def known_facts(self) -> Facts:
        """The facts, with types for those that other steps and commands read."""
        return cast(Facts, self.facts)

    @property
    def ref(self) -> ArtifactRef:
        """The reference to this artifact."""
        return ArtifactRef(kind=self.kind, digest=self.digest)
