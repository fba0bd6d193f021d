"""Typed, strict settings of every step; importable without torch."""

from tasks.settings.base import Settings
from tasks.settings.benchmarks import BENCHMARKS, BenchmarkSettings
from tasks.settings.code import CodeSettings
from tasks.settings.devices import BackendSettings, EngineSettings, LoraSettings
from tasks.settings.evaluate import EvaluateSettings, EvaluationSettings
from tasks.settings.experiment import ExperimentSettings
from tasks.settings.given import Given
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
from tasks.settings.sources import ArithmeticSettings, SourceSettings
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
from tasks.settings.training_sets import TRAINING_SETS, TrainingSetSettings
from tasks.settings.verify import (
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
    "DataSettings",
    "EngineSettings",
    "EvaluateSettings",
    "EvaluationSettings",
    "ExperimentSettings",
    "FunctionVerifySettings",
    "GateSettings",
    "Given",
    "LoraSettings",
    "MathVerifySettings",
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
    "SourceSettings",
    "TinyPolicySettings",
    "TrackerSettings",
    "TrainingSetSettings",
    "VerifySettings",
    "VetoSettings",
    "WarmStartSettings",
    "WeightSettings",
]
