"""Python programs that are forked from a process with the heavy modules loaded. Each starts five seconds sooner.

Tests start programs this way. Benchmarks do not, because they also measure the start.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tools import ROOT
from tools.runs import Runner as Started


def forkserver() -> ForkServerContext:
    """Return the context whose processes start with the modules of ``tools/loaded.py`` loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tools.loaded"])
    return context


class Program:
    """A running program in its own session.

    Args:
        command: a console script of the environment, or ``-m`` and a module, then the arguments.
        environment: all environment variables of the program.
        folder: working directory.
        together: if True, standard error is merged into standard output.
    """

    def __init__(
        self, command: list[str], environment: Mapping[str, str], folder: Path = ROOT, together: bool = False
    ) -> None:
        self.command = command
        self._files = [tempfile.NamedTemporaryFile("w+") for _ in range(1 if together else 2)]  # noqa: SIM115 - closed with the object
        outputs = [file.name for file in self._files]
        self._process = forkserver().Process(target=_run, args=(command, dict(environment), folder, outputs))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    @property
    def printed(self) -> str:
        """Standard output so far."""
        return Path(self._files[0].name).read_text()

    def send(self, how: signal.Signals, to_all: bool = False) -> None:
        """Send a signal to the program if it has not ended, or with ``to_all`` to its process group."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # It has ended, and its exit code is about to come.
                (os.killpg if to_all else os.kill)(self.pid, how)

    def end(self, seconds: float = 600) -> subprocess.CompletedProcess[str]:
        """Wait for the end of the program, and return its output.

        Raises:
            subprocess.TimeoutExpired: the program did not end in time, and was killed.
        """
        self._process.join(seconds)
        if self.returncode is None:
            self.send(signal.SIGKILL, to_all=True)
            raise subprocess.TimeoutExpired(self.command, seconds)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read())
        return subprocess.CompletedProcess(self.command, self.returncode, texts[0], "".join(texts[1:]))


def _run(command: list[str], environment: dict[str, str], folder: Path, outputs: list[str]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # The next use reads it from the environment again.
    for stream, output in ((1, outputs[0]), (2, outputs[-1])):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), stream)
    _read_environment()
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            (program,) = entry_points(group="console_scripts", name=command[0])
            sys.exit(program.load()())
    finally:
        atexit._run_exitfuncs()


def _read_environment() -> None:
    """Initialize flytekit from the environment, as its import does."""
    from flytekit.configuration import DataConfig
    from flytekit.configuration.file import get_config_file
    from flytekit.core import data_persistence
    from flytekit.core.context_manager import FlyteContextManager
    from flytekit.loggers import initialize_global_loggers

    initialize_global_loggers()
    get_config_file.cache_clear()  # It keeps what the import of flytekit read.
    folder = tempfile.mkdtemp(prefix="flyte-")
    files = data_persistence.default_local_file_access_provider
    files.__init__(f"{folder}/sandbox", f"{folder}/raw", DataConfig.auto())
    FlyteContextManager.initialize()


def run(command: list[str], environment: Mapping[str, str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program, and return its output."""
    return Program(command, environment, folder).end()


class Runner(Started):
    """Runner of workflows as ``tools.runs.Runner``, but in forked processes."""

    def launch(self, workflow: str, *options: str) -> Program:
        """Start a workflow, with standard error merged into standard output."""
        return Program(self._forked(workflow, *options), self.environment, self.folder, together=True)

    def run(self, workflow: str, *options: str) -> subprocess.CompletedProcess[str]:
        return run(self._forked(workflow, *options), self.environment, self.folder)

    def _forked(self, workflow: str, *options: str) -> list[str]:
        _, *rest = self.command(workflow, *options)
        return ["pyflyte", *rest]
