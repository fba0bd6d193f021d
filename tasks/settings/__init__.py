"""Typed, strict settings of every step; importable without torch."""

from tasks.settings.base import Settings
from tasks.settings.code import CodeSettings
from tasks.settings.devices import BackendSettings, EngineSettings, LoraSettings
from tasks.settings.objective import (
    AdvantageSettings,
    DataSettings,
    GateSettings,
    MismatchSettings,
    ObjectiveSettings,
    RatioSettings,
    RegulariserSettings,
    VetoSettings,
    WeightSettings,
)
from tasks.settings.presets import MODIFIERS, PRESETS
from tasks.settings.run import RunSettings
from tasks.settings.steps import (
    ArithmeticSettings,
    EvaluateSettings,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    TinyPolicySettings,
    TrackerSettings,
    VerifySettings,
    WarmStartSettings,
)

__all__ = [
    "MODIFIERS",
    "PRESETS",
    "AdvantageSettings",
    "ArithmeticSettings",
    "BackendSettings",
    "CodeSettings",
    "DataSettings",
    "EngineSettings",
    "EvaluateSettings",
    "GateSettings",
    "LoraSettings",
    "MismatchSettings",
    "ObjectiveSettings",
    "OperationSettings",
    "OptimizeSettings",
    "PolicySettings",
    "PromptsSettings",
    "RatioSettings",
    "RegulariserSettings",
    "RolloutSettings",
    "RunSettings",
    "Settings",
    "TinyPolicySettings",
    "TrackerSettings",
    "VerifySettings",
    "VetoSettings",
    "WarmStartSettings",
    "WeightSettings",
]
