"""What share of a long run's wall-clock is neither generation, verification, optimization nor evaluation.

    python -m tools.benchmarks overhead --repeats 1
    MU_GRPO_BENCH_SCALE=0.03 python -m tools.benchmarks overhead --repeats 1     # a minute, to try it

configs/tiny-cpu.yaml, enlarged to at least half an hour on two cores, by a real `pyflyte run` from an empty store; the
base policy is made before. The wall-clock is that of the command. Its seconds are divided by the phases that every step
noted, what steps took besides, and what nobody noted. Steps of a local run come one after the other; were some side by
side, their sum would exceed the command's, and that is refused.
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
from tools.benchmarks.measured import Measured, Ratio, Values
from tools.benchmarks.rollouts import base_policy
from tools.runs import Runner

CONFIG = ROOT / "configs/tiny-cpu.yaml"
SCALE = "MU_GRPO_BENCH_SCALE"
ARITHMETIC = ArithmeticSettings(levels=[2, 4])
PROMPTS, SHARDS, RESPONSES = 7168, 4, 20
PROMPTS_OF_AN_UPDATE = 32
WORK = {"generate": "generation", "verify": "verification", "optimize": "optimization", "evaluate": "evaluation"}
FOUR, ELSE, UNNOTED = "the four", "all else", "the command, before and after its steps"
LIMIT = 0.03


def overrides(policy: Path, scale: float) -> str:
    """The run, enlarged."""
    prompts = SHARDS * PROMPTS_OF_AN_UPDATE * max(1, round(scale * PROMPTS / SHARDS / PROMPTS_OF_AN_UPDATE))
    return (
        f"policy.path={policy} prompts.arithmetic.levels={str(ARITHMETIC.levels).replace(' ', '')} "
        f"prompts.prompts_per_stage={prompts} prompts.prompts_per_shard={prompts // SHARDS} "
        f"rollout.responses_per_prompt={RESPONSES} "
        f"optimize.responses_per_update={PROMPTS_OF_AN_UPDATE * RESPONSES}"
    )


def items(history: History, wall: float) -> dict[str, float]:
    """Seconds of a run by item; together they are ``wall``, the command's."""
    ledger = make_ledger(history)
    found = defaultdict(float, {WORK.get(row, row): seconds for row, seconds in ledger.seconds.items()})
    rest = found.pop("rest", 0.0)
    for manifest in history.manifests.values():
        phases = manifest.timings.phases
        for name, seconds in (
            ("save", phases.get("save", 0.0)),
            (f"{manifest.task}, in no phase", manifest.timings.seconds - sum(phases.values())),
        ):
            found[name] += seconds
            rest -= seconds
    found["between steps"] = rest
    found[UNNOTED] = wall - ledger.wall_clock
    total = sum(found.values())
    if abs(total - wall) > 0.01 * wall:
        raise ValueError(f"the items are {total:.1f} s together and the command took {wall:.1f} s")
    return dict(found)


def measure(repeats: int) -> Measured:
    """Measure one run each."""
    scale = float(os.environ.get(SCALE, "1"))
    shares: Values = []
    ways: dict[str, Values] = {FOUR: [], ELSE: []}
    itemised: Counter[str] = Counter()
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
            seconds = items(load_history(store, find_reports(store)[0].parents["evaluations"]), wall)
            four = sum(seconds.get(one, 0.0) for one in WORK.values())
            ways[FOUR].append(four)
            ways[ELSE].append(wall - four)
            shares.append((wall - four) / wall)
            itemised.update(seconds)
    minutes = [(four + rest) / 60 for four, rest in zip(*ways.values(), strict=True)]
    return Measured(
        name="overhead",
        what="Seconds of a whole run: generation, verification, optimization and evaluation (the four), and all else.",
        unit="s",
        ways=ways,
        ratios=[Ratio(ELSE, "the command's seconds", shares, LIMIT, at_most=True)],
        facts={
            "minutes, at least 30 asked for": minutes,
            "item": {
                "seconds": {one: seconds / repeats for one, seconds in itemised.most_common()},
                "share": {one: f"{seconds / sum(itemised.values()):.2%}" for one, seconds in itemised.most_common()},
            },
        },
    )
