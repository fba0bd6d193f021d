"""Stages that alternate in several processes joined by gloo, as Elastic's are: a leader, and what follows it."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tasks.artifacts import ArtifactRef, StoreRef
from tasks.artifacts.progress import Progress
from tasks.interruption import Interrupted
from tasks.train.colocated import train_alternating
from tasks.train.distributed import once_led


@dataclass(frozen=True)
class Job:
    """A call of ``train_alternating``."""

    name: str
    inputs: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)
    stopped: bool = False
    """By SIGTERM to the leader, once a state is saved; then it is called again."""


def _rank(rank: int, count: int, ref: StoreRef, out: Path, jobs: list[Job]) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1")
    dist.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=rank, world_size=count)
    for job in jobs:
        try:
            if job.stopped and rank == 0:
                stop_after_a_state()
            made = once_led(ref, "alternate", job.name, train_alternating, *job.inputs, **job.named)
        except Interrupted as error:
            if rank == 0:
                (out / f"{job.name}-stopped").write_text(error.message)
            dist.barrier()
            made = once_led(ref, "alternate", job.name, train_alternating, *job.inputs, **job.named)
        assert (made is None) == (rank > 0)
        if made is not None:
            (out / job.name).write_text(made.digest)
    dist.destroy_process_group()


def stop_after_a_state() -> None:
    """Sends this process SIGTERM once, as soon as a state of the trainer is saved."""
    put = Progress.put

    def put_and_stop(progress: Progress, name: str, number: int, fill: Callable[[Path], None]) -> None:
        put(progress, name, number, fill)
        if name == "train":
            Progress.put = put  # type: ignore[method-assign]
            os.kill(os.getpid(), signal.SIGTERM)

    Progress.put = put_and_stop  # type: ignore[method-assign]


def alternated(count: int, ref: StoreRef, out: Path, jobs: list[Job]) -> dict[str, ArtifactRef]:
    """The policies of some jobs, each made by all processes together, by the jobs' names; ``out`` is empty."""
    mp.spawn(_rank, (count, ref, out, jobs), nprocs=count)
    return {job.name: ArtifactRef(kind="policy", digest=(out / job.name).read_text()) for job in jobs}
