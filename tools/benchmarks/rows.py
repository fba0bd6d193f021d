"""Memory of each step as rollouts grow: peak anonymous MiB of its process.

    python -m tools.benchmarks rows

A process of its own per step and number of rows: the step as it is, on one shard of responses of a few tokens, with a
policy of two layers. Anonymous memory is what has no file behind it, so that only it can run out: pages of mapped files
are the system's to drop. What is above where the step starts is told beside it, and the peak of all resident pages.
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
from tools.benchmarks.measured import Measured, Ratio
from tools.benchmarks.trl.frozen import Shape

SIZES = (10**3, 10**4, 10**5, 10**6)
GROUP_SIZE, PER_UPDATE, UPDATES = 8, 5000, 6
PROMPT_TOKENS, RESPONSE_TOKENS = 2, 3
_STAGE = "stage.json"
SHAPE = Shape(vocabulary=32, width=32, layers=2)
SHARD = 10**5
"""Most responses in one."""
_ROWS = 1000
"""Responses after which a shard has a part of its own; rollout.responses_per_part is 1024."""
_MIB = 2**20


class Stage(BaseModel):
    """The inputs of a step."""

    policy: ArtifactRef
    prompts: list[ArtifactRef]
    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef


def responses(first: int, end: int, policy: str) -> Iterator[pa.Table]:
    """Rows of a rollouts table; every second response of a group has the right answer, of ten different ones."""
    for start in range(first, end, _ROWS):
        row_R = np.arange(start, min(start + _ROWS, end))
        count = len(row_R)
        answer_R = row_R // GROUP_SIZE % 10
        given_R = np.where(row_R % 2, answer_R, answer_R + 1)
        columns = {
            "prompt_id": [f"problem-{group}" for group in row_R // GROUP_SIZE],
            "sample_index": pa.array(row_R % GROUP_SIZE, pa.int32()),
            "prompt": ["?"] * count,
            "answer": [str(answer) for answer in answer_R],
            "prompt_token_ids": _lists(row_R % SHAPE.vocabulary, PROMPT_TOKENS, pa.int32()),
            "response_token_ids": _lists(row_R // 2 % SHAPE.vocabulary, RESPONSE_TOKENS, pa.int32()),
            "engine_logp": _lists(-np.ones(count), RESPONSE_TOKENS, pa.float32()),
            "finish_reason": ["stop"] * count,
            "response": [rf"so \boxed{{{given}}}" for given in given_R],
            "policy": [policy] * count,
        }
        yield pa.table(columns, schema=ROLLOUTS)


def _lists(first: Any, length: int, kind: pa.DataType) -> pa.ListArray:
    flat = pa.array(np.repeat(first, length), kind)
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, length), pa.int32()), flat)


def judged(rollouts: pa.Table) -> pa.Table:
    """The verdicts on them, without a verifier."""
    right = np.arange(rollouts.num_rows) % 2
    columns = {
        "prompt_id": rollouts["prompt_id"],
        "sample_index": rollouts["sample_index"],
        "outcome": pa.array(np.where(right, "correct", "wrong").tolist()),
        "reward": pa.array(right, pa.float32()),
        "extracted": pa.array(["1"] * rollouts.num_rows),
        "shows_working": pa.array([True] * rollouts.num_rows),
    }
    return pa.table(columns, schema=VERDICTS)


def samples(rows: int, stage: int) -> Iterator[pa.Table]:
    """Rows of a samples table, whose answers are right at either stage by a rule of its own."""
    for table in responses(0, rows, ""):
        group_R = np.array([int(name.rpartition("-")[2]) for name in table["prompt_id"].to_pylist()])
        right_R = group_R // (1 + stage) % 2
        columns = {name: table[name] for name in ("prompt_id", "sample_index", "prompt", "answer", "response")}
        columns["level"] = pa.array([1] * len(group_R), pa.int32())
        columns["response_tokens"] = pa.array([RESPONSE_TOKENS] * len(group_R), pa.int32())
        columns["finish_reason"] = table["finish_reason"]
        columns["outcome"] = np.where(right_R, "correct", "wrong").tolist()
        columns["reward"] = pa.array(right_R, pa.float32())
        columns["shows_working"] = [True] * len(group_R)
        yield pa.table(columns).select(SAMPLES.names).cast(SAMPLES)


def stored(folder: Path, rows: int) -> None:
    """Policy, rollouts and verdicts of a stage, and the samples of two evaluations."""
    store = Store.open(folder)
    with store.write("policy", settings={}, parents={}, seed=0) as policy:
        SHAPE.model("eager").save_pretrained(policy.path)
        SHAPE.tokenizer().save_pretrained(policy.path)
    made = {"responses_per_prompt": GROUP_SIZE, "max_new_tokens": RESPONSE_TOKENS}
    prompts, shards = [], []
    with (
        store.write("verdicts", settings={}, parents={}, seed=0) as verdicts,
        table_writer(verdicts.path / "verdicts.parquet", VERDICTS) as add_verdicts,
    ):
        for start in range(0, rows, SHARD):
            with (
                store.write("rollouts", settings=made, parents={}, seed=0) as rollouts,
                table_writer(rollouts.path / "rollouts.parquet", ROLLOUTS) as add_rollouts,
            ):
                for table in responses(start, min(start + SHARD, rows), policy.ref.digest):
                    add_rollouts(table)
                    add_verdicts(judged(table))
            shards.append(rollouts.ref)
            groups = range(start // GROUP_SIZE, min(start + SHARD, rows) // GROUP_SIZE)
            with store.write("prompts", settings={}, parents={}, seed=0) as shard:
                asked = [{"prompt_id": f"problem-{one}", "prompt": "1", "answer": "1", "chat": False} for one in groups]
                write_table(shard.path / "prompts.parquet", asked, PROMPTS)
            prompts.append(shard.ref)
    for stage in range(2):
        with table_writer(folder / f"{stage}.parquet", SAMPLES) as add_samples:
            for table in samples(rows, stage):
                add_samples(table)
    found = Stage(policy=policy.ref, prompts=prompts, rollouts=shards, verdicts=verdicts.ref)
    (folder / _STAGE).write_text(found.model_dump_json())


def generate(store: Store, stage: Stage, _: int) -> Callable[[], object]:
    """One shard after the other, as a run on one machine does."""
    from tasks.rollout.step import generate_shard
    from tasks.settings import RolloutSettings

    settings = RolloutSettings(responses_per_prompt=GROUP_SIZE, max_new_tokens=RESPONSE_TOKENS)

    def work() -> None:
        for prompts in stage.prompts:
            generate_shard(store, settings, stage.policy, prompts, 0, 0)

    return work


def verify(store: Store, stage: Stage, _: int) -> Callable[[], object]:
    """Verify ten golds with two answers each, so that what is measured is not math-verify."""
    from tasks.settings import VerifySettings
    from tasks.verify.step import verify_rollouts

    return lambda: verify_rollouts(store, VerifySettings(workers=1), stage.rollouts, 0, 0)


def optimize(store: Store, stage: Stage, rows: int) -> Callable[[], object]:
    """Mu-GRPO's stage as far as its first updates; what one more takes does not depend on the number of rows."""
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
        made = stage_responses(store, stage.policy, stage.rollouts, stage.verdicts, store.root)
        batches = plan_batches(made, settings.responses_per_update, (0, 0))[:UPDATES]
        trainer = load_trainer(store.path(stage.policy), settings, RESPONSE_TOKENS, 0)
        trainer.train(made, batches, 0)

    return work


