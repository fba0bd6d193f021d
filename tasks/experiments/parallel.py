"""Parallel runs of a part of the laboratory, each in its own process. A cached run takes seconds."""

import multiprocessing
import os
import re
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

from tasks.errors import DataError
from tasks.experiments.arms import QUESTIONS, Arm, LaboratorySize, Part
from tasks.experiments.result import LaboratoryResult
from tasks.process.interruption import repeat_lost_sigint
from tasks.process.logs import bar
from tasks.settings import RunSettings
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


@dataclass(frozen=True)
class Plan:
    """A part of the laboratory with the options of its runs."""

    part: Part
    size: LaboratorySize
    config: Path
    jobs: int
    overrides: str

    def settings(self, arm: Arm) -> RunSettings:
        """Return the settings of an arm's runs, merged as in ``open_run``.

        Raises:
            SettingsError: the settings are invalid.
        """
        settings = RunSettings.read(self.config, f"{arm.overrides(self.size.updates)} {self.overrides}")
        settings.check_laboratory_run(self.size.updates, "updates of a run")
        return settings


class Command(NamedTuple):
    """A command of ``pyflyte``, whose output goes to ``log``."""

    name: str
    options: list[str]
    log: Path


def run_part(plan: Plan) -> LaboratoryResult:
    """Run all arms of a part on all seeds, then compare them, and print the comparison.

    SIGTERM ends the command as Ctrl-C does. The runs get SIGTERM when it ends, however it ends. Their logs are in the
    store; of a store on S3, in the local copy.

    Returns:
        The printed result. It may come from the cache, so it need not be the latest one.

    Raises:
        DataError: the working directory is not the root of a checkout, or a run failed. The message names the log.
    """
    if not WORKFLOWS.is_file():
        raise DataError(f"{WORKFLOWS}: not found. To fix it, start the laboratory in the root of a checkout.")
    arms = QUESTIONS[plan.part].arms
    settings = [plan.settings(arm) for arm in arms]  # Invalid settings are reported before the first run.
    store = Store.open(settings[0].store)
    logs = store.root / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    repeat_lost_sigint()
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // plan.jobs))
    runs = [_run(plan, arm, seed, logs) for arm in arms for seed in plan.size.seeds]
    failed = []
    with bar(f"laboratory {plan.part}", len(runs)) as progress:
        for run, code in run_side_by_side(runs, plan.jobs):
            if code:
                end = last_lines(run.log)
                failed.append(f"laboratory: {run.name} failed. Its output is in {run.log} and ends with\n{end}")
            progress.advance(note=run.name)
    if failed:
        raise DataError("\n".join(failed))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "comparison.txt"
        comparison = Command("comparison", _options(plan, f"{plan.size.name}_{plan.part}"), log)
        codes = [code for _, code in run_side_by_side([comparison], 1)]
        output = log.read_text(encoding="utf-8", errors="replace")
    print(output, end="")
    results = _RESULT.findall(output)
    if any(codes) or not results:
        raise DataError(f"laboratory: the comparison of part {plan.part} failed; see above.")
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


def _options(plan: Plan, workflow: str, *more: str) -> list[str]:
    inputs = ["--inputs-file", str(plan.config), "--overrides", plan.overrides]
    return ["run", str(WORKFLOWS), workflow, *inputs, *more]


def _run(plan: Plan, arm: Arm, seed: int, logs: Path) -> Command:
    name = f"{arm.name}, seed {seed}"
    options = ["--seed", str(seed), "--evaluations", str(plan.size.evaluations)]
    log = logs / f"{plan.part} {name.replace('/', ' ')}.txt"
    return Command(name, _options(plan, "arm", *options, "--arm", arm.overrides(plan.size.updates)), log)


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
