"""Settings of a reproduction, which compares runs of models x systems x seeds."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from tasks.errors import SettingsError
from tasks.settings.base import STORES, Number, Settings, read_yaml
from tasks.settings.run import RunSettings

if TYPE_CHECKING:
    Changes = dict[str, Any]
else:
    Changes = dict  # flytekit takes dict[str, Any] for a pickle, and warns.
"""Fields of a run's settings, as in a file of configs/; sections are merged field by field."""
Part = Literal["a", "b", "c", "d"]


@dataclass(frozen=True, eq=False)
class NamedRun:
    """A run of a reproduction."""

    model: str
    system: str
    seed: int

    @property
    def name(self) -> str:
        """Return the name of the run, such as ``tiny, mu_grpo, seed 0``."""
        return f"{self.model}, {self.system}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class PlannedRun(NamedRun):
    """A run with its settings."""

    settings: RunSettings


class LaboratorySettings(Settings):
    """Parts of the laboratory that a reproduction includes, with its first model and the settings of ``reference``."""

    parts: list[Part] = Field(min_length=1)
    """Parts of the laboratory; a is Figure 2 of the paper, b is Figure 3."""
    updates: int = Field(256, ge=1)
    """Number of updates of every run; prompts_per_stage in ``changes`` must fit this number."""
    evaluations: int = Field(16, ge=1)
    """Number of evaluations during every run."""
    changes: Changes = Field(default_factory=dict)
    """Changes to these settings. They must leave one benchmark, on which the laboratory measures."""

    @model_validator(mode="after")
    def _divides(self) -> "LaboratorySettings":
        if self.updates % self.evaluations:
            raise ValueError(f"evaluations: {self.evaluations} does not divide the {self.updates} updates")
        return self


class ExperimentSettings(Settings):
    """The runs of a reproduction, and how they are compared."""

    models: dict[str, Changes] = Field(min_length=1)
    """Settings of each model by name, such as its policy, prompts and lengths."""
    systems: dict[str, Changes] = Field(min_length=2)
    """Settings of each system by name: preset, objective, updates_per_rollout. Without updates_per_rollout, a system
    runs in four large stages."""
    common: Changes = Field(default_factory=dict)
    """Settings that all runs share."""
    seeds: list[int] = Field([0, 1, 2], min_length=1)
    """Seeds of the runs of every model and system."""
    reference: str = "mu_grpo"
    """Name of the system that the others are compared with."""
    margin: Number = Field(0.02, gt=0, lt=1)
    """Margin of the equivalence test: systems are called equal only if a test shows that they differ by less."""

    laboratory: LaboratorySettings | None = None

    @model_validator(mode="after")
    def _named(self) -> "ExperimentSettings":
        if self.reference not in self.systems:
            raise ValueError(
                f"reference: {self.reference!r} is not one of the systems; allowed: {', '.join(self.systems)}"
            )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: {self.seeds} repeats a seed; allowed: different seeds")
        return self

    @property
    def named_runs(self) -> list[NamedRun]:
        """Return every run, ordered by seed, so that after an interruption the finished runs can be compared."""
        return [NamedRun(model, system, seed) for seed, model, system in product(self.seeds, self.models, self.systems)]

    def runs(self, store: str, overrides: str = "") -> list[PlannedRun]:
        """Return every run with its settings, in the order of ``named_runs``.

        Raises:
            SettingsError: the settings of a run are wrong, a layer or an override sets another seed or store, or the
                systems of a model have different benchmarks. The message names the run.
        """
        planned = []
        for run in self.named_runs:
            planned.append(PlannedRun(run.model, run.system, run.seed, self._settings(run, store, overrides)))
        benchmarks: dict[str, set[str]] = {}
        for run in planned:
            names = {one.name for one in run.settings.evaluate.benchmarks}
            if (first := benchmarks.setdefault(run.model, names)) != names:
                raise SettingsError(
                    f"model {run.model!r} with system {run.system!r}: evaluate.benchmarks names "
                    f"{', '.join(sorted(names))}, and {', '.join(sorted(first))} with {next(iter(self.systems))!r}; "
                    "allowed: the same benchmarks for all systems of a model, whose means are compared."
                )
        return planned

    def laboratory_settings(self, store: str, overrides: str = "") -> RunSettings:
        """Return the settings that the laboratory's runs share.

        Raises:
            SettingsError: these settings are wrong, or do not give ``laboratory.updates`` updates.
        """
        assert self.laboratory is not None
        layers = (next(iter(self.models.values())), self.systems[self.reference], self.laboratory.changes)
        settings = _merge_layers("laboratory", (self.common, *layers, {"store": store}), overrides)
        check_laboratory_run(settings, self.laboratory.updates, "experiment.laboratory.updates")
        return settings

    def _settings(self, run: NamedRun, store: str, overrides: str) -> RunSettings:
        # The file of a run may be a model here, with its store.
        layers = ({"seed": run.seed}, self.common, self.models[run.model], self.systems[run.system], {"store": store})
        settings = _merge_layers(f"model {run.model!r} with system {run.system!r}", layers, overrides)
        for name, value in {"store": store, "seed": run.seed}.items():
            if (got := getattr(settings, name)) != value:
                raise SettingsError(
                    f"{name}={got} in common, models, systems or overrides of a comparison, which gives this run "
                    f"{name} {value!r}; allowed: no {name} there. Change the seeds or the store of the experiment."
                )
        return settings


