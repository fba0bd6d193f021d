"""Results of a comparison and of the laboratory. All accuracies and shares are fractions."""

from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field

from tasks.model import FlyteModel
from tasks.store import ArtifactRef, Store
from tasks.store.layout import RESULT_FILE

MEAN = "mean"
"""Stands for the mean over the benchmarks where a benchmark is named."""
ALL = "all models"
"""Stands for all models together where a model is named."""
LEVEL = 0.05
"""A difference whose p is below it is told apart from none."""


class _Row(FlyteModel):
    model_config = ConfigDict(frozen=True)


class _Result(_Row):
    folder: str = ""
    """Folder of the artifact that holds the page or the figure."""

    def save(self, folder: Path) -> None:
        """Write the result into an artifact."""
        (folder / RESULT_FILE).write_text(self.model_dump_json(indent=1, exclude={"folder"}), encoding="utf-8")

    @classmethod
    def load(cls, store: Store, ref: ArtifactRef) -> Self:
        """Read the result of an artifact, with the artifact's folder."""
        folder = store.path(ref)
        result = cls.model_validate_json((folder / RESULT_FILE).read_text(encoding="utf-8"))
        return result.model_copy(update={"folder": str(folder)})


class Cell(_Row):
    """A system with a model on a benchmark, or on the mean of all, after its last update."""

    model: str
    system: str
    benchmark: str
    accuracy: float
    """avg@k, mean over seeds."""
    low: float
    """Lower end of the 95 % interval over problems and seeds."""
    high: float
    by_seed: list[float]
    base: float
    """Before training, mean over seeds."""


class PairedTest(_Row):
    """The reference against a baseline, paired by seed and problem."""

    model: str
    baseline: str
    benchmark: str
    difference: float
    """Accuracy of the reference minus that of the baseline."""
    low: float
    """Lower end of the 95 % interval over problems and seeds, paired."""
    high: float
    p_bootstrap: float
    """Two-sided, adjusted by Holm for all tests on means, or all on single benchmarks, of the reproduction."""
    p_wilcoxon: float | None
    """Signed rank over runs, models x seeds, adjusted likewise; None with too few to reach the 5 % level."""
    cohen_dz: float | None
    """Mean of the paired differences by their standard deviation; None where they do not vary."""
    rank_biserial: float | None
    """Rank-biserial correlation of runs: -1 where the baseline is better in every run, 1 where the reference is."""
    p_equivalence: float
    """p of two one-sided tests that the difference lies within the margin; adjusted likewise."""
    equivalent: bool
    """True if ``p_equivalence`` is below 0.05."""


class Times(_Row):
    """Seconds of a system with a model, mean over seeds."""

    model: str
    system: str
    updates: int
    wall_clocks: list[float]
    """Seconds of the runs, one entry for each seed."""
    ledger: dict[str, float]
    """Process-seconds by row."""
    gpu_seconds: dict[str, float]
    """Process-seconds times the GPUs of the pod, by row; empty on machines without one."""


class Speed(_Row):
    """Seconds of a baseline over those of the reference: the geometric mean over seeds, and every seed's."""

    model: str
    baseline: str
    name: str
    """generation, end to end, to the level of the baseline."""
    ratio: float | None
    """None where the reference never reached the baseline's level."""
    by_seed: list[float | None] = Field(default_factory=list)


class Cause(_Row):
    """A part of the seconds that the reference saves against a baseline."""

    model: str
    baseline: str
    name: str
    seconds: float
    """Saved per run, mean over seeds; negative where the reference spends more."""
    how: str
    """Text on how it is measured."""


class ReproductionResult(_Result):
    """All that a reproduction's tables show. ``str()`` of it is those tables for the terminal."""

    models: list[str]
    systems: list[str]
    seeds: list[int]
    reference: str
    margin: float
    missing: list[str]
    """Planned runs that are not there."""
    cells: list[Cell]
    tests: list[PairedTest]
    times: list[Times]
    speeds: list[Speed]
    causes: list[Cause]

    def __str__(self) -> str:
        from tasks.experiments.tables import terminal

        return terminal(self)


class ArmResult(_Row):
    """An arm of the laboratory over all its seeds."""

    name: str
    accuracy: float
    """avg@k at the end, mean over seeds."""
    low: float
    high: float
    by_seed: list[float]
    best: float
    """The highest accuracy along the way, mean over seeds."""
    vetoed: float | None
    """Share of tokens, over all updates."""
    clipped: float | None
    difference: float | None = None
    """Accuracy minus that of the reference arm, paired by seed and problem; None for the reference itself."""
    difference_low: float | None = None
    difference_high: float | None = None
    p: float | None = None
    """p by the bootstrap that gives the interval, adjusted by Holm for the number of arms."""
    stopped: list[str]
    """Messages of runs that a gate stopped."""


class LaboratoryResult(_Result):
    """A part of the laboratory. ``str()`` of it is a table for the terminal."""

    part: str
    title: str
    asks: str
    reference: str
    seeds: int
    problems: int
    updates: int
    base: float
    """Accuracy before training."""
    arms: list[ArmResult]

    def __str__(self) -> str:
        from tasks.experiments.tables import laboratory_terminal

        return laboratory_terminal(self)
