"""The runs of a part side by side, each a process of its own; what is cached takes seconds."""

import os
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import DataError
from tasks.laboratory.arms import QUESTIONS, SEEDS, Arm, Part
from tasks.progress import bar

WORKFLOWS = Path("workflows/laboratory.py")


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
    runs = [(arm, seed) for arm in QUESTIONS[plan.part].arms for seed in plan.seeds]
    with bar(f"laboratory {plan.part}", len(runs)) as progress, ThreadPoolExecutor(plan.jobs) as pool:
        waiting: set[Future[str]] = {
            pool.submit(_run, plan, arm, seed, updates, evaluations, logs) for arm, seed in runs
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
    if subprocess.run([*_command(plan, name), "--overrides", plan.overrides], check=False).returncode:
        raise DataError(f"laboratory: the comparison of part {plan.part} failed; see above.")


def _command(plan: Plan, workflow: str) -> list[str]:
    pyflyte = Path(sys.executable).parent / "pyflyte"
    return [str(pyflyte), "run", str(WORKFLOWS), workflow, "--inputs-file", str(plan.config)]


def _run(plan: Plan, arm: Arm, seed: int, updates: int, evaluations: int, logs: Path) -> str:
    """One arm on one seed; returns its name."""
    name = f"{arm.name}, seed {seed}"
    options = ["--seed", str(seed), "--evaluations", str(evaluations), "--overrides", plan.overrides]
    threads = str(max(1, (os.cpu_count() or 1) // plan.jobs))
    log = logs / f"{plan.part} {name.replace('/', ' ')}.txt"
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [*_command(plan, "arm"), *options, "--arm", arm.overrides(updates)],
            env={**os.environ, "OMP_NUM_THREADS": threads},
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        last = "\n".join(log.read_text(encoding="utf-8").splitlines()[-8:])
        raise DataError(f"laboratory: {name} failed. Its output is in {log} and ends with\n{last}")
    return name