def check_one_benchmark(run: RunSettings) -> None:
    """Raise SettingsError unless a run of the laboratory has one benchmark, for its own verifier and engine."""
    if run.evaluation_engine != run.rollout.engine:
        raise SettingsError(
            f"evaluate.engine: {run.evaluation_engine.kind} in the laboratory, whose runs evaluate with "
            "rollout.engine; allowed: null."
        )
    if len(run.evaluate.benchmarks) > 1:
        raise SettingsError(
            f"evaluate.benchmarks: {len(run.evaluate.benchmarks)} in the laboratory, whose runs are compared "
            "problem by problem; allowed: one."
        )
    (benchmark,), kind = run.evaluate.benchmarks, run.verify.kind
    if benchmark.answer_type not in (None, kind):
        raise SettingsError(
            f"{benchmark.full_name}: answer_type {benchmark.answer_type} with verify.kind {kind} "
            f"in the laboratory, whose runs have one verifier; allowed: answer_type {kind}."
        )


def check_laboratory_run(run: RunSettings, updates: int, name: str) -> None:
    """Raise SettingsError unless a run of the laboratory has one benchmark and this number of updates."""
    check_one_benchmark(run)
    if run.updates_per_stage != updates:
        raise SettingsError(
            f"{name}: {updates}, but prompts.prompts_per_stage {run.prompts.prompts_per_stage} and the other "
            f"settings of the laboratory's runs give {run.updates_per_stage} updates; allowed: equal numbers."
        )


def read_experiment(path: Path) -> tuple[ExperimentSettings, str]:
    """Read the experiment from a YAML file, and return it with the store that the file names.

    Raises:
        SettingsError: the file cannot be read, or holds no experiment, or the experiment is wrong.
    """
    values = read_yaml(path, ("store", "experiment"), "configs/reproduce-tiny.yaml")
    if "experiment" not in values:
        raise SettingsError(f"{path}: holds no experiment; allowed: the keys store and experiment.")
    if unknown := [str(key) for key in values if key not in ("store", "experiment")]:
        raise SettingsError(f"{path}: {', '.join(unknown)} beside experiment; allowed: the keys store and experiment.")
    if not isinstance(store := values.get("store", "runs"), str):
        raise SettingsError(f"{path}: store: got {store!r}; allowed: {STORES}.")
    return ExperimentSettings.parse(values["experiment"]), store


def _merge_layers(name: str, layers: Iterable[Changes], overrides: str) -> RunSettings:
    values: dict[str, Any] = {}
    for layer in layers:
        values = RunSettings.merge(values, layer)
    try:
        return RunSettings.merged(values, overrides)
    except SettingsError as error:
        raise SettingsError(f"{name}: {error}") from None
