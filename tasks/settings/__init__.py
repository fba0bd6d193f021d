"""Typed, strict settings of every step; importable without torch."""

from tasks.settings.base import Settings
from tasks.settings.objective import PRESETS, AdvantageSettings, ObjectiveSettings, VetoSettings
from tasks.settings.run import RunSettings
from tasks.settings.steps import (
    ArithmeticSettings,
    EvaluateSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    TinyPolicySettings,
    VerifySettings,
    WarmStartSettings,
)

__all__ = [
    "PRESETS",
    "AdvantageSettings",
    "ArithmeticSettings",
    "EvaluateSettings",
    "ObjectiveSettings",
    "OptimizeSettings",
    "PolicySettings",
    "PromptsSettings",
    "RolloutSettings",
    "RunSettings",
    "Settings",
    "TinyPolicySettings",
    "VerifySettings",
    "VetoSettings",
    "WarmStartSettings",
]
