"""Programs that some tests need besides the project's own environment."""

import os
import shutil
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_SET_UP_HERE = [_ROOT / ".programs", _ROOT / ".venv-proxy/bin"]
"""Where make puts programs."""


def find(program: str) -> str | None:
    """The path of a program, set up here or elsewhere; None without it."""
    return shutil.which(program, path=os.pathsep.join([*map(str, _SET_UP_HERE), os.environ.get("PATH", "")]))


def require(program: str) -> str:
    """The path of a program; without it the test is skipped on a laptop, and fails in continuous integration."""
    path = find(program)
    if path is not None:
        return path
    message = f"{program} is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}; continuous integration must have it")
    pytest.skip(message)
