"""Seconds that commands need to start: a new run, a run whose tasks are all cached, and a plan.

    python -m tools.benchmarks starts

A new run has an empty store and an empty cache of Flyte. Its start ends when its first step starts, according to the
manifest of this step. The run whose tasks are all cached is a finished run that is started again.
"""

import itertools
import subprocess
import tempfile
import time
from pathlib import Path

from tasks.store import Store
from tasks.store.layout import KINDS
from tools import ROOT
from tools.benchmarks.measurement import Measurement, Ratio, measure_interleaved
from tools.runs import MU_GRPO, Runner

CONFIG = ROOT / "configs/tiny-cpu.yaml"
BARS = {"pyflyte run, until its first step": 4.0, "pyflyte run, all cached": 6.0, "mu-grpo plan": 1.0}
FINDING = (
    "python -X importtime and cProfile: the start imports flytekit, its plugin for training, and kubernetes, on "
    "which the plugin depends. A run whose tasks are all cached loads neither torch nor matplotlib, and reads the "
    "metadata of every installed package once."
)


def new_runner(folder: Path) -> Runner:
    """Return a runner of small runs, which have as many tasks as configs/tiny-cpu.yaml."""
    folder.mkdir()
    return Runner(folder)


def seconds_until_first_step(run: Runner) -> float:
    """Start a run, kill it after it has written an artifact, and return the seconds until its first step started."""
    began = time.time()
    with run.start("mu_grpo") as process:
        while not (manifests := _manifests(run.store)):
            if process.poll() is not None:
                raise RuntimeError(f"the run ended with {process.returncode} before it wrote an artifact")
            time.sleep(0.02)
        process.kill()
    store = Store.open(str(run.store), create=False)
    kinds = {path.parts[-3] for path in manifests}
    return min(one.timings.started for kind in KINDS if kind in kinds for one in store.manifests(kind)) - began


def _manifests(store: Path) -> list[Path]:
    """Return the manifests of committed artifacts."""
    return [path for path in store.glob("*/*/manifest.json") if path.parts[-3] in KINDS]


def seconds_of_run(run: Runner) -> float:
    """Return the seconds of a whole run."""
    began = time.perf_counter()
    run.made("mu_grpo")
    return time.perf_counter() - began


def seconds_of_plan() -> float:
    """Return the seconds of a plan of a run, without GPUs."""
    began = time.perf_counter()
    subprocess.run([MU_GRPO, "plan", "--config", str(CONFIG)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def measure(repeats: int) -> Measurement:
    """Measure all three."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        finished = new_runner(Path(folder) / "finished")
        finished.made("mu_grpo")
        works = (
            lambda: seconds_until_first_step(new_runner(Path(folder) / str(next(numbers)))),
            lambda: seconds_of_run(finished),
            seconds_of_plan,
        )
        values = measure_interleaved(dict(zip(BARS, works, strict=True)), repeats, "starts")
    return Measurement(
        name="starts",
        what="Seconds until the first step of a run, of a run whose tasks are all cached, and of a plan.",
        unit="s",
        ways=values,
        ratios=[Ratio(name, "1 s", values[name], bar, at_most=True) for name, bar in BARS.items()],
        finding=FINDING,
    )
