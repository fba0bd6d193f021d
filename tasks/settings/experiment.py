"""Models x systems x seeds: the runs that a reproduction compares."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from tasks.errors import SettingsError
from tasks.settings.base import Number, Settings, read_yaml
from tasks.settings.run import RunSettings

Changes = dict[str, Any]
"""Fields of a run's settings, as a file of configs/ writes them; sections are merged field by field."""


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A run of a reproduction."""

    model: str
    system: str
    seed: int
    settings: RunSettings

    @property
    def name(self) -> str:
        """``tiny, mu_grpo, seed 0``."""
        return f"{self.model}, {self.system}, seed {self.seed}"


class LaboratorySettings(Settings):
    """Questions of the laboratory that a reproduction asks too, of its first model with the reference's settings."""

    parts: list[Literal["a", "b", "c", "d"]] = Field(min_length=1)
    """a is Figure 2 of the paper, b its Figure 3."""
    updates: int = Field(256, ge=1)
    """Updates of every run; prompts_per_stage in ``changes`` must give as many."""
    evaluations: int = Field(16, ge=1)
    """Evaluations along every run."""
    changes: Changes = Field(default_factory=dict)
    """Changes of those settings. The laboratory measures on one benchmark."""


class ExperimentSettings(Settings):
    """The runs of a reproduction, and how they are compared."""

    models: dict[str, Changes] = Field(min_length=1)
    """Settings of each model, by its name: the policy, its prompts, lengths."""
    systems: dict[str, Changes] = Field(min_length=2)
    """Settings of each system, by its name: preset, objective, updates_per_rollout. Without the last the system works
    in four large stages."""
    common: Changes = Field(default_factory=dict)
    """Settings that all runs share."""
    seeds: list[int] = Field([0, 1, 2], min_length=1)
    """Seeds; every model and system is run with each of them."""
    reference: str = "mu_grpo"
    """The system that every other one is compared with."""
    margin: Number = Field(0.02, gt=0, lt=1)
    """Mean accuracies that differ by less are held to be equal; an equivalence test says whether they do."""

    laboratory: LaboratorySettings | None = None

    @model_validator(mode="after")
    def _named(self) -> "ExperimentSettings":
        if self.reference not in self.systems:
            raise ValueError(
                f"reference: {self.reference!r} is none of the systems; allowed: {', '.join(self.systems)}"
            )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: {self.seeds} has one twice; allowed: different ones")
        return self

    @property
    def baselines(self) -> list[str]:
        """All systems but the reference."""
        return [name for name in self.systems if name != self.reference]

    def runs(self, store: str, overrides: str = "") -> list[PlannedRun]:
        """Return every run, seed by seed, so that what is there after an interruption can be compared.

        Raises:
            SettingsError: what is wrong in the settings of a run, and which.
        """
        return [
            PlannedRun(model, system, seed, self._settings(model, system, {"store": store, "seed": seed}, overrides))
            for seed in self.seeds
            for model in self.models
            for system in self.systems
        ]

    def laboratory_settings(self, store: str, overrides: str = "") -> RunSettings:
        """Return the settings that the laboratory's runs share.

        Raises:
            SettingsError: what is wrong in them.
        """
        assert self.laboratory is not None
        layers = (next(iter(self.models.values())), self.systems[self.reference], self.laboratory.changes)
        return _merge_layers("laboratory", (self.common, *layers, {"store": store}), overrides)

    def _settings(self, model: str, system: str, where: Changes, overrides: str) -> RunSettings:
        layers = (self.common, self.models[model], self.systems[system], where)
        return _merge_layers(f"model {model!r} with system {system!r}", layers, overrides)


def holds_experiment(path: Path) -> bool:
    """Return True if a YAML file holds an experiment, not a run.

    Raises:
        SettingsError: the file cannot be read.
    """
    return "experiment" in read_yaml(path, RunSettings.model_fields, "configs/tiny-cpu.yaml")


def read_experiment(path: Path) -> tuple[ExperimentSettings, str]:
    """Return the experiment in a YAML file, and the store that it names.

    Raises:
        SettingsError: the file cannot be read, or holds no experiment, or the experiment is wrong.
    """
    values = read_yaml(path, ("store", "experiment"), "configs/reproduce-tiny.yaml")
    if "experiment" not in values:
        raise SettingsError(f"{path}: holds no experiment; allowed: the keys store and experiment.")
    return ExperimentSettings.parse(values["experiment"]), str(values.get("store", "runs"))


def _merge_layers(name: str, layers: Iterable[Changes], overrides: str) -> RunSettings:
    values: dict[str, Any] = {}
    for layer in layers:
        values = RunSettings.merge(values, layer)
    try:
        return RunSettings.merged(values, overrides)
    except SettingsError as error:
        raise SettingsError(f"{name}: {error}") from None