def report(store: Store, _stage: Stage, _: int) -> Callable[[], object]:
    """Read two policies' responses to problems; of all else a report reads a row per update or problem."""
    from tasks.report.examples import examples_of_change

    before, after = ({"made": store.root / f"{stage}.parquet"} for stage in range(2))
    return lambda: examples_of_change(before, after)


STEPS = {"generate": generate, "verify": verify, "optimize": optimize, "report": report}


def child(step: str, folder: str, rows: int) -> None:
    """Says when the step starts, and the most MiB that were resident, mapped files included."""
    logger().setLevel("WARNING")
    torch.set_num_threads(2)
    store = Store.open(folder, create=False)
    stage = Stage.model_validate_json((store.root / _STAGE).read_text())
    work = STEPS[step](store, stage, rows)
    print("start", flush=True)
    work()
    print(json.dumps(_status("self", "VmHWM")))


def _status(process: str, field: str) -> float:
    """A field of a process's status, MiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def watched(step: str, folder: str, rows: int) -> dict[str, float]:
    """Runs a step and looks at its memory, a hundred times a second."""
    command = [sys.executable, "-m", "tools.benchmarks.rows", step, folder, str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        if process.stdout.readline() != "start\n":
            raise RuntimeError(f"{step} of {rows} rows did not start")
        began, before = time.perf_counter(), _status(str(process.pid), "RssAnon")
        peak = before
        while process.poll() is None:
            peak = max(peak, _status(str(process.pid), "RssAnon"))
            time.sleep(0.01)
        if process.returncode:
            raise RuntimeError(f"{step} of {rows} rows ended with {process.returncode}")
        resident = json.loads(process.stdout.readlines()[-1])
    seconds = time.perf_counter() - began
    return {"start": before, "peak": peak, "resident": resident, "seconds": seconds}


def measure(_: int) -> Measured:
    """Every step once at every size."""
    found: dict[str, dict[int, dict[str, float]]] = {step: {} for step in STEPS}
    for rows in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            stored(Path(folder), rows)
            for step in STEPS:
                found[step][rows] = watched(step, folder, rows)
    largest, before = SIZES[-1], SIZES[-2]
    return Measured(
        name="rows",
        what="Peak anonymous memory of a step's process, by the number of responses of the stage.",
        unit="MiB",
        ways={f"{step}, {rows:,} rows": [at["peak"]] for step, sizes in found.items() for rows, at in sizes.items()},
        ratios=[
            Ratio(f"{step}, {largest:,} rows", f"{before:,}", [at[largest]["peak"] / at[before]["peak"]], 1.1, True)
            for step, at in found.items()
        ],
        facts={
            "shard": f"at most {SHARD:,} responses, in row groups of {_ROWS:,}",
            "optimize": f"{UPDATES} updates of {PER_UPDATE:,} responses; default tokens_per_micro_batch",
            "verify": "20 different pairs of gold answer and answer, which every portion judges once",
            "report": "reads the responses of two policies to problems",
            "evaluation": "not measured; it holds its samples, which grow with benchmarks and not with rollouts",
            "MiB above the start of the step": {
                step: {f"{rows:,}": one["peak"] - one["start"] for rows, one in at.items()}
                for step, at in found.items()
            },
            "peak resident MiB, with mapped files": {step: at[largest]["resident"] for step, at in found.items()},
            "seconds": {step: {str(rows): one["seconds"] for rows, one in at.items()} for step, at in found.items()},
        },
    )


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
