"""Mu-GRPO in four stages beside GRPO with mu = 4, by real `pyflyte run`: the same updates, policy, prompts and seed.

    python -m tools.benchmarks stages

Settings are those of configs/reproduce-tiny.yaml with a quarter of its prompts, in one shard: 64 updates. Repeats have
seeds, stores and caches of their own; the base policy is made before. Times, passes and causes are what a reproduction
computes (docs/speedup.md).
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
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
from tools.benchmarks.measured import Measured, Ratio, Values, in_turn
from tools.benchmarks.rollouts import base_policy
from tools.runs import Runner

CONFIG = ROOT / "configs/reproduce-tiny.yaml"
PROMPTS = 128
OURS, BASELINE = "mu_grpo", "grpo"
NAMES = {OURS: "Mu-GRPO", BASELINE: "GRPO"}
BARS = {END_TO_END: 1.53, GENERATION: 1.82, TO_LEVEL: 2.2}
"""The paper's."""


FINDING = (
    "The causes are those of docs/speedup.md. Mu-GRPO generates in fewer passes, with more rows each. Here such "
    "passes take longer, so the seconds fall by less than the number of passes. Generation is too small a part of "
    "training here for the end-to-end ratio of the paper, even if it took no time."
)


def planned(policy: Path, seed: int) -> list[PlannedRun]:
    """Both systems with a seed."""
    experiment, _ = read_experiment(CONFIG)
    one = experiment.model_copy(
        update={"seeds": [seed], "systems": {name: experiment.systems[name] for name in (OURS, BASELINE)}}
    )
    shorter = f"prompts.prompts_per_stage={PROMPTS} prompts.prompts_per_shard={PROMPTS}"
    return one.runs("runs", f"policy.path={policy} {shorter} optimize.learning_rate=1e-4")


def run(planned: PlannedRun, folder: Path) -> tuple[float, SystemRun]:
    """Seconds of the command, and what it left."""
    folder.mkdir()
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(planned.settings.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
    runner = Runner(folder, config)
    began = time.perf_counter()
    runner.made(planned.system)
    seconds = time.perf_counter() - began
    store = Store.open(str(runner.store), create=False)
    return seconds, load_run(store, planned.model, planned.system, planned.seed, find_reports(store)[0].ref)


def measure(repeats: int) -> Measured:
    """Both in turn."""
    made: dict[str, list[SystemRun]] = {OURS: [], BASELINE: []}
    with tempfile.TemporaryDirectory() as name:
        policy = base_policy(Path(name), ArithmeticSettings(levels=[1, 2, 3]), WarmStartSettings())
        numbers = count()

        def work(system: str) -> Callable[[], float]:
            def once() -> float:
                seed = len(made[system])
                (one,) = (one for one in planned(policy, seed) if one.system == system)
                seconds, left = run(one, Path(name) / str(next(numbers)))
                made[system].append(left)
                return seconds

            return once

        commands = in_turn({system: work(system) for system in NAMES}, repeats, "stages")
    runs = made[OURS] + made[BASELINE]
    ways: dict[str, Values] = {f"{NAMES[system]}, the whole command": commands[system] for system in NAMES}
    for row in ("generate", "optimize", "verify"):
        for system in NAMES:
            ways[f"{NAMES[system]}, {row}"] = [one.ledger.seconds.get(row, 0.0) for one in made[system]]
    ratios, missed = _ratios(runs)
    return Measured(
        name="stages",
        what=f"Seconds of {runs[0].history.evaluated[-1].updates} updates of a tiny policy by Mu-GRPO (four stages) "
        "and by GRPO (mu = 4).",
        unit="s",
        ways=ways,
        ratios=ratios,
        finding=FINDING,
        facts={
            "final accuracy of every seed": {
                NAMES[system]: [one.history.evaluated[-1].accuracy.value for one in made[system]] for system in NAMES
            },
            **missed,
            "limits at this size": _limits(made),
            "mean of a run": {NAMES[system]: _counts(made[system]) for system in NAMES},
            "seconds saved, by cause": {one.name: one.seconds for one in split_causes(runs, OURS, [BASELINE])},
            "threads": torch.get_num_threads(),
        },
    )


def _ratios(runs: Sequence[SystemRun]) -> tuple[list[Ratio], dict[str, str]]:
    """Speed-ups, and those without a number because the level was not reached on every seed."""
    ratios, missed = [], {}
    for speed in speeds_of(runs, OURS, [BASELINE]):
        known = [one for one in speed.by_seed if one is not None]
        if len(known) == len(speed.by_seed):
            ratios.append(Ratio(f"Mu-GRPO, {speed.name}", NAMES[BASELINE], known, BARS[speed.name]))
        else:
            missed[speed.name] = f"reached on {len(known)} of {len(speed.by_seed)} seeds, {BARS[speed.name]} required"
    return ratios, missed


def _limits(made: Mapping[str, Sequence[SystemRun]]) -> dict[str, float]:
    """Largest speed-ups here, all else as in GRPO's runs: if Mu-GRPO generated in no time, and by its number of forward
    passes alone, as where a pass takes as long whatever its rows."""
    clock = [training_clock(run.history)[-1] for run in made[BASELINE]]
    generating = [run.ledger.seconds["generate"] for run in made[BASELINE]]
    passes = {system: _counts(runs)["engine passes"] for system, runs in made.items()}
    return {
        "generation's share of GRPO's training": sum(generating) / sum(clock),
        "end to end, if generation took no time": sum(clock) / (sum(clock) - sum(generating)),
        "generation, if the rows of a pass took no time": passes[BASELINE] / passes[OURS],
    }


def _counts(runs: Sequence[SystemRun]) -> dict[str, float]:
    """The parts of generation; means over the runs."""

    def mean(one: Callable[[SystemRun], float]) -> float:
        return statistics.mean(map(one, runs))

    work = [np.sum([one.work_F for one in run.calls or []], axis=0) for run in runs]
    generating = mean(lambda run: run.ledger.seconds["generate"])
    passes = statistics.mean(float(one[0]) for one in work)
    return {
        "engine passes": passes,
        "ms of generation per pass": 1000 * generating / passes,
        "rows computed in a pass": statistics.mean(float(one[1] / one[0]) for one in work),
        "response tokens": statistics.mean(float(one.response_tokens) for one in runs),
        "loads of a policy": mean(
            lambda run: sum("load" in one.timings.phases for one in run.history.manifests.values())
        ),
        "load and switch, s": mean(
            lambda run: run.ledger.seconds.get("load", 0.0) + run.ledger.seconds.get("switch", 0.0)
        ),
    }
