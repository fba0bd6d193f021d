"""Targets of the Makefile, with a program in place of Python or podman that writes down what it was asked for."""

import subprocess
from pathlib import Path

from tools import ROOT


def make(folder: Path, script: str, variable: str, *arguments: str) -> str:
    """Return what make prints, with a script as the program that a variable names."""
    (folder / "program").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "program").chmod(0o755)
    command = ["make", "--makefile", ROOT / "Makefile", *arguments, f"{variable}={folder / 'program'}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60).stdout


def test_an_environment_that_could_not_be_made_is_made_again(tmp_path: Path) -> None:
    """Debian's Python without python3-venv leaves an environment that has a python, but no pip."""
    fails = 'mkdir -p .venv/bin && ln -s "$(command -v python3)" .venv/bin/python; echo no ensurepip; exit 1'
    for _ in range(2):
        assert "no ensurepip" in make(tmp_path, fails, "PYTHON", ".venv/bin/.torch")


def test_images_are_pushed_after_their_builds(tmp_path: Path) -> None:
    calls = '[ "$1" != build ] || sleep 0.5; echo "called $1"'
    printed = make(tmp_path, calls, "CONTAINER", "-sj8", "images", "push", "ROLES=cpu", "REGISTRY=here")
    assert printed.split() == ["called", "build", "called", "tag", "called", "push"]
