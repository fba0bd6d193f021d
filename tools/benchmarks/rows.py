"""Peak anonymous memory of each step's process, by the number of responses of a stage.

    python -m tools.benchmarks rows

Every step runs in its own process for every number of rows, unchanged, on responses of a few tokens and a policy of two
layers. Only anonymous memory can run out, because the system can drop the pages of mapped files at any time. The facts
also have the memory above that at the start of the step, and the peak with mapped files.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pydantic import BaseModel

from tasks.process.logs import logger
from tasks.store import ArtifactRef, Store
from tasks.store.tables import PROMPTS, ROLLOUTS, SAMPLES, VERDICTS, table_writer, write_table
from tools.benchmarks.measurement import Measurement, Ratio, memory_mib
from tools.benchmarks.trl.frozen import Shape

SIZES = (10**3, 10**4, 10**5, 10**6)
GROUP_SIZE, PER_UPDATE, UPDATES = 8, 5000, 6
PROMPT_TOKENS, RESPONSE_TOKENS = 2, 3
_STAGE = "stage.json"
SHAPE = Shape(vocabulary=32, width=32, layers=2)
SHARD = 10**5
"""Largest number of responses in a shard."""
_ROWS = 1000
"""Responses in a row group of a file; by default, the parts of a shard have 1024 (rollout.responses_per_part)."""


class Stage(BaseModel):
    """The inputs of a stage's steps."""

    policy: ArtifactRef
    prompts: list[ArtifactRef]
    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef


def rollout_tables(first: int, end: int, policy: str) -> Iterator[pa.Table]:
    """Yield parts of a rollouts table; every second response is correct, and there are ten different gold answers."""
    for start in range(first, end, _ROWS):
        row_R = np.arange(start, min(start + _ROWS, end))
        count = len(row_R)
        answer_R = row_R // GROUP_SIZE % 10
        extracted_R = np.where(row_R % 2, answer_R, answer_R + 1)
        columns = {
            "prompt_id": [f"problem-{group}" for group in row_R // GROUP_SIZE],
            "sample_index": pa.array(row_R % GROUP_SIZE, pa.int32()),
            "prompt": ["?"] * count,
            "answer": [str(answer) for answer in answer_R],
            "prompt_token_ids": _lists(row_R % SHAPE.vocabulary, PROMPT_TOKENS, pa.int32()),
            "response_token_ids": _lists(row_R // 2 % SHAPE.vocabulary, RESPONSE_TOKENS, pa.int32()),
            "engine_logp": _lists(-np.ones(count), RESPONSE_TOKENS, pa.float32()),
            "finish_reason": ["stop"] * count,
            "response": [rf"so \boxed{{{extracted}}}" for extracted in extracted_R],
            "policy": [policy] * count,
        }
        yield pa.table(columns, schema=ROLLOUTS)


def _lists(first: Any, length: int, kind: pa.DataType) -> pa.ListArray:
    flat = pa.array(np.repeat(first, length), kind)
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, length), pa.int32()), flat)


def verdict_table(rollouts: pa.Table) -> pa.Table:
    """Return the verdicts on rollouts, without a verifier."""
    correct_R = np.arange(rollouts.num_rows) % 2
    columns = {
        "prompt_id": rollouts["prompt_id"],
        "sample_index": rollouts["sample_index"],
        "outcome": pa.array(np.where(correct_R, "correct", "wrong").tolist()),
        "reward": pa.array(correct_R, pa.float32()),
        "extracted": pa.array(["1"] * rollouts.num_rows),
        "shows_working": pa.array([True] * rollouts.num_rows),
    }
    return pa.table(columns, schema=VERDICTS)


