"""Run a step in several processes together: rank 0 does what a single process would, the others follow it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist

from tasks.artifacts import Store, StoreRef, work
from tasks.artifacts.work import Made
from tasks.errors import SettingsError
from tasks.train import distributed

_PATIENCE = timedelta(hours=2)
"""Time that a process waits for the others, also while rank 0 waits for another run that does the same work."""


def once_together(
    ref: StoreRef, name: str, version: str, logic: Callable[..., Made], *inputs: Any, **named: Any
) -> Made | None:
    """Call ``work.once`` in each process of a group, which torchrun started.

    Returns:
        What the step made, in the leader; None elsewhere.

    Raises:
        SettingsError: there are more processes than GPUs.
    """
    with _joined():
        return once_led(ref, name, version, logic, *inputs, **named)


def once_led(
    ref: StoreRef, name: str, version: str, logic: Callable[..., Made], *inputs: Any, **named: Any
) -> Made | None:
    """Do what ``once_together`` does in processes that are joined already."""
    if distributed.rank() > 0:
        if distributed.broadcast_int(0):
            logic(Store(ref, work=work.work_key(name, version, inputs), follows=True), *inputs, **named)
        return None
    followed = False

    @wraps(logic)
    def lead(*given: Any, **by_name: Any) -> Made:
        nonlocal followed
        followed = bool(distributed.broadcast_int(1))
        return logic(*given, **by_name)

    try:
        return work.once(ref, name, version, lead, *inputs, **named)
    finally:
        if not followed:
            distributed.broadcast_int(0)


@contextmanager
def _joined() -> Iterator[None]:
    local, here = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    on_gpus = torch.cuda.is_available()
    if on_gpus:
        if here > torch.cuda.device_count():
            raise SettingsError(
                f"optimize.backend.processes: {here} on a machine with {torch.cuda.device_count()} GPUs. Lower it."
            )
        torch.cuda.set_device(local)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo", timeout=_PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()
