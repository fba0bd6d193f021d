"""Settings of the verifier, one class for each kind of judging responses."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tasks.settings.base import Kinds, Number, Settings
from tasks.settings.functions import find_function

VerifyKind = Literal["math", "code", "function"]


def without_digest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values of a verifier without the digest of its function's source."""
    return {name: value for name, value in values.items() if name != "source_digest"}


class VerifySettings(Kinds):
    """The verifier, which judges responses in worker processes, so that it can kill one that hangs."""

    kind: str = "math"
    """Kind of judging responses."""
    workers: int = Field(2, ge=1)
    """Number of processes that judge in parallel."""
    memory_mib: int = Field(2048, ge=256)
    """Largest address space of a worker, in MiB."""
    max_failure_share: Number = Field(0.02, ge=0, le=1)
    """Largest share of the responses of a stage or an evaluation that time out or crash the verifier; a larger share
    stops it."""

    def renewed(self) -> "VerifySettings":
        """Return these settings with the digest of the function's source as it is now, if they name a function."""
        return VerifySettings.parse(without_digest(self.model_dump(mode="json")))


class MathVerifySettings(VerifySettings):
    """Comparison of the answer in the box of a response with the gold answer, by math-verify."""

    kind: Literal["math"] = "math"
    deadline_seconds: Number = Field(2.0, gt=0)
    """Largest CPU time for one answer; a check that takes longer is killed, and the outcome is timeout."""
    max_answer_characters: int = Field(2000, ge=1)
    """Largest length of an answer; a longer one counts as no_answer."""


class CodeSettings(Settings):
    """Limits of a program on one test.

    The program runs in its own process, without network, files and child processes.
    """

    seconds: Number = Field(6.0, gt=0)
    """Largest CPU time; the limit of wall-clock time is five times this. A program that takes longer is wrong."""
    memory_mib: int = Field(1024, ge=128)
    """Largest address space of the program, in MiB."""
    output_mib: int = Field(16, ge=1)
    """Largest standard output, in MiB; a program cannot write to anything else."""
    threads: int = Field(64, ge=1)
    """Largest number of threads."""
    open_files: int = Field(64, ge=16)
    """Largest number of open files."""
    max_program_characters: int = Field(65536, ge=1)
    """Largest length of a program; a longer one counts as no_answer."""
    float_tolerance: Number = Field(1e-6, ge=0)
    """Relative or absolute tolerance for numbers, if the expected number has a decimal point or an exponent. 0: the
    values must be equal, as in LiveCodeBench."""
    require_landlock: bool = True
    """Refuse machines whose kernel cannot deny a program access to files (Landlock). When false, a program on such a
    machine can read all files that the verifier's user can read, but it still cannot use the network, start processes
    or write files."""


class CodeVerifySettings(VerifySettings):
    """Execution of the program in a response on the tests of the gold answer, in a sandbox."""

    kind: Literal["code"] = "code"
    code: CodeSettings = CodeSettings()


class FunctionVerifySettings(VerifySettings):
    """A user's function ``score(prompt, response, answer)``, which returns the reward of a response."""

    kind: Literal["function"] = "function"
    source_digest: str = ""
    """SHA-256 of the function's file and of the files beside it that it imports. It is computed at the start of
    every run, in place of a given value, so that responses are judged again after an edit. Workers refuse to load a
    source with another digest."""
    function: str
    """The function as ``module:name``, such as ``my_rewards:score``. The module must be a file in the current folder
    or importable."""
    deadline_seconds: Number = Field(2.0, gt=0)
    """Largest CPU time for one call; a call that takes longer is killed, and the outcome is timeout."""
    correct_from: Number = 1.0
    """Smallest reward of a response that counts as correct in accuracies and tallies. Training uses the reward."""

    @model_validator(mode="before")
    @classmethod
    def _fill_digest(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("source_digest") or not isinstance(values.get("function"), str):
            return values
        try:
            return {**values, "source_digest": find_function(values["function"]).digest}
        except ValueError:
            return values  # _is_found raises the error for this field.

    @field_validator("function")
    @classmethod
    def _is_found(cls, value: str, info: ValidationInfo) -> str:
        if not info.data.get("source_digest"):
            find_function(value)
        return value
