"""Seconds of Mu-GRPO in four stages and of GRPO with mu = 4, with the same updates, base policy, prompts and seed.

    python -m tools.benchmarks stages

The settings are those of configs/reproduce-tiny.yaml with a quarter of its prompts, in one shard: 64 updates. A real
`pyflyte run` executes every run with an empty store and an empty cache, and every repeat has its own seed. The base
policy is made before. Times, passes and causes are computed as in a reproduction (docs/speedup.md).

Legend of shapes: N runs, F features of work, which are forward passes and rows in them.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
import yaml

from tasks.experiments.runs import SystemRun, load_run
from tasks.experiments.speedup import END_TO_END, GENERATION, TO_LEVEL, speeds_of, split_causes
from tasks.report.ledger import training_clock
from tasks.settings import ArithmeticSettings, WarmStartSettings
from tasks.settings.experiment import PlannedRun, read_experiment
from tasks.store import Store
from tasks.stored.runs import find_reports
from tools import ROOT
from tools.benchmarks.measurement import Measurement, Ratio, Values, measure_interleaved
from tools.benchmarks.rollouts import base_policy
from tools.runs import Runner

CONFIG = ROOT / "configs/reproduce-tiny.yaml"
PROMPTS = 128
OURS, BASELINE = "mu_grpo", "grpo"
NAMES = {OURS: "Mu-GRPO", BASELINE: "GRPO"}
BARS = {END_TO_END: 1.53, GENERATION: 1.82, TO_LEVEL: 2.2}
"""Ratios that the paper reports."""
FINDING = (
    "The causes are those of docs/speedup.md. Mu-GRPO generates in fewer passes, with more rows each. Here such "
    "passes take longer, so the seconds fall by less than the number of passes. Generation is too small a part of "
    "training here for the end-to-end ratio of the paper, even if it took no time."
)


def planned_run(system: str, policy: Path, seed: int) -> PlannedRun:
    """Return the run of a system with a seed."""
    experiment, _ = read_experiment(CONFIG)
    part = experiment.model_copy(update={"seeds": [seed], "systems": {system: experiment.systems[system]}})
    shorter = f"prompts.prompts_per_stage={PROMPTS} prompts.prompts_per_shard={PROMPTS}"
    (run,) = part.runs("runs", f"policy.path={policy} {shorter} optimize.learning_rate=1e-4")
    return run


def execute(planned: PlannedRun, folder: Path) -> tuple[float, SystemRun]:
    """Execute a run, and return the seconds of the command and the finished run."""
    folder.mkdir()
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(planned.settings.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
    runner = Runner(folder, config)
    began = time.perf_counter()
    runner.made(planned.system)
    seconds = time.perf_counter() - began
    store = Store.open(str(runner.store), create=False)
    return seconds, load_run(store, planned, find_reports(store)[0].ref)


def measure(repeats: int) -> Measurement:
    """Measure both systems."""
    runs: dict[str, list[SystemRun]] = {OURS: [], BASELINE: []}
    with tempfile.TemporaryDirectory() as name:
        policy = base_policy(Path(name), ArithmeticSettings(levels=[1, 2, 3]), WarmStartSettings())
        numbers = count()

        def seconds_of(system: str) -> float:
            planned = planned_run(system, policy, seed=len(runs[system]))
            seconds, run = execute(planned, Path(name) / str(next(numbers)))
            runs[system].append(run)
            return seconds

        ways = {system: partial(seconds_of, system) for system in NAMES}
        commands = measure_interleaved(ways, repeats, "stages")
    all_runs = runs[OURS] + runs[BASELINE]
    values: dict[str, Values] = {f"{NAMES[system]}, the whole command": commands[system] for system in NAMES}
    for row in ("generate", "optimize", "verify"):
        for system in NAMES:
            values[f"{NAMES[system]}, {row}"] = [run.ledger.seconds.get(row, 0.0) for run in runs[system]]
    ratios, missing = _ratios(all_runs)
    return Measurement(
        name="stages",
        what=f"Seconds of {all_runs[0].history.evaluated[-1].updates} updates of a tiny policy by Mu-GRPO (four "
        "stages) and by GRPO (mu = 4).",
        unit="s",
        ways=values,
        ratios=ratios,
        finding=FINDING,
        facts={
            "final accuracy of every seed": {
                NAMES[system]: [run.history.evaluated[-1].accuracy.value for run in runs[system]] for system in NAMES
            },
            **missing,
            "limits at this size": _limits(runs),
            "mean of a run": {NAMES[system]: _mean_counts(runs[system]) for system in NAMES},
            "seconds saved, by cause": {one.name: one.seconds for one in split_causes(all_runs, OURS, [BASELINE])},
            "threads": torch.get_num_threads(),
        },
    )


def _ratios(runs: Sequence[SystemRun]) -> tuple[list[Ratio], dict[str, str]]:
    """Return the speed-ups, and a text for each that has no value because a seed did not reach the level."""
    ratios, missing = [], {}
    for speed in speeds_of(runs, OURS, [BASELINE]):
        known = [one for one in speed.by_seed if one is not None]
        if len(known) == len(speed.by_seed):
            ratios.append(Ratio(f"speed of Mu-GRPO, {speed.name}", NAMES[BASELINE], known, BARS[speed.name]))
        else:
            missing[speed.name] = f"reached on {len(known)} of {len(speed.by_seed)} seeds, {BARS[speed.name]} required"
    return ratios, missing


def _limits(runs: Mapping[str, Sequence[SystemRun]]) -> dict[str, float]:
    """Return the largest speed-ups that are possible at this size, if everything else is as in the runs of GRPO."""
    training = sum(training_clock(run.history)[-1] for run in runs[BASELINE])
    generation = sum(run.ledger.seconds["generate"] for run in runs[BASELINE])
    passes = {system: _mean_counts(some)["engine passes"] for system, some in runs.items()}
    return {
        "generation's share of GRPO's training": generation / training,
        "end to end, if generation took no time": training / (training - generation),
        "generation, if the rows of a pass took no time": passes[BASELINE] / passes[OURS],
    }


def _mean_counts(runs: Sequence[SystemRun]) -> dict[str, float]:
    """Return the work of generation and the loads of policies, as means over runs."""

    def mean(count: Callable[[SystemRun], float]) -> float:
        return statistics.mean(map(count, runs))

    work_NF = [np.sum([call.work_F for call in run.calls], axis=0) for run in runs]
    passes = statistics.mean(float(work_F[0]) for work_F in work_NF)
    return {
        "engine passes": passes,
        "ms of generation per pass": 1000 * mean(lambda run: run.ledger.seconds["generate"]) / passes,
        "rows computed in a pass": statistics.mean(float(work_F[1] / work_F[0]) for work_F in work_NF),
        "response tokens": mean(lambda run: float(run.response_tokens)),
        "loads of a policy": mean(
            lambda run: sum("load" in one.timings.phases for one in run.history.manifests.values())
        ),
        "load and switch, s": mean(
            lambda run: run.ledger.seconds.get("load", 0.0) + run.ledger.seconds.get("switch", 0.0)
        ),
    }
