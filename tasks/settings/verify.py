"""Settings of the verifier, one class for each kind of judging."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tasks.settings.base import Kinds, Number, Settings
from tasks.settings.functions import find_function

VerifyKind = Literal["math", "code", "function"]


class VerifySettings(Kinds):
    """The verifier, which judges responses in worker processes that can be killed."""

    kind: str = "math"
    """Kind of judging: ``math`` compares the answer in its box by math-verify, ``code`` runs its program on tests in a
    sandbox, ``function`` calls a function of your own."""
    workers: int = Field(2, ge=1)
    """Processes that judge side by side."""
    memory_mib: int = Field(2048, ge=256)
    """Address space of a worker."""
    max_failure_share: Number = Field(0.02, ge=0, le=1)
    """The stage stops when a larger share of its responses timed out or crashed the verifier."""


class MathVerifySettings(VerifySettings):
    """Mathematics in a box, compared with the gold answer by math-verify."""

    kind: Literal["math"] = "math"
    deadline_seconds: Number = Field(2.0, gt=0)
    """CPU time for one answer; then its worker is killed and replaced."""
    max_answer_characters: int = Field(2000, ge=1)
    """A longer answer counts as no_answer."""


class CodeSettings(Settings):
    """Limits of a program on one test. It runs in a process of its own, without network, files or processes."""

    seconds: Number = Field(6.0, gt=0)
    """CPU time; by the clock five times as much. A program that takes longer is wrong."""
    memory_mib: int = Field(1024, ge=128)
    """Address space."""
    output_mib: int = Field(16, ge=1)
    """Limit of standard output; a program can write nothing else."""
    threads: int = Field(64, ge=1)
    open_files: int = Field(64, ge=16)
    max_program_characters: int = Field(65536, ge=1)
    """A longer program counts as no_answer."""
    float_tolerance: Number = Field(1e-6, ge=0)
    """Tolerance of a number, relative or absolute, where the expected one has a point or an exponent. 0 compares
    values, as LiveCodeBench does."""
    require_landlock: bool = True
    """Refuse a machine whose kernel cannot close files to a program. Without it a program can read what the verifier's
    user can; it still reaches no network, starts nothing and writes nothing."""


class CodeVerifySettings(VerifySettings):
    """A program, run on the tests of the gold answer in a sandbox."""

    kind: Literal["code"] = "code"
    code: CodeSettings = CodeSettings()


class FunctionVerifySettings(VerifySettings):
    """A function of the user's own: ``score(prompt, response, answer)`` gives the reward of a response."""

    kind: Literal["function"] = "function"
    source_digest: str = ""
    """SHA-256 of the function's file and of the files beside it that it imports. It is filled in when settings are
    read, so that an edited function judges anew; workers refuse to load another source."""
    function: str
    """The function as ``module:name``, such as ``my_rewards:score``. The module is importable or a file in the current
    folder."""
    deadline_seconds: Number = Field(2.0, gt=0)
    """CPU time for one call; then its worker is killed and replaced."""
    correct_from: Number = 1.0
    """The least reward with which a response counts as correct in accuracies and tallies. Learning sees the reward."""

    @model_validator(mode="before")
    @classmethod
    def _fill_digest(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("source_digest") or not isinstance(values.get("function"), str):
            return values
        try:
            return {**values, "source_digest": find_function(values["function"]).digest}
        except ValueError:
            return values  # The field itself is refused.

    @field_validator("function")
    @classmethod
    def _is_found(cls, value: str, info: ValidationInfo) -> str:
        if not info.data.get("source_digest"):
            find_function(value)
        return value
