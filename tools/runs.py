"""Runs of the real workflows through the real command, each with a home (and so a Flyte cache) of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tools import ROOT

CONFIG = ROOT / "tools/small.yaml"
FILES = {"mu": "mu_grpo", "arm": "laboratory"}
"""Files of workflows that do not begin with the file's name."""
PYFLYTE = Path(sys.executable).parent / "pyflyte"


@dataclass
class Runner:
    """Starts workflows against one store with one cache."""

    folder: Path
    config: Path = CONFIG
    store: Path = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.folder / "store"

    def command(self, workflow: str, *options: str) -> list[str]:
        name = workflow.split("_")[0]
        file = ROOT / "workflows" / f"{FILES.get(name, name)}.py"
        store = [] if "--store" in options else ["--store", str(self.store)]
        flags = [one for one in options if one == "--overwrite-cache"]  # of the command, not of the workflow
        options = tuple(one for one in options if one not in flags)
        inputs = [] if workflow.startswith(("rescore", "evaluation")) else ["--inputs-file", str(self.config)]
        return [str(PYFLYTE), "run", *flags, str(file), workflow, *inputs, *store, *options]

    @property
    def environment(self) -> dict[str, str]:
        home, temporary = self.folder / "home", self.folder / "tmp"
        home.mkdir(exist_ok=True)
        temporary.mkdir(exist_ok=True)
        own = {"HOME": str(home), "TMPDIR": str(temporary), "COLUMNS": "100", "HF_HUB_OFFLINE": "1"}
        return {**os.environ, **own}

    def run(self, workflow: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(workflow, *options),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def made(self, workflow: str, *options: str) -> str:
        """Runs a workflow that has to end well; returns what it printed."""
        done = self.run(workflow, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, workflow: str, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(workflow, *options),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def steps(output: str) -> list[str]:
    """Titles of the work that a run did: what was cached prints nothing."""
    lines = (line.partition(":") for line in output.splitlines())
    return [title for title, colon, rest in lines if colon and " in " in rest and " s" in rest and "/" in rest]
