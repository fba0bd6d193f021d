"""The numbers of the tiny runs: every metric of every update, every verdict, every accuracy.

    python -m tools.frozen

writes them to tests/workflows/frozen/, where a change of the arithmetic is meant; a test compares later runs with them.

The last bits of floating-point sums depend on the processor: on another one, sampling may take another token somewhere,
and nothing after that is comparable. So each processor has a file.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tasks.store import Store
from tasks.store.layout import METRICS_FILE, VERDICTS_FILE, Kind
from tasks.store.records import Manifest
from tasks.store.tables import read_table
from tools import ROOT
from tools.runs import Runner

FOLDER = ROOT / "tests/workflows/frozen"
SHORT = (
    "policy.tiny.hidden_size=64 policy.tiny.layers=2 policy.tiny.heads=2 policy.tiny.key_value_heads=2 "
    "policy.tiny.intermediate_size=128 policy.tiny.warm_start.working_updates=150 "
    "policy.tiny.warm_start.guessing_updates=80 policy.tiny.warm_start.guess_share=0.8 "
    "policy.tiny.warm_start.examples_per_update=64 policy.tiny.warm_start.learning_rate=5e-3 "
    "prompts.arithmetic.levels=[1] prompts.prompts_per_stage=64 prompts.prompts_per_shard=32 "
    "optimize.responses_per_update=64 optimize.learning_rate=1e-3 evaluate.problems=50 evaluate.samples_per_problem=2"
)
RUNS = {"mu_grpo": ("configs/tiny-cpu.yaml", "mu_grpo_2"), "grpo": ("configs/tiny-cpu-grpo.yaml", "grpo")}
_LETTERS = {"correct": "c", "wrong": "w", "no_answer": "n"}


def file_of_processor() -> Path:
    """Return the file of what the last bits of a sum depend on."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    known = {name.strip(): value.strip() for name, _, value in lines}
    words = [known.get(name, "?") for name in ("vendor_id", "cpu family", "model")]
    return FOLDER / f"{'-'.join([*words, torch.backends.cpu.get_cpu_capability()])}.json"


def numbers(name: str, folder: Path) -> dict[str, Any]:
    """Do a run of ``RUNS`` in a folder, in one thread, and return its numbers as JSON has them."""
    config, workflow = RUNS[name]
    runner = OneThread(folder, ROOT / config)
    runner.made(workflow, "--overrides", SHORT)
    store = Store.open(runner.store)

    def manifests(kind: Kind) -> list[Manifest]:
        return sorted(store.manifests(kind), key=lambda one: one.timings.started)

    def tables(kind: Kind, file: str) -> list[list[dict[str, Any]]]:
        paths = [store.path(one.ref) / file for one in manifests(kind)]
        return [read_table(path).to_pylist() for path in paths if path.exists()]

    outcomes = tables("verdicts", VERDICTS_FILE)
    found: dict[str, Any] = json.loads(
        json.dumps(
            {
                "metrics": [row for rows in tables("policy", METRICS_FILE) for row in rows],
                "verdicts": ["".join(_LETTERS.get(row["outcome"], "?") for row in rows) for rows in outcomes],
                "evaluations": [dict(one.facts) for one in manifests("evaluation")],
            }
        )
    )
    return found


class OneThread(Runner):
    """Runner of workflows in one thread."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        written = {}
        for run in RUNS:
            (folder := Path(place) / run).mkdir()
            written[run] = numbers(run, folder)
    file_of_processor().write_text(json.dumps(written) + "\n")
    sys.stdout.write(f"{file_of_processor()}\n")
