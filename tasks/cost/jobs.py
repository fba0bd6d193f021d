"""Jobs: the pods of a run, with what each does, how long it takes and what it moves."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from tasks.cost.files import Traffic
from tasks.settings.deployment import Role

Step = Literal[
    "run", "prompts", "policy", "generate", "verify", "optimize", "alternate", "evaluate", "average", "report"
]
STEPS: tuple[Step, ...] = get_args(Step)
Row = Literal["start", "warm_start", "load", "generate", "verify", "optimize", "switch", "evaluate", "transfer", "rest"]
ROWS: tuple[Row, ...] = get_args(Row)
"""Those of a run's ledger, with the start of pods, and what they move to and from the store, beside the rest."""


@dataclass(frozen=True)
class Counts:
    """What is done, in numbers."""

    generated_tokens: float = 0.0
    """For training."""
    trained_tokens: float = 0.0
    """With the prompts', where their length is known."""
    responses: int = 0
    """For training."""
    evaluated_responses: int = 0
    answers: int = 0
    """That the verifier checks."""
    updates: int = 0
    engine_starts: int = 0
    trainer_starts: int = 0
    refreshes: int = 0
    """Inside of one task: each brings new weights to the engine."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True)
class Job:
    """A pod's work, or a step's where all steps share a process."""

    name: str
    step: Step
    role: Role
    after: tuple[str, ...]
    gpus: int
    seconds: Mapping[Row, float]
    counts: Counts
    traffic: Traffic

    @property
    def length(self) -> float:
        """Seconds."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Layout:
    """GPUs, in all and of a pod; without any, all steps share one process."""

    gpus: int
    pod_gpus: Mapping[Role, int] = field(default_factory=dict)
    training_gpus: int = 1
    """That a policy is trained on, of those of its pods."""

    @property
    def one_process(self) -> bool:
        """Whether steps follow each other in one process, which keeps an engine for all steps of a policy."""
        return self.gpus == 0
