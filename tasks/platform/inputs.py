"""Inputs of every step: a typed record with the step's settings, the store and the seed.

There is a record for each step and not one for all: a change of a setting must change the cache keys of the steps that
use it, and of no other.
"""

import hashlib
import json
from typing import Annotated, Any, ClassVar, TypeVar

from flytekit import HashMethod

from tasks.artifacts.records import ArtifactRef, Record, StoreRef
from tasks.settings import (
    ArithmeticSettings,
    BenchmarkSettings,
    EvaluationSettings,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    RunSettings,
    TrainingSetSettings,
    VerifySettings,
)
from tasks.settings.base import Settings


class StepInputs(Record):
    """Base of the records. What of them decides a step's result enters Flyte's cache key, as ``key``."""

    undecisive: ClassVar[tuple[str, ...]] = ("operation",)
    """Fields that change no result."""
    store: StoreRef

    def key(self) -> str:
        """Digest of the fields that decide the result; of the store its id alone counts."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in self.undecisive}
        plain = {name: _plain(value) for name, value in values.items()}
        return hashlib.sha256(json.dumps([type(self).__name__, plain], sort_keys=True).encode()).hexdigest()


class SeededInputs(StepInputs):
    """Base of the records of steps whose result depends on the run's seed."""

    seed: int


class PolicyInputs(SeededInputs):
    """Inputs of ``prepare_policy``."""

    settings: PolicySettings
    arithmetic: ArithmeticSettings
    source: str
    """Fingerprint of ``settings.path``: a changed folder is taken in again."""
    chat: bool
    """Some prompts go through the chat template of the policy's tokenizer."""


class BenchmarkInputs(StepInputs):
    """Inputs of ``prepare_benchmark``."""

    settings: BenchmarkSettings
    verify: VerifySettings
    source: str
    """Fingerprint of what the settings name outside of the hub."""
    operation: OperationSettings


class TrainingSetInputs(StepInputs):
    """Inputs of ``prepare_training_set``."""

    undecisive = ("operation", "prompts")
    settings: TrainingSetSettings
    verify: VerifySettings
    source: str
    """Fingerprint of what the settings name outside of the hub."""
    operation: OperationSettings
    prompts: PromptsSettings
    """Settings of the stages' prompts; a training set that does not fit them is refused before anything else runs."""


class PromptsInputs(SeededInputs):
    """Inputs of ``prepare_prompts``."""

    settings: PromptsSettings


class RolloutInputs(SeededInputs):
    """Inputs of ``generate``."""

    settings: RolloutSettings


class VerifyInputs(SeededInputs):
    """Inputs of ``verify``."""

    settings: VerifySettings


class OptimizeInputs(SeededInputs):
    """Inputs of ``optimize``."""

    optimize: OptimizeSettings
    operation: OperationSettings


class AlternateInputs(SeededInputs):
    """Inputs of ``alternate``."""

    rollout: RolloutSettings
    verify: VerifySettings
    optimize: OptimizeSettings
    updates_per_rollout: int
    operation: OperationSettings


class StudyInputs(SeededInputs):
    """Inputs of ``study``."""

    rollout: RolloutSettings
    verify: VerifySettings
    optimize: OptimizeSettings
    evaluate: list[EvaluationSettings]
    updates_per_rollout: int


class EvaluationInputs(SeededInputs):
    """Inputs of ``evaluate`` for one benchmark."""

    settings: EvaluationSettings
    verify: VerifySettings
    operation: OperationSettings


class MeanInputs(SeededInputs):
    """Inputs of ``average``, the mean over benchmarks."""


class ReportInputs(SeededInputs):
    """Inputs of ``report``."""

    settings: RunSettings
    """Settings of the whole run, which identify it."""
    trained_from: int
    """The stage, from 0, that these settings begin with; those before it are another run's."""


class RunInputs(ReportInputs):
    """Inputs of ``close_run``."""

    started: float
    """Unix seconds at which the execution's first process started."""


One = TypeVar("One", bound=StepInputs)
Keyed = Annotated[One, HashMethod(StepInputs.key)]
"""A record as an input or output of a task: its key is what enters Flyte's cache keys."""


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.determining()
    if isinstance(value, StoreRef):
        return value.id
    if isinstance(value, ArtifactRef):
        return value.digest
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
