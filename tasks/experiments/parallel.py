"""Parallel runs of a part of the laboratory, each in its own process. A cached run takes seconds."""

import multiprocessing
import os
import re
import runpy
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import product
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

from tasks.errors import DataError
from tasks.experiments.questions import QUESTIONS, LaboratorySize
from tasks.experiments.result import LaboratoryResult
from tasks.process.interruption import repeat_lost_sigint
from tasks.process.logs import bar
from tasks.settings import RunSettings
from tasks.settings.base import read_yaml
from tasks.store import ArtifactRef, Store
from tasks.store.layout import LOGS

WORKFLOWS = Path("workflows/laboratory.py")
_PRELOADED = [
    "flytekit.clis.sdk_in_container.pyflyte",
    "workflows.laboratory",
    "tasks.models.step",
    "tasks.data.training",
    "tasks.train.study",
    "tasks.experiments.laboratory",
]
"""Modules that every run imports. Their import takes longer than the training of a miniature policy."""
_RESULT = re.compile(r"laboratory/[0-9a-f]{16}(?=/curves\.svg$)", re.MULTILINE)
"""The folder of the result, in the last line of a printed comparison."""


class Command(NamedTuple):
    """A command of ``pyflyte``, whose output goes to ``log``."""

    name: str
    options: list[str]
    log: Path


def run_part(part: str, size: LaboratorySize, config: Path, jobs: int, overrides: str) -> LaboratoryResult:
    """Run all arms of a part on all seeds, then compare them, and print the comparison.

    SIGTERM ends the command as Ctrl-C does. The runs get SIGTERM when it ends, however it ends. The logs are in the
    store; of a store on S3, in the local copy.

    Returns:
        The printed result. It may come from the cache, so it need not be the latest one.

    Raises:
        DataError: the working directory is not the root of a checkout, or a run failed. The message names the log.
        SettingsError: the settings of an arm are invalid; nothing has run yet.
    """
    if not WORKFLOWS.is_file():
        raise DataError(f"{WORKFLOWS}: not found. To fix it, start the laboratory in the root of a checkout.")
    arms = QUESTIONS[part].arms
    values = read_yaml(config, RunSettings.model_fields, "configs/laboratory.yaml")
    settings = [arm.settings(values, size.updates, overrides) for arm in arms]
    store = Store.open(settings[0].store)
    logs = store.root / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    repeat_lost_sigint()
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))

    def command(name: str, workflow: str, *options: str) -> Command:
        inputs = ["--inputs-file", str(config), "--overrides", overrides, *options]
        return Command(name, ["run", str(WORKFLOWS), workflow, *inputs], logs / f"{part} {name.replace('/', ' ')}.txt")

    evaluations = str(size.evaluations)
    runs = [
        command(
            f"{arm.name}, seed {seed}",
            *("arm", "--seed", str(seed), "--evaluations", evaluations, "--arm", arm.overrides(size.updates)),
        )
        for arm, seed in product(arms, size.seeds)
    ]
    failed = []
    with bar(f"laboratory {part}", len(runs)) as progress:
        for run, code in run_side_by_side(runs, jobs):
            if code:
                end = last_lines(run.log)
                failed.append(f"laboratory: {run.name} failed. Its output is in {run.log} and ends with\n{end}")
            progress.advance(note=run.name)
    if failed:
        raise DataError("\n".join(failed))
    ((comparison, code),) = run_side_by_side([command("comparison", f"{size.name}_{part}")], 1)
    output = comparison.log.read_text(encoding="utf-8", errors="replace")
    print(output, end="")
    results = _RESULT.findall(output)
    if code or not results:
        raise DataError(f"laboratory: the comparison of part {part} failed; see above.")
    return LaboratoryResult.load(store, store.manifest(ArtifactRef.of(results[-1])).ref)


def last_lines(log: Path) -> str:
    """Return the last eight lines of a log, whose end can be a part of a character if the run was killed."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])


def run_side_by_side(commands: Sequence[Command], jobs: int) -> Iterator[tuple[Command, int]]:
    """Run commands, at most ``jobs`` at a time, and yield each ended command with its exit code.

    After a command fails, no more commands are started, and the running ones continue to their ends.

    A single thread starts all processes and waits for them: multiprocessing polls every child whenever it starts
    another one, and if two threads poll the same ended child, one of them gets exit code 255.
    """
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(_PRELOADED)
    waiting = list(reversed(commands))
    running: dict[int, tuple[Command, ForkServerProcess]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            command = waiting.pop()
            # A daemon gets SIGTERM when this process ends.
            process = processes.Process(target=_pyflyte, args=(command.options, command.log), daemon=True)
            process.start()
            running[process.sentinel] = command, process
        ready = wait(list(running))
        for sentinel in [each for each in running if each in ready]:
            command, process = running.pop(sentinel)
            process.join()
            assert process.exitcode is not None
            if process.exitcode:
                waiting.clear()
            yield command, process.exitcode


def _end_with_parent() -> None:
    """Send this process SIGTERM when its parent ends.

    multiprocessing ends the daemons of a parent that exits, but not one whose start was interrupted.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _pyflyte(options: list[str], log: Path) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    command = str(Path(sys.executable).parent / "pyflyte")
    sys.argv = [command, *options]
    runpy.run_path(command, run_name="__main__")
