"""Programs that some tests need besides the project's own environment."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

_ROOT = Path(__file__).parents[1]
_SET_UP_HERE = [_ROOT / ".programs", _ROOT / ".venv-proxy/bin"]
"""Folders into which make puts programs."""


def find(program: str) -> str | None:
    """Return the path of a program, set up here or elsewhere; None without it."""
    return shutil.which(program, path=os.pathsep.join([*map(str, _SET_UP_HERE), os.environ.get("PATH", "")]))


def require(program: str) -> str:
    """Return the path of a program that the test cannot do without."""
    return find(program) or missing(f"{program} is not installed")


def missing(what: str) -> NoReturn:
    """Skip the test on a laptop, and fail it in continuous integration, which must have everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}; continuous integration must have it")
    pytest.skip(what)
