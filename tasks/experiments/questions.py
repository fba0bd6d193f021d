"""The questions of the laboratory. Each has a set of arms, one of which the others are compared with."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tasks.settings import PRESETS, RunSettings
from tasks.settings.experiment import check_laboratory_run


class LaboratorySize(NamedTuple):
    """The configuration, length and seeds of the laboratory's runs."""

    name: str
    """Prefix of the names of the workflows."""
    config: str
    updates: int
    evaluations: int
    """Number of evaluations of every run, without that of the base policy."""
    seeds: tuple[int, ...]


FULL = LaboratorySize("laboratory", "configs/laboratory.yaml", 256, 16, (0, 1, 2))
QUICK = LaboratorySize("quick", "configs/laboratory-quick.yaml", 64, 4, (0,))


@dataclass(frozen=True)
class Arm:
    """A variant of the laboratory's settings that is run on every seed."""

    name: str
    change: str
    """Overrides of the laboratory's settings."""
    stages: int = 1
    """Number of stages of a run; unused if ``mu`` is not 0."""
    mu: int = 0
    """Updates per refresh; 0 means that they follow from ``stages``."""

    def overrides(self, updates: int) -> str:
        """Return the overrides for a run with this number of updates."""
        return f"{self.change} updates_per_rollout={self.mu or updates // self.stages}"

    def settings(self, laboratory: dict[str, Any], updates: int, overrides: str = "") -> RunSettings:
        """Return the settings of the arm's runs, merged as in ``open_run``, from plain values of the laboratory's.

        Raises:
            SettingsError: the settings are wrong, or do not give this number of updates.
        """
        settings = RunSettings.merged(laboratory, f"{self.overrides(updates)} {overrides}")
        check_laboratory_run(settings, updates, "updates of a run")
        return settings


@dataclass(frozen=True)
class Question:
    """The question of a part of the laboratory, with its arms."""

    title: str
    text: str
    arms: tuple[Arm, ...]
    reference: str
    """Name of the arm that the others are compared with."""


def _veto(name: str, direction: str, kappa: float, scope: str = "suffix") -> Arm:
    values = {"direction": direction, "kappa": f"{kappa:g}", "scope": scope}
    changes = " ".join(f"optimize.objective.veto.{field}={value}" for field, value in values.items())
    return Arm(name, f"optimize.preset=mu_grpo {changes}")


_OFF = Arm("off", "optimize.preset=relaxed")
_CLIPPING = tuple(
    Arm(f"{name}, {schedule}", f"optimize.preset={change}", mu=mu)
    for name, change in (
        ("[0.8, 1.2]", "grpo optimize.objective.aggregation=token_mean"),
        ("[0, 5]", "relaxed"),
        ("[0, 5] and veto", "mu_grpo"),
    )
    for schedule, mu in (("mu 4", 4), ("one stage", 0))
)
_SCOPES = tuple(
    _veto(f"{scope}, {direction} {kappa:g}", direction, kappa, scope)
    for direction, kappa in (("below", 0.1), ("above", 2.0))
    for scope in ("trigger_only", "suffix", "response")
)
_KAPPAS = tuple(
    _veto(f"{direction} {kappa:g}", direction, kappa)
    for direction, kappas in (("below", (0.5, 0.2, 0.1, 1e-2, 1e-3, 1e-4)), ("above", (1.2, 1.5, 2.0, 3.0, 5.0)))
    for kappa in kappas
)
_STAGES = tuple(
    Arm(f"{preset}, {stages} stages", f"optimize.preset={preset}", stages)
    for preset in ("mu_grpo", "relaxed")
    for stages in (2, 4, 8, 64)
)
QUESTIONS: dict[str, Question] = {
    "a": Question(
        "The clipping dilemma",
        "Does a tight interval leave stale rollouts unused, and does training with a wide one collapse (Figure 2 of "
        "the paper)?",
        _CLIPPING,
        "[0, 5], one stage",
    ),
    "b": Question(
        "Which tokens do harm",
        "Which tokens make training with the wide interval collapse (Figure 3 of the paper), and is a trigger's ratio "
        "below or above 1?",
        (_OFF, *_SCOPES),
        "off",
    ),
    "c": Question(
        "The threshold and the number of stages",
        "How much do kappa and the number of stages matter? Arms that name no number of stages have one.",
        (_OFF, *_KAPPAS, *_STAGES),
        "off",
    ),
    "d": Question(
        "All presets",
        "How well does each preset learn under the same staleness, that of one stage?",
        tuple(Arm(preset, f"optimize.preset={preset}") for preset in PRESETS),
        "mu_grpo",
    ),
}
