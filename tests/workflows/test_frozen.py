"""The tiny runs give the numbers that they always gave: every metric of every update, every verdict, every accuracy.

`python -m tests.workflows.test_frozen` writes them anew, where a change of the arithmetic is meant.

The last bits of floating-point sums depend on the processor: on another one, sampling may take another token somewhere,
and nothing after that is comparable. Each processor has a file, and on one without a file the test is skipped by name.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.store import Store
from tasks.store.layout import Kind
from tasks.store.records import Manifest
from tasks.store.tables import read_table
from tools import ROOT
from tools.forked import Runner

FROZEN = Path(__file__).with_name("frozen")
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
    """The file of what the last bits of a sum depend on."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    known = {name.strip(): value.strip() for name, _, value in lines}
    words = [known.get(name, "?") for name in ("vendor_id", "cpu family", "model")]
    return FROZEN / f"{'-'.join([*words, torch.backends.cpu.get_cpu_capability()])}.json"


def numbers(folder: Path, config: str, workflow: str) -> dict[str, Any]:
    runner = Runner(folder, ROOT / config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        runner.made(workflow, "--overrides", SHORT)
    store = Store.open(runner.store)

    def manifests(kind: Kind) -> list[Manifest]:
        return sorted(store.manifests(kind), key=lambda one: one.timings.started)

    def tables(kind: Kind, name: str) -> list[list[dict[str, Any]]]:
        paths = [store.path(one.ref) / name for one in manifests(kind)]
        return [read_table(path).to_pylist() for path in paths if path.exists()]

    outcomes = tables("verdicts", "verdicts.parquet")
    return {
        "metrics": [row for rows in tables("policy", "metrics.parquet") for row in rows],
        "verdicts": ["".join(_LETTERS.get(row["outcome"], "?") for row in rows) for rows in outcomes],
        "evaluations": [dict(one.facts) for one in manifests("evaluation")],
    }


@pytest.mark.parametrize("name", RUNS)
def test_every_number_of_a_tiny_run_is_unchanged(name: str, tmp_path: Path) -> None:
    if not (file := file_of_processor()).exists():
        pytest.skip(f"{file.parent.name}/ has no numbers of {file.stem}")
    frozen = json.loads(file.read_text())
    found = json.loads(json.dumps(numbers(tmp_path, *RUNS[name])))
    assert found["verdicts"] == frozen[name]["verdicts"]
    for row, kept in zip(found["metrics"], frozen[name]["metrics"], strict=True):
        assert row == kept
    assert found["evaluations"] == frozen[name]["evaluations"]


if __name__ == "__main__":
    written: dict[str, Any] = {}
    for one, (config, workflow) in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            written[one] = numbers(Path(folder), config, workflow)
    file_of_processor().write_text(json.dumps(written) + "\n")
    sys.stdout.write(f"{file_of_processor()}\n")
