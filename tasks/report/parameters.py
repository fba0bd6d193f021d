"""The settings that a run resolved to, and which of them the paper states."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.artifacts.records import Kind, Manifest
from tasks.report.history import History
from tasks.settings.effects import flat, reads

_STEPS: dict[Kind, str] = {
    "policy": "base policy",
    "prompts": "prompts",
    "rollouts": "rollout",
    "verdicts": "verify",
}
_SHARED = {"policy": "base policy", "prompts": "prompts"}
"""Data that runs share, and that tells the settings of the one that took it in: here a run's own settings are shown."""
OTHER_STEPS = ("rollout", "verify")
"""A step that alternates between generation and updates has these settings too; they are shown once."""
_OBJECTIVE, _VETO = "objective.", "veto.scope"
_PAPER: dict[str, dict[str, Any]] = {
    "mu_grpo": {
        "objective.gate.low": 0.0,
        "objective.gate.high": 5.0,
        "objective.veto.scope": "suffix",
        "objective.veto.advantage_sign": "negative",
    },
    "relaxed": {"objective.gate.low": 0.0, "objective.gate.high": 5.0},
    "grpo": {"objective.gate.low": 0.8, "objective.gate.high": 1.2, "updates_per_rollout": 4},
}
"""What the paper states about each algorithm's objective. It states more about the schedule; see the README."""


@dataclass(frozen=True)
class Parameter:
    """A setting, its value, and whether the paper states just this value."""

    name: str
    value: str
    from_paper: bool


def resolved_settings(history: History) -> dict[str, list[Parameter]]:
    """Settings of every step of the run, by step; values that changed during the run are joined by an arrow."""
    finals = [stage.policy for stage in history.stages]
    paper = _PAPER.get(history.algorithm, {})
    steps = {}
    for kind, step in _STEPS.items():
        made = [manifest for manifest in history.of_kind(kind) if manifest not in finals and _is_of_stage(manifest)]
        steps[step] = parameters_of(_settings(made), {})
    for name, step in _SHARED.items():
        if name in history.settings:
            steps[step] = parameters_of([history.settings[name]], {})
    steps["optimize"] = parameters_of(_settings(finals), paper)
    for name in history.benchmarks:
        own = [one.evaluation for policy in history.evaluated for one in policy.evaluations if one.benchmark == name]
        step = "evaluate" if len(history.benchmarks) == 1 else f"evaluate, {name}"
        steps[step] = parameters_of(_settings(history.manifests[ref] for ref in own), {})
    return {step: parameters for step, parameters in steps.items() if parameters}


def _is_of_stage(manifest: Manifest) -> bool:
    """Whether an artifact is not one of the data sets that prompts come from."""
    return manifest.kind != "prompts" or "data" not in manifest.facts


def chosen_here(history: History) -> list[str]:
    """Plain sentences on what is this project's choice and not the paper's."""
    if not history.stages:
        return []
    objective = history.objective
    veto = objective.get("veto") or {}
    sentences = ["Learning rate, batch size, group size, lengths and data are choices of this project too."]
    if veto.get("scope", "off") != "off":
        rule = f"{veto.get('statistic')} {veto.get('direction')} {veto.get('kappa'):g}"
        sentences.insert(
            0,
            f"The veto's trigger is a choice of this project, not the paper's: its statistic, its direction and its "
            f"threshold kappa ({rule}).",
        )
    return sentences


def _settings(manifests: Iterable[Manifest]) -> list[dict[str, Any]]:
    return [manifest.settings for manifest in manifests]


def parameters_of(settings: Iterable[Mapping[str, Any]], paper: Mapping[str, Any]) -> list[Parameter]:
    """Settings of a step; values in which they differ are joined by an arrow.

    Args:
        settings: of its artifacts.
        paper: what the paper states, by the setting's name.
    """
    values: dict[str, list[Any]] = {}
    for one in settings:
        own = {name: value for name, value in one.items() if name not in OTHER_STEPS}
        for name, value in _with_effect(flat(own)).items():
            seen = values.setdefault(name, [])
            if value not in seen:
                seen.append(value)
    return [
        Parameter(name, " → ".join(written(value) for value in seen), name in paper and seen == [paper[name]])
        for name, seen in values.items()
    ]


def _with_effect(settings: dict[str, Any]) -> dict[str, Any]:
    """Without fields of the objective that change nothing, and without those of a veto that is off."""
    objective = {
        name.removeprefix(_OBJECTIVE): value for name, value in settings.items() if name.startswith(_OBJECTIVE)
    }
    unread = {name for name in objective if not reads(name, objective)}
    if objective.get(_VETO) == "off":
        unread |= {name for name in objective if name.startswith("veto.") and name != _VETO}
    return {name: value for name, value in settings.items() if name.removeprefix(_OBJECTIVE) not in unread}


def written(value: Any) -> str:
    """A setting's value as a page shows it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(written(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
