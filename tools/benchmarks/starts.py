"""How long commands take before they do anything, and when there is nothing to do: wall-clock seconds.

    python -m tools.benchmarks starts

`pyflyte run` until the code of its first step runs, as that step's manifest says; a finished run, started again;
`mu-grpo plan`. Flyte's cache and the store are new for each of the first.
"""

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tasks.store import Store
from tasks.store.layout import KINDS
from tools import ROOT
from tools.benchmarks.measured import Measured, Ratio, in_turn
from tools.runs import Runner

CONFIG = ROOT / "configs/tiny-cpu.yaml"
PROGRAM = str(Path(sys.executable).parent / "mu-grpo")
BARS = {"pyflyte run, until its first step": 4.0, "pyflyte run, all cached": 6.0, "mu-grpo plan": 1.0}
FINDING = (
    "python -X importtime and cProfile: the start imports flytekit, its plugin for training, and kubernetes, on "
    "which the plugin depends. A run whose tasks are all cached loads neither torch nor matplotlib, and reads the "
    "metadata of every installed package once."
)


def runner(folder: Path) -> Runner:
    """A runner with a store and a cache of its own; as many tasks as configs/tiny-cpu.yaml, and little work."""
    folder.mkdir()
    return Runner(folder)


def until_first_step(run: Runner) -> float:
    """Kills the run once its first artifact is there."""
    began = time.time()
    with run.start("mu_grpo") as process:
        while not (manifests := _manifests(run.store)):
            if process.poll() is not None:
                raise RuntimeError(f"ended with {process.returncode} and no artifact")
            time.sleep(0.02)
        process.kill()
    store = Store.open(str(run.store), create=False)
    kinds = {path.parts[-3] for path in manifests}
    return min(one.timings.started for kind in KINDS if kind in kinds for one in store.manifests(kind)) - began


def _manifests(store: Path) -> list[Path]:
    """The manifests of artifacts that are whole."""
    return [path for path in store.glob("*/*/manifest.json") if path.parts[-3] in KINDS]


def again(run: Runner) -> Callable[[], float]:
    """A finished run, started again."""

    def work() -> float:
        began = time.perf_counter()
        run.made("mu_grpo")
        return time.perf_counter() - began

    work()
    return work


def plan() -> float:
    """Seconds of a plan of a run, without GPUs."""
    began = time.perf_counter()
    subprocess.run([PROGRAM, "plan", "--config", str(CONFIG)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def measure(repeats: int) -> Measured:
    """All three in turn."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        works = (
            lambda: until_first_step(runner(Path(folder) / str(next(numbers)))),
            again(runner(Path(folder) / "done")),
            plan,
        )
        values = in_turn(dict(zip(BARS, works, strict=True)), repeats, "starts")
    return Measured(
        name="starts",
        what="Seconds until the first step of a run, of a run that finds all in the cache, and of a plan.",
        unit="s",
        ways=values,
        ratios=[Ratio(name, "1 s", values[name], bar, at_most=True) for name, bar in BARS.items()],
        finding=FINDING,
    )
