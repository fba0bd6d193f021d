"""Share of a long run's wall-clock that is neither generation, verification, optimization nor evaluation.

    python -m tools.benchmarks overhead --repeats 1
    MU_GRPO_BENCH_SCALE=0.03 python -m tools.benchmarks overhead --repeats 1     # a trial of one minute

The run is configs/tiny-cpu.yaml, enlarged so that it takes at least half an hour on two cores. A real `pyflyte run`
executes it from an empty store; the base policy is made before. The seconds of the command are split into the phases
that the steps record, the time of the steps outside of their phases, and the rest. The split is only valid if the steps
run one after the other, as in a local run; otherwise its sum is not the time of the command, which is an error.
"""

import os
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tasks.report.history import History, load_history
from tasks.report.ledger import make_ledger
from tasks.settings import ArithmeticSettings
from tasks.store import Store
from tasks.stored.runs import find_reports
from tools import ROOT
from tools.benchmarks.measurement import Measurement, Ratio, Values
from tools.benchmarks.rollouts import base_policy
from tools.runs import Runner

CONFIG = ROOT / "configs/tiny-cpu.yaml"
SCALE = "MU_GRPO_BENCH_SCALE"
ARITHMETIC = ArithmeticSettings(levels=[2, 4])
PROMPTS, SHARDS, RESPONSES = 7168, 4, 20
PROMPTS_OF_AN_UPDATE = 32
WORK = {"generate": "generation", "verify": "verification", "optimize": "optimization", "evaluate": "evaluation"}
FOUR, ELSE, OUTSIDE = "the four", "all else", "the command, before and after its steps"
LIMIT = 0.03


def overrides(policy: Path, scale: float) -> str:
    """Return the settings that enlarge the run."""
    prompts = SHARDS * PROMPTS_OF_AN_UPDATE * max(1, round(scale * PROMPTS / SHARDS / PROMPTS_OF_AN_UPDATE))
    return (
        f"policy.path={policy} prompts.arithmetic.levels={str(ARITHMETIC.levels).replace(' ', '')} "
        f"prompts.prompts_per_stage={prompts} prompts.prompts_per_shard={prompts // SHARDS} "
        f"rollout.responses_per_prompt={RESPONSES} "
        f"optimize.responses_per_update={PROMPTS_OF_AN_UPDATE * RESPONSES}"
    )


def split_seconds(history: History, wall: float) -> dict[str, float]:
    """Return the seconds of a run by item.

    Raises:
        ValueError: their sum is not ``wall``, the seconds of the command.
    """
    ledger = make_ledger(history)
    items = defaultdict(float, {WORK.get(row, row): seconds for row, seconds in ledger.seconds.items()})
    rest = items.pop("rest", 0.0)
    for manifest in history.manifests.values():
        phases = manifest.timings.phases
        for name, seconds in (
            ("save", phases.get("save", 0.0)),
            (f"{manifest.task}, in no phase", manifest.timings.seconds - sum(phases.values())),
        ):
            items[name] += seconds
            rest -= seconds
    items["between steps"] = rest
    items[OUTSIDE] = wall - ledger.wall_clock
    total = sum(items.values())
    if abs(total - wall) > 0.01 * wall:
        raise ValueError(f"the sum of the items is {total:.1f} s, but the command took {wall:.1f} s")
    return dict(items)


def measure(repeats: int) -> Measurement:
    """Measure one run per repeat."""
    scale = float(os.environ.get(SCALE, "1"))
    shares: Values = []
    ways: dict[str, Values] = {FOUR: [], ELSE: []}
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        policy = base_policy(Path(name), ARITHMETIC)
        for number in range(repeats):
            folder = Path(name) / str(number)
            folder.mkdir()
            run = Runner(folder, CONFIG)
            began = time.perf_counter()
            run.made("mu_grpo", "--overrides", overrides(policy, scale))
            wall = time.perf_counter() - began
            store = Store.open(str(run.store), create=False)
            seconds = split_seconds(load_history(store, find_reports(store)[0].parents["evaluations"]), wall)
            four = sum(seconds.get(one, 0.0) for one in WORK.values())
            ways[FOUR].append(four)
            ways[ELSE].append(wall - four)
            shares.append((wall - four) / wall)
            total.update(seconds)
    minutes = [(four + rest) / 60 for four, rest in zip(*ways.values(), strict=True)]
    return Measurement(
        name="overhead",
        what="Seconds of a whole run: those of generation, verification, optimization and evaluation (the four), and "
        "all else.",
        unit="s",
        ways=ways,
        ratios=[Ratio(ELSE, "the command's seconds", shares, LIMIT, at_most=True)],
        facts={
            "minutes, at least 30 asked for": minutes,
            "item": {
                "seconds": {item: seconds / repeats for item, seconds in total.most_common()},
                "share": {item: f"{seconds / total.total():.2%}" for item, seconds in total.most_common()},
            },
        },
    )
