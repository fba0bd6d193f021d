"""Settings of the verifier of programs; plain numbers, because they go to processes that load nothing."""

from pydantic import Field

from tasks.settings.base import Number, Settings


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
