"""Programs of the system that some tests need besides the Python environment."""

import os
import shutil
from typing import NoReturn

import pytest

from tools import ROOT

_SET_UP_HERE = [ROOT / ".programs", ROOT / ".venv-proxy/bin"]
"""Folders into which make installs programs."""


def find(program: str) -> str | None:
    """Return the path of a program, or None if it is not installed."""
    return shutil.which(program, path=os.pathsep.join([*map(str, _SET_UP_HERE), os.environ.get("PATH", "")]))


def require(program: str) -> str:
    """Return the path of a program; skip the test, or fail it in continuous integration, if it is not installed."""
    return find(program) or missing(f"{program} is not installed")


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it in continuous integration, which must have all programs."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}; continuous integration must have it")
    pytest.skip(what)
