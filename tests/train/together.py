"""Training by several processes joined by gloo, as Elastic's are, and by one, in the same calls."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file

from tasks.process.interruption import Interrupted
from tasks.store import ArtifactRef, StoreRef
from tasks.store.progress import Progress
from tasks.train import distributed
from tasks.train.batches import Responses, plan_batches
from tasks.train.checkpoint import load_optimizer, save_optimizer, save_policy
from tasks.train.colocated import train_alternating
from tasks.train.stage import load_trainer
from tests.train.small import settings
from tools.forked import forkserver

Tensors = dict[str, torch.Tensor]
BATCH = 8
FIRST, HALF, LAST = 1, 6, 10
"""Updates after which the state is saved."""


def run_in_group(count: int, meeting: Path, function: Callable[..., None], *inputs: Any) -> None:
    """Calls a function in every one of some processes; ``meeting`` is a file that is not there yet."""
    forkserver()  # torch asks for it by its name.
    mp.start_processes(_rank, (count, str(meeting), function, inputs), count, start_method="forkserver")


def _rank(rank: int, count: int, meeting: str, function: Callable[..., None], inputs: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count)
    function(*inputs)
    dist.destroy_process_group()


def work(folder: Path, responses: Responses, out: Path, begin: int, backend: dict[str, Any], **changes: Any) -> None:
    """Trains from a saved state, or from the policy, to the last update; states go to ``out``."""
    # The later calls go on with rollouts of the first policy.
    chosen = settings(responses_per_update=BATCH, backend=backend, max_logp_mismatch=100, **changes)
    trainer = load_trainer(folder, chosen, 12, 0)
    if begin:
        trainer.backend.set_weights(weights(out, begin))
        trainer.updates = load_optimizer(out / str(begin), trainer.backend)
    rows, examples = [], []
    plan = [batch for turn in range(4) for batch in plan_batches(responses, BATCH, (0, turn))]
    cuts = [cut for cut in (0, FIRST, 3, HALF, 8, LAST) if cut >= begin]
    for start, end in pairwise(cuts):  # No call takes a response twice; the first update of a call is its stage.
        results = trainer.train(responses, plan[start:end], start)
        rows += results.rows
        examples += results.examples
        if trainer.updates in (FIRST, HALF, LAST):
            suffix = f"{trainer.updates}{'-again' if begin else ''}"
            if distributed.rank() == 0:
                (out / suffix).mkdir(parents=True)
            save_optimizer(out / suffix, trainer.backend, trainer.updates)
            whole = distributed.gather_on_rank0(trainer.backend.weights())
            if distributed.rank() == 0:
                save_file(whole, out / f"{suffix}.safetensors")
    assert trainer.updates == LAST
    if not begin:
        save_policy(out / "policy", trainer.backend, folder, chosen.lora)
        if distributed.rank() == 0:
            (out / "rows.json").write_text(json.dumps(rows))
            (out / "examples.json").write_text(json.dumps(examples))


def work_all(jobs: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
    for inputs, changes in jobs:
        work(*inputs, **changes)


def weights(out: Path, name: object) -> Tensors:
    return load_file(out / f"{name}.safetensors")


def moments(out: Path, name: object) -> Tensors:
    return load_file(out / f"{name}/optimizer/moments.safetensors")


def largest_difference(one: Tensors, other: Tensors) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).detach().abs().max()) for name in one)


@dataclass(frozen=True)
class Job:
    """A call of ``train_alternating``."""

    name: str
    inputs: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)
    stopped: bool = False
    """By SIGTERM to a follower alone, between two states; then it is called again."""


def alternate_in_group(count: int, ref: StoreRef, out: Path, jobs: list[Job]) -> dict[str, ArtifactRef]:
    """The policies of some jobs, each made by all processes together, by the jobs' names; ``out`` is empty."""
    run_in_group(count, out / "meeting", _alternate, ref, out, jobs)
    return {job.name: ArtifactRef(kind="policy", digest=(out / job.name).read_text()) for job in jobs}


def _alternate(ref: StoreRef, out: Path, jobs: list[Job]) -> None:
    run_once = distributed.run_once_in_group
    for job in jobs:
        leads = distributed.rank() == 0
        try:
            if job.stopped and not leads:
                _stop_between_states()
            made = run_once(ref, "alternate", job.name, train_alternating, *job.inputs, **job.named)
            assert not job.stopped
        except Interrupted:
            dist.barrier()
            made = run_once(ref, "alternate", job.name, train_alternating, *job.inputs, **job.named)
        assert (made is not None) == leads
        assert run_once(ref, "alternate", job.name, train_alternating, *job.inputs, **job.named) == made, "not found"
        if made is not None:
            (out / job.name).write_text(made.digest)


def _stop_between_states() -> None:
    """Sends this process SIGTERM once, when it saves the second refresh, which a state does not follow at once."""
    put = Progress.put

    def put_and_stop(progress: Progress, name: str, number: int, fill: Callable[[Path], None]) -> None:
        put(progress, name, number, fill)
        if (name, number) == ("refresh", 1):
            stopping.stop()
            os.kill(os.getpid(), signal.SIGTERM)

    stopping = patch.object(Progress, "put", put_and_stop)
    stopping.start()
