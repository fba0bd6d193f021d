"""Targets of the Makefile in what goes wrong on a new machine, with programs that only write down their arguments."""

import subprocess
from pathlib import Path

from tools import ROOT


def make(folder: Path, *arguments: str) -> str:
    command = ["make", "--makefile", ROOT / "Makefile", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.stdout


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_an_environment_that_could_not_be_made_is_made_again(tmp_path: Path) -> None:
    """Debian's Python without python3-venv leaves an environment that has a python, but no pip."""
    fails = 'mkdir -p .venv/bin && ln -s "$(command -v python3)" .venv/bin/python; echo no ensurepip; exit 1'
    python = program(tmp_path / "python", fails)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    for _ in range(2):
        assert "no ensurepip" in make(tmp_path, "demo", f"PYTHON={python}")


def test_images_are_pushed_after_their_builds(tmp_path: Path) -> None:
    container = program(tmp_path / "container", f'[ "$1" != build ] || sleep 0.5; echo "$1" >> {tmp_path}/calls')
    make(tmp_path, "-j8", "images", "push", "ROLES=cpu", "REGISTRY=here", f"CONTAINER={container}")
    assert (tmp_path / "calls").read_text().split() == ["build", "tag", "push"]
