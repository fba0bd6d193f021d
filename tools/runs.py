"""Runs of the real workflows by the real command, each with its own home and so its own Flyte cache."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tools import ROOT

CONFIG = ROOT / "tools/small.yaml"
FILES = {"mu": "mu_grpo", "arm": "laboratory"}
"""Names of files, by the first word of workflows whose names do not begin with the name of the file."""
PYFLYTE, MU_GRPO = (str(Path(sys.executable).parent / name) for name in ("pyflyte", "mu-grpo"))


@dataclass
class Runner:
    """Runner of workflows with one store and one cache."""

    folder: Path
    config: Path = CONFIG
    store: Path = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.folder / "store"

    def command(self, workflow: str, *options: str) -> list[str]:
        name = workflow.split("_")[0]
        file = ROOT / "workflows" / f"{FILES.get(name, name)}.py"
        store = [] if "--store" in options else ["--store", str(self.store)]
        flags = [option for option in options if option == "--overwrite-cache"]  # An option of ``pyflyte run``.
        options = tuple(option for option in options if option not in flags)
        inputs = [] if workflow.startswith(("rescore", "evaluation")) else ["--inputs-file", str(self.config)]
        return [PYFLYTE, "run", *flags, str(file), workflow, *inputs, *store, *options]

    @property
    def environment(self) -> dict[str, str]:
        home, temporary = self.folder / "home", self.folder / "tmp"
        home.mkdir(exist_ok=True)
        temporary.mkdir(exist_ok=True)
        variables = {"HOME": str(home), "TMPDIR": str(temporary), "COLUMNS": "100", "HF_HUB_OFFLINE": "1"}
        return {**os.environ, **variables}

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
        """Run a workflow that must succeed, and return its output."""
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
    """Return the titles of the steps that a run executed. A cached step prints nothing."""
    lines = (line.partition(":") for line in output.splitlines())
    return [title for title, colon, rest in lines if colon and " in " in rest and " s" in rest and "/" in rest]
