"""Programs that some tests need and pip does not install."""

import os
import shutil

import pytest


def require(program: str) -> str:
    """The path of a program; without it the test is skipped on a laptop, and fails in continuous integration."""
    path = shutil.which(program)
    if path is not None:
        return path
    message = f"{program} is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}; continuous integration must have it")
    pytest.skip(message)
