"""The runs of a part side by side, each a process of its own; what is cached takes seconds."""

import multiprocessing
import os
import runpy
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tasks.errors import DataError
from tasks.laboratory.arms import QUESTIONS, SEEDS, Arm, Part
from tasks.progress import bar

WORKFLOWS = Path("workflows/laboratory.py")
_IMPORTED_ONCE = [
    "flytekit.clis.sdk_in_container.pyflyte",
    "workflows.laboratory",
    "tasks.policy.step",
    "tasks.prompts.step",
    "tasks.study.step",
    "tasks.laboratory.step",
]
"""Modules that every run needs and that take longer to import than a miniature takes to train."""


@dataclass(frozen=True)
class Plan:
    """How a part is run."""

    part: Part
    config: Path
    quick: bool
    jobs: int
    overrides: str

    @property
    def seeds(self) -> tuple[int, ...]:
        """One for the quick form."""
        return SEEDS[:1] if self.quick else SEEDS


def run_part(plan: Plan, updates: int, evaluations: int, logs: Path) -> None:
    """Makes all runs of a part, then compares them; what the comparison prints goes to standard output.

    Args:
        plan: what to run.
        updates: of every run.
        evaluations: of every run.
        logs: a folder for the output of every run.

    Raises:
        DataError: this is no checkout, or a run failed; its log is named.
    """
    if not WORKFLOWS.is_file():
        raise DataError(f"{WORKFLOWS}: not here. Start the laboratory in the root of a checkout.")
    logs.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // plan.jobs))
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(_IMPORTED_ONCE)
    runs = [(arm, seed) for arm in QUESTIONS[plan.part].arms for seed in plan.seeds]
    with bar(f"laboratory {plan.part}", len(runs)) as progress, ThreadPoolExecutor(plan.jobs) as pool:
        waiting: set[Future[str]] = {
            pool.submit(_run, processes, plan, arm, seed, updates, evaluations, logs) for arm, seed in runs
        }
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for one in done:
                    progress.advance(note=one.result())
        finally:
            for one in waiting:
                one.cancel()
    name = f"{'quick' if plan.quick else 'laboratory'}_{plan.part}"
    if _ended(processes, [*_options(plan, name), "--overrides", plan.overrides]):
        raise DataError(f"laboratory: the comparison of part {plan.part} failed; see above.")


def _options(plan: Plan, workflow: str) -> list[str]:
    return ["run", str(WORKFLOWS), workflow, "--inputs-file", str(plan.config)]


def _ended(processes: ForkServerContext, options: list[str], log: Path | None = None) -> int:
    """Exit code of ``pyflyte`` with these options."""
    process = processes.Process(target=_pyflyte, args=(options, log))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _pyflyte(options: list[str], log: Path | None) -> None:
    """The command itself, in this process; what it and its processes print goes to ``log``, if there is one."""
    if log is not None:
        with log.open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
    command = str(Path(sys.executable).parent / "pyflyte")
    sys.argv = [command, *options]
    runpy.run_path(command, run_name="__main__")


def _run(
    processes: ForkServerContext, plan: Plan, arm: Arm, seed: int, updates: int, evaluations: int, logs: Path
) -> str:
    """One arm on one seed; returns its name."""
    name = f"{arm.name}, seed {seed}"
    options = ["--seed", str(seed), "--evaluations", str(evaluations), "--overrides", plan.overrides]
    log = logs / f"{plan.part} {name.replace('/', ' ')}.txt"
    if _ended(processes, [*_options(plan, "arm"), *options, "--arm", arm.overrides(updates)], log):
        last = "\n".join(log.read_text(encoding="utf-8").splitlines()[-8:])
        raise DataError(f"laboratory: {name} failed. Its output is in {log} and ends with\n{last}")
    return name
