"""What steps store: bytes of every file, and the requests that they are on S3.

Artifacts stay; parts and states of unfinished steps are deleted when the step ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.cost.rates import Rates
from tasks.cost.shapes import BYTES, Shape
from tasks.settings import RunSettings

Files = tuple[float, ...]
"""Bytes of each file of an artifact."""

_SMALL: Files = (2048.0,) * 4
"""config.json, generation_config.json, and two of the tokenizer."""
_BYTES_OF_A_PROMPT = 60.0
_BYTES_OF_A_VERDICT = 10.0
_BYTES_OF_A_SAMPLE = 24.0
_BYTES_OF_AN_UPDATE = 300.0
_BYTES_OF_A_TABLE = 3000.0
"""A parquet file's schema and footer."""
# As tasks.artifacts.s3 cuts transfers; a test compares.
PART_BYTES = 8 * 2**20
PARTS_OF_AN_UPLOAD = 10_000


@dataclass(frozen=True)
class Traffic:
    """What a step moves between its pod and the store."""

    read: float = 0.0
    """Bytes."""
    written: float = 0.0
    kept: float = 0.0
    """Of those written, the bytes of artifacts."""
    puts: int = 0
    """Requests that write or list, which cost the same."""
    gets: int = 0
    """Requests that read; those that delete cost nothing."""

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.read + other.read,
            self.written + other.written,
            self.kept + other.kept,
            self.puts + other.puts,
            self.gets + other.gets,
        )


def reading(*artifacts: Files) -> Traffic:
    """Whole artifacts: their manifests, and each file in parts."""
    gets = sum(1 + sum(max(1, -(-int(size) // PART_BYTES)) for size in files) for files in artifacts)
    return Traffic(read=sum(map(sum, artifacts)), gets=gets)


def writing(files: Files, kept: bool = True) -> Traffic:
    """An artifact, or a part of an unfinished step: its files, then its manifest."""
    size = sum(files)
    asked = size > PART_BYTES  # a large upload asks first what is there
    # Before a part and before its manifest a step asks whether the work is still its own (tasks/artifacts/lease.py).
    checks = 0 if kept else 2
    puts = sum(map(_puts, files)) + 1 + asked + checks
    return Traffic(written=size, kept=size if kept else 0.0, puts=puts, gets=checks)


def _puts(size: float) -> int:
    if size <= PART_BYTES:
        return 1
    part = max(PART_BYTES, size / PARTS_OF_AN_UPLOAD)
    return 2 + -int(-size // part)


STEP = Traffic(puts=2, gets=1)
"""Of every step: it looks for what was made before, notes what it made, and lists the parts that it leaves behind."""
LEASE = Traffic(puts=6, gets=4)
"""Requests for the lease of a step that resumes: it is taken, checked twice at the end, and released."""
LOOK = Traffic(gets=1)
"""For a part of an unfinished step."""
LIST = Traffic(puts=1)
"""Of the states of an unfinished step."""


class Stored:
    """The files of a run's artifacts."""

    def __init__(self, run: RunSettings, shape: Shape, rates: Rates) -> None:
        lora, self._updates = run.optimize.lora, run.updates_per_stage
        self._trained = shape.parameters if lora is None else shape.adapter_parameters(lora.rank)
        self._weights = float(BYTES["float32"] * shape.parameters)
        self._adapters = () if lora is None else (float(BYTES["float32"] * self._trained),)
        self._base = float(shape.stored_bytes)
        self._rates = rates

    def policy(self, stage: int) -> Files:
        """The policy after a stage, as an engine reads it; 0 is the base policy."""
        if not stage:
            return (*_SMALL, self._base)
        metrics = 6 * _BYTES_OF_A_TABLE + _BYTES_OF_AN_UPDATE * self._updates
        return (*_SMALL, self._weights, *self._adapters, metrics)

    def trained(self, stage: int) -> Files:
        """The policy after a stage with all that training goes on from."""
        return (*self.policy(stage), *(self._moments() if stage else ()))

    def state(self) -> Files:
        """Where training stands inside a stage."""
        return (float(BYTES["float32"] * self._trained), *self._moments(), 16.0, 1024.0)

    def _moments(self) -> Files:
        return (float(2 * BYTES["float32"] * self._trained), 16.0)

    def prompts(self, prompts: int) -> Files:
        """Prompts of a stage's shard."""
        return (_BYTES_OF_A_TABLE + _BYTES_OF_A_PROMPT * prompts,)

    def training_set(self, prompts: int) -> Files:
        """Rows of training, as many as a run takes at least, and those that were left out."""
        return (*self.prompts(prompts), float(_BYTES_OF_A_TABLE))

    def benchmark(self, problems: int) -> Files:
        """Problems of a benchmark, and its name."""
        return (*self.prompts(problems), 50.0)

    def rollouts(self, tokens: float) -> Files:
        """A shard of rollouts."""
        return (self._rates.bytes_per_shard + self._rates.bytes_per_token * tokens,)

    def logp(self, tokens: float) -> Files:
        """Log-probabilities of a stage's tokens."""
        return (BYTES["float32"] * tokens,)

    def verdicts(self, responses: int) -> Files:
        """Verdicts on responses."""
        return (_BYTES_OF_A_TABLE + _BYTES_OF_A_VERDICT * responses,)

    def evaluation(self, responses: int) -> Files:
        """The evaluation of a policy on a benchmark."""
        return (_BYTES_OF_A_TABLE + _BYTES_OF_A_SAMPLE * responses, 2048.0)

    def average(self) -> Files:
        """The mean over benchmarks."""
        return (2048.0,)


def total(traffic: Sequence[Traffic]) -> Traffic:
    """The sum."""
    return sum(traffic, Traffic())
