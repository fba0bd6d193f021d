"""The resolved settings of a run."""

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.report.history import History
from tasks.settings.base import flat
from tasks.store.records import Manifest

OTHER_STEPS = ("rollout", "verify")
"""Settings of other steps that an alternating step also has; they are shown once."""


def resolved_settings(history: History) -> dict[str, dict[str, str]]:
    """Return the settings of every step of the run; values that changed during the run are joined by an arrow."""
    finals = [stage.policy for stage in history.stages]
    artifacts: dict[str, list[Manifest]] = {
        "base policy": [one for one in history.of_kind("policy") if one not in finals],
        # Prompts with the fact "data" come from a data set, not from the settings of the prompts.
        "prompts": [one for one in history.of_kind("prompts") if "data" not in one.facts],
        "rollout": history.of_kind("rollouts"),
        "verify": history.of_kind("verdicts"),
        "optimize": finals,
    }
    for index, name in enumerate(history.benchmarks):
        step = "evaluate" if len(history.benchmarks) == 1 else f"evaluate, {name}"
        evaluations = [policy.evaluations[index].evaluation for policy in history.evaluated]
        artifacts[step] = [history.manifests[evaluation] for evaluation in evaluations]
    settings = {step: [one.settings for one in manifests] for step, manifests in artifacts.items()}
    # Runs share these artifacts, whose manifests have the settings of the first run. The page shows those of this run.
    for step, section in (("base policy", "policy"), ("prompts", "prompts")):
        settings[step] = [history.settings[section]] if section in history.settings else settings[step]
    return {step: parameters for step, values in settings.items() if (parameters := parameters_of(values))}


def parameters_of(settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings of a step's artifacts; values that differ between artifacts are joined by an arrow."""
    values: dict[str, list[str]] = {}
    for one in settings:
        step = {name: value for name, value in one.items() if name not in OTHER_STEPS}
        for name, value in _without_idle_veto(flat(step)).items():
            seen = values.setdefault(name, [])
            if format_value(value) not in seen:
                seen.append(format_value(value))
    return {name: " → ".join(seen) for name, seen in values.items()}


def _without_idle_veto(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without those of a veto that is off, except its scope."""
    veto = "objective.veto."
    off = settings.get(f"{veto}scope") == "off"
    return {name: one for name, one in settings.items() if not (off and name.startswith(veto) and name[-5:] != "scope")}


def format_value(value: Any) -> str:
    """Return the value of a setting as a page shows it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(format_value(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
