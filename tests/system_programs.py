"""What some tests need and pip does not install."""

import os
import shutil
from typing import NoReturn

import pytest


def require(program: str) -> str:
    """The path of a program; without it the test is skipped on a laptop, and fails in continuous integration."""
    path = shutil.which(program)
    if path is None:
        lacking(f"{program} is not installed")
    return path


def lacking(message: str) -> NoReturn:
    """Skips the test for want of what the message names; in continuous integration fails it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}; continuous integration must have it")
    pytest.skip(message)
