"""Typed, strict settings of every step; importable without torch."""

from tasks.settings.base import Settings
from tasks.settings.data_sets import (
    BENCHMARKS,
    TRAINING_SETS,
    ArithmeticSettings,
    BenchmarkSettings,
    SourceSettings,
    TrainingSetSettings,
)
from tasks.settings.devices import BackendSettings, EngineSettings, LoraSettings
from tasks.settings.evaluate import EvaluateSettings, EvaluationSettings
from tasks.settings.experiment import ExperimentSettings
from tasks.settings.objective import (
    AdvantageSettings,
    ObjectiveSettings,
    RegulariserSettings,
    VetoSettings,
)
from tasks.settings.presets import MODIFIERS, PRESETS
from tasks.settings.run import Given, RunSettings
from tasks.settings.steps import (
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    TinyPolicySettings,
    TrackerSettings,
    WarmStartSettings,
)
from tasks.settings.verify import (
    CodeSettings,
    CodeVerifySettings,
    FunctionVerifySettings,
    MathVerifySettings,
    VerifySettings,
)

__all__ = [
    "BENCHMARKS",
    "MODIFIERS",
    "PRESETS",
    "TRAINING_SETS",
    "AdvantageSettings",
    "ArithmeticSettings",
    "BackendSettings",
    "BenchmarkSettings",
    "CodeSettings",
    "CodeVerifySettings",
    "EngineSettings",
    "EvaluateSettings",
    "EvaluationSettings",
    "ExperimentSettings",
    "FunctionVerifySettings",
    "Given",
    "LoraSettings",
    "MathVerifySettings",
    "ObjectiveSettings",
    "OperationSettings",
    "OptimizeSettings",
    "PolicySettings",
    "PromptsSettings",
    "RegulariserSettings",
    "RolloutSettings",
    "RunSettings",
    "Settings",
    "SourceSettings",
    "TinyPolicySettings",
    "TrackerSettings",
    "TrainingSetSettings",
    "VerifySettings",
    "VetoSettings",
    "WarmStartSettings",
]
