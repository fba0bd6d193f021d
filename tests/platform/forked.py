"""Pods as processes of this machine, forked from one that has the heavy modules loaded: a start takes a moment."""

import multiprocessing
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path

from tests.platform.propeller import Attempt
from tools import ROOT

# Nothing of the project: it reads its deployment from the environment when it is imported.
_LOADED = [
    "flytekit.bin.entrypoint",
    "flytekitplugins.kfpytorch",
    "pyarrow.parquet",
    "s3fs",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",
]


@dataclass
class Processes:
    """Starts attempts from the command lines that were registered.

    Attributes:
        folder: for what pods print, and their temporary files.
        environment: of every pod, besides what its attempt brings.
    """

    folder: Path
    environment: Mapping[str, str]
    _numbers: "count[int]" = field(default_factory=count)

    def start(self, attempt: Attempt) -> str:
        """Runs an attempt to its end; what it printed."""
        place = self.folder / f"pod-{next(self._numbers)}"
        place.mkdir(parents=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "TMPDIR": str(place),
            "OMP_NUM_THREADS": "1",
            **self.environment,
            **attempt.environment,
        }
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_LOADED)
        pod = context.Process(target=_pod, args=(attempt.arguments, environment, place / "log"))
        pod.start()
        pod.join()
        return (place / "log").read_text()


def _pod(arguments: list[str], environment: dict[str, str], log: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    (program,) = entry_points(group="console_scripts", name=arguments[0])
    sys.argv = arguments
    sys.exit(program.load()())
