"""Finished runs, and what a program prints that succeeds or is refused."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tasks.store import Store
from tools.forked import Runner


class Finished(NamedTuple):
    """A runner, and what its finished run printed."""

    runner: Runner
    output: str

    @property
    def store(self) -> Store:
        return Store.open(self.runner.store)

    @property
    def pristine(self) -> Path:
        """A copy of the run's store that nobody adds to."""
        return self.runner.folder / "pristine"

    def copied(self, folder: Path) -> Runner:
        """A runner elsewhere, with a copy of the run's store and an empty Flyte cache."""
        runner = Runner(folder)
        shutil.copytree(self.pristine, runner.store)
        return runner


def assert_succeeded(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """A program that must have ended well; its output is shown where it has not."""
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done


def words(text: str) -> str:
    """What a terminal shows, in one line and without frames."""
    return " ".join(text.replace("│", " ").split())


def refusal_text(done: subprocess.CompletedProcess[str]) -> str:
    """The message, in one line, of a program that must have been refused without a traceback."""
    text = words(done.stdout + done.stderr)
    assert done.returncode != 0, text
    assert "Traceback" not in text
    return text
