"""Types of the tasks' inputs: for each step a record with its settings, the store and the seed.

Each step has a separate record, so that a changed setting changes only the cache keys of the steps that use it.
"""

from functools import cache
from operator import attrgetter
from typing import Annotated, ClassVar, TypedDict, TypeVar

from flytekit import HashMethod
from flytekit.core.type_engine import TypeEngine
from flytekit.extras.pydantic_transformer.transformer import PydanticTransformer
from flytekit.models.types import LiteralType, SimpleType

from tasks.settings import (
    ArithmeticSettings,
    BenchmarkSettings,
    EvaluateSettings,
    EvaluationSettings,
    Given,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    RunSettings,
    TrainingSetSettings,
    VerifySettings,
)
from tasks.settings.base import FlyteModel
from tasks.store.records import ArtifactRef, Record, StoreRef
from tasks.store.work import work_key

_models = PydanticTransformer()
_derive = _models.get_literal_type


@cache
def _type_of(model: type[FlyteModel]) -> LiteralType:
    """Derive Flyte's type of a model, without a JSON schema for records between tasks, which no user writes."""
    if issubclass(model, StepInputs):
        return LiteralType(simple=SimpleType.STRUCT, annotation=_type_of(StoreRef).annotation)
    return _derive(model)


_models.get_literal_type = lambda hint: _type_of(getattr(hint, "__origin__", hint))
TypeEngine.register_additional_type(_models, FlyteModel)
Artifact = Annotated[ArtifactRef, HashMethod(attrgetter("digest"))]
"""An artifact as a task's input or output; cache keys hold its digest."""
StoreHandle = Annotated[StoreRef, HashMethod(attrgetter("id"))]
"""A store as a task's input or output; cache keys hold its id, so that they are the same after the store is moved."""


class RunSections(TypedDict):
    """Inputs of every workflow that trains: the settings that determine a result, and the store."""

    store: str
    policy: Given[PolicySettings]
    prompts: Given[PromptsSettings]
    rollout: Given[RolloutSettings]
    verify: Given[VerifySettings]
    optimize: Given[OptimizeSettings]
    evaluate: Given[EvaluateSettings]


class RunOptions(RunSections):
    """Inputs of the workflows of a whole run."""

    seed: int
    overrides: str
    operation: Given[OperationSettings]


SECTIONS: dict[str, object] = {"store": "runs", "verify": Given[VerifySettings]()}
"""Defaults of ``RunSections``."""
OPTIONS: dict[str, object] = {**SECTIONS, "seed": 0, "overrides": "", "operation": Given[OperationSettings]()}
"""Defaults of ``RunOptions``."""


class StepInputs(Record):
    """Base of the records. Flyte's cache key holds ``key``, a digest of the fields that determine the result."""

    not_in_key: ClassVar[tuple[str, ...]] = ("operation",)
    """Fields that do not change the result."""
    store: StoreRef

    def key(self) -> str:
        """Return a digest of the fields that determine the result, and of the store's id."""
        values = [[name, value] for name, value in self if name not in ("store", *self.not_in_key)]
        return work_key(type(self).__name__, self.store.id, values)


class SeededInputs(StepInputs):
    """Base of the records of steps whose result depends on the run's seed."""

    seed: int


class PolicyInputs(SeededInputs):
    """Inputs of ``prepare_policy``."""

    settings: PolicySettings
    arithmetic: ArithmeticSettings
    source: str
    """Fingerprint of ``settings.path``, so that a changed folder is imported again."""
    chat: bool
    """True if some prompts go through the chat template of the policy's tokenizer."""


class BenchmarkInputs(StepInputs):
    """Inputs of ``prepare_benchmark``."""

    settings: BenchmarkSettings
    verify: VerifySettings
    source: str
    """Fingerprint of the source that the settings name, where it is not on the hub."""
    operation: OperationSettings


class TrainingSetInputs(StepInputs):
    """Inputs of ``prepare_training_set``."""

    not_in_key = ("operation", "prompts")
    settings: TrainingSetSettings
    verify: VerifySettings
    source: str
    """Fingerprint of the source that the settings name, where it is not on the hub."""
    operation: OperationSettings
    prompts: PromptsSettings
    """Settings of the stages' prompts; a training set that does not fit them is rejected at the start."""


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

    settings: OptimizeSettings
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
    """The first stage, from 0, that has these settings; earlier stages belong to another run."""


class RunInputs(ReportInputs):
    """Inputs of ``close_run``."""

    started: float
    """Unix seconds at which the execution's first process started."""


AnyInputs = TypeVar("AnyInputs", bound=StepInputs)
Keyed = Annotated[AnyInputs, HashMethod(StepInputs.key)]
"""A record as a task's input or output; cache keys hold its ``key``."""
