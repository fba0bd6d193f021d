"""Several processes that train one policy together: joining them, and their collective operations.

Rank 0 does what a single process would, the others follow it. The operations cost a single process nothing. Tensors
that are sent here are on the CPU: gloo carries them, also beside NCCL.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tasks.errors import SettingsError, StorageError
from tasks.store import Store, StoreRef, work
from tasks.store.work import Made

_PATIENCE = timedelta(hours=2)
"""Time that a process waits for the others, also while rank 0 waits for another run that does the same work."""
_VALUES_AT_ONCE = 2**20
Own = TypeVar("Own")


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process; rank 0 is the leader."""
    return dist.get_rank() if world_size() > 1 else 0


def all_gather(own: Own) -> list[Own]:
    """Return the objects of all processes, in the order of their ranks, in every process."""
    gathered = [own] * world_size()
    if len(gathered) > 1:
        dist.all_gather_object(gathered, own)
    return gathered


def all_reduce_sum(values: Tensor) -> Tensor:
    """Replace values by their element-wise sum over all processes, and return them."""
    if world_size() > 1:
        for part in values.view(-1).split(_VALUES_AT_ONCE):
            dist.all_reduce(part)
    return values


def broadcast_int(number: int) -> int:
    """Return rank 0's number, in every process."""
    value = torch.tensor([number])
    if world_size() > 1:
        dist.broadcast(value, 0)
    return int(value)


def any_rank(flag: bool) -> bool:
    """Return True, in every process, if the flag is true in one of them."""
    return bool(all_reduce_sum(torch.tensor([int(flag)])))


def gather_on_rank0(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Return named tensors on the CPU at rank 0, and nothing elsewhere; every process must go through all of them."""
    leads = rank() == 0
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors if leads}


def find_on_all_ranks(name: str, number: int, find: Callable[[], Own | None]) -> Own | None:
    """Find saved progress at rank 0 and then in every process; return None if rank 0 does not find it.

    Raises:
        ArtifactError: rank 0 finds it, and this process does not.
    """
    found = find() if rank() == 0 else None
    if not broadcast_int(found is not None):
        return None
    found = found or find()
    if found is None:
        raise StorageError(
            f"{name} {number}: process {rank()} does not find what the leader found. Give all processes the same store."
        )
    return found


def run_once_in_group(
    ref: StoreRef, name: str, version: str, logic: Callable[..., Made], *inputs: Any, **named: Any
) -> Made | None:
    """Call ``work.run_once`` in each process of a group, which torchrun started; return its result at rank 0.

    Raises:
        SettingsError: there are more processes than GPUs.
        ArtifactError: another run has done the same work for two hours, so that the group waits no longer for its end.
    """
    with _process_group():
        if rank() > 0:
            if _leader_begins(name):
                logic(Store(ref, work=work.work_key(name, version, inputs), follows=True), *inputs, **named)
            return None
        followed = False

        @wraps(logic)
        def lead(*args: Any, **kwargs: Any) -> Made:
            nonlocal followed
            followed = bool(broadcast_int(1))
            return logic(*args, **kwargs)

        try:
            return work.run_once(ref, name, version, lead, *inputs, **named)
        finally:
            if not followed:
                broadcast_int(0)


def _leader_begins(name: str) -> bool:
    """Wait for the leader to begin the work, and return True; return False if the leader ends without it."""
    try:
        return bool(broadcast_int(0))
    except RuntimeError as error:
        if "Timed out" not in str(error):
            raise
        raise StorageError(
            f"{name}: process {rank()} has waited {_PATIENCE} for the leader, which waits for another run that does "
            "the same work. Start the same command again when that run has ended."
        ) from error


@contextmanager
def _process_group() -> Iterator[None]:
    """Join the processes of the group, unless they are joined already."""
    if dist.is_initialized():
        yield
        return
    local_rank, processes = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    on_gpus = torch.cuda.is_available()
    if on_gpus:
        if processes > torch.cuda.device_count():
            raise SettingsError(
                f"optimize.backend.processes: {processes} on a machine with {torch.cuda.device_count()} GPUs. Lower it."
            )
        torch.cuda.set_device(local_rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo", timeout=_PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()