def sample_tables(rows: int, stage: int) -> Iterator[pa.Table]:
    """Yield parts of the samples table of a stage's evaluation; the stages differ in which responses are correct."""
    for table in rollout_tables(0, rows, ""):
        group_R = np.array([int(name.rpartition("-")[2]) for name in table["prompt_id"].to_pylist()])
        correct_R = group_R // (1 + stage) % 2
        columns = {name: table[name] for name in ("prompt_id", "sample_index", "prompt", "answer", "response")}
        columns["level"] = pa.array([1] * len(group_R), pa.int32())
        columns["response_tokens"] = pa.array([RESPONSE_TOKENS] * len(group_R), pa.int32())
        columns["finish_reason"] = table["finish_reason"]
        columns["outcome"] = np.where(correct_R, "correct", "wrong").tolist()
        columns["reward"] = pa.array(correct_R, pa.float32())
        columns["shows_working"] = [True] * len(group_R)
        yield pa.table(columns).select(SAMPLES.names).cast(SAMPLES)


def write_stage(folder: Path, rows: int) -> None:
    """Store policy, prompts, rollouts and verdicts of a stage, and write the samples of two evaluations."""
    store = Store.open(folder)
    with store.write("policy", settings={}, parents={}, seed=0) as policy:
        SHAPE.model("eager").save_pretrained(policy.path)
        SHAPE.tokenizer().save_pretrained(policy.path)
    settings = {"responses_per_prompt": GROUP_SIZE, "max_new_tokens": RESPONSE_TOKENS}
    prompts, shards = [], []
    with (
        store.write("verdicts", settings={}, parents={}, seed=0) as verdicts,
        table_writer(verdicts.path / "verdicts.parquet", VERDICTS) as add_verdicts,
    ):
        for start in range(0, rows, SHARD):
            with (
                store.write("rollouts", settings=settings, parents={}, seed=0) as rollouts,
                table_writer(rollouts.path / "rollouts.parquet", ROLLOUTS) as add_rollouts,
            ):
                for table in rollout_tables(start, min(start + SHARD, rows), policy.ref.digest):
                    add_rollouts(table)
                    add_verdicts(verdict_table(table))
            shards.append(rollouts.ref)
            groups = range(start // GROUP_SIZE, min(start + SHARD, rows) // GROUP_SIZE)
            with store.write("prompts", settings={}, parents={}, seed=0) as shard:
                problem = {"prompt": "1", "answer": "1", "chat": False}
                problems = [{"prompt_id": f"problem-{group}", **problem} for group in groups]
                write_table(shard.path / "prompts.parquet", problems, PROMPTS)
            prompts.append(shard.ref)
    for stage in range(2):
        with table_writer(folder / f"{stage}.parquet", SAMPLES) as add_samples:
            for table in sample_tables(rows, stage):
                add_samples(table)
    stage_inputs = Stage(policy=policy.ref, prompts=prompts, rollouts=shards, verdicts=verdicts.ref)
    (folder / _STAGE).write_text(stage_inputs.model_dump_json())


def generate(store: Store, stage: Stage, _: int) -> Callable[[], object]:
    """Generate one shard after the other, as a run on one machine does."""
    from tasks.rollout.step import generate_shard
    from tasks.settings import RolloutSettings

    settings = RolloutSettings(responses_per_prompt=GROUP_SIZE, max_new_tokens=RESPONSE_TOKENS)

    def work() -> None:
        for prompts in stage.prompts:
            generate_shard(store, settings, stage.policy, prompts, 0, 0)

    return work


def verify(store: Store, stage: Stage, _: int) -> Callable[[], object]:
    """Verify responses with few different answers, so that math-verify takes little of the memory and the time."""
    from tasks.settings import VerifySettings
    from tasks.verify.step import verify_rollouts

    return lambda: verify_rollouts(store, VerifySettings(workers=1), stage.rollouts, 0, 0)


def optimize(store: Store, stage: Stage, rows: int) -> Callable[[], object]:
    """Make the first updates of a stage; the memory of an update does not depend on the number of rows."""
    from tasks.settings import OptimizeSettings
    from tasks.train.batches import plan_batches
    from tasks.train.stage import load_trainer, stage_responses

    settings = OptimizeSettings.parse(
        {
            "preset": "mu_grpo",
            "responses_per_update": min(PER_UPDATE, rows),
            "learning_rate": 1e-6,
            "max_logp_mismatch": 1e9,
        }
    )

    def work() -> None:
        responses = stage_responses(store, stage.policy, stage.rollouts, stage.verdicts, store.root)
        batches = plan_batches(responses, settings.responses_per_update, (0, 0))[:UPDATES]
        trainer = load_trainer(store.path(stage.policy), settings, RESPONSE_TOKENS, 0)
        trainer.train(responses, batches, 0)

    return work


def report(store: Store, _stage: Stage, _: int) -> Callable[[], object]:
    """Read the responses of two policies; a report reads nothing else that grows with the number of responses."""
    from tasks.report.examples import examples_of_change

    before, after = ([store.root / f"{stage}.parquet"] for stage in range(2))
    return lambda: examples_of_change(before, after)


STEPS = {"generate": generate, "verify": verify, "optimize": optimize, "report": report}


def run_step(step: str, folder: str, rows: int) -> None:
    """Run a step; print a line before its start, and at the end the peak of resident MiB, mapped files included."""
    logger().setLevel("WARNING")
    torch.set_num_threads(2)
    store = Store.open(folder, create=False)
    stage = Stage.model_validate_json((store.root / _STAGE).read_text())
    work = STEPS[step](store, stage, rows)
    print("start", flush=True)
    work()
    print(json.dumps(memory_mib("VmHWM")))


def measure_step(step: str, folder: str, rows: int) -> dict[str, float]:
    """Run a step in a new process, and return its memory, read a hundred times per second, and its seconds."""
    command = [sys.executable, "-m", "tools.benchmarks.rows", step, folder, str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        if process.stdout.readline() != "start\n":
            raise RuntimeError(f"{step} of {rows} rows did not start")
        began, start = time.perf_counter(), memory_mib("RssAnon", process.pid)
        peak = start
        while process.poll() is None:
            peak = max(peak, memory_mib("RssAnon", process.pid))
            time.sleep(0.01)
        if process.returncode:
            raise RuntimeError(f"{step} of {rows} rows ended with {process.returncode}")
        resident = json.loads(process.stdout.readlines()[-1])
    seconds = time.perf_counter() - began
    return {"start": start, "peak": peak, "resident": resident, "seconds": seconds}


def measure(_: int) -> Measurement:
    """Measure every step once with every number of rows."""
    results: dict[str, dict[int, dict[str, float]]] = {step: {} for step in STEPS}
    for rows in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            write_stage(Path(folder), rows)
            for step in STEPS:
                results[step][rows] = measure_step(step, folder, rows)
    largest, second = SIZES[-1], SIZES[-2]
    return Measurement(
        name="rows",
        what="Peak anonymous memory of a step's process, by the number of responses of the stage.",
        unit="MiB",
        ways={
            f"{step}, {rows:,} rows": [one["peak"]] for step, sizes in results.items() for rows, one in sizes.items()
        },
        ratios=[
            Ratio(f"{step}, {largest:,} rows", f"{second:,}", [one[largest]["peak"] / one[second]["peak"]], 1.1, True)
            for step, one in results.items()
        ],
        facts={
            "shard": f"at most {SHARD:,} responses, in row groups of {_ROWS:,}",
            "optimize": f"{UPDATES} updates of {PER_UPDATE:,} responses; default tokens_per_micro_batch",
            "verify": "20 different pairs of gold answer and answer; equal pairs of a portion of rows are judged once",
            "report": "reads the samples of two evaluations",
            "evaluation": "not measured; its memory grows with the benchmarks and not with the rollouts",
            "MiB above the start of the step": {
                step: {f"{rows:,}": one["peak"] - one["start"] for rows, one in sizes.items()}
                for step, sizes in results.items()
            },
            "peak resident MiB, with mapped files": {
                step: sizes[largest]["resident"] for step, sizes in results.items()
            },
            "seconds": {
                step: {str(rows): one["seconds"] for rows, one in sizes.items()} for step, sizes in results.items()
            },
        },
    )


if __name__ == "__main__":
    run_step(sys.argv[1], sys.argv[2], int(sys.argv[3]))
