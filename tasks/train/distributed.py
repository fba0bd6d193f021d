"""Collective operations of the processes that train one policy together; they cost a single process nothing.

Tensors that are sent here are on the CPU: gloo carries them, also beside NCCL.
"""

from collections.abc import Iterable
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process; rank 0 leads."""
    return dist.get_rank() if world_size() > 1 else 0


def gather_rows(rows: Tensor) -> Tensor:
    """Gather the rows of all processes, in the order of their ranks, in every process.

    Args:
        rows: [rows, ...]; processes may have different numbers of rows.
    """
    if world_size() == 1:
        return rows
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    longest = max(int(length) for length in counts)
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype)
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(length)] for part, length in zip(parts, counts, strict=True)])


def gather_bytes(own: bytes) -> list[bytes]:
    """Gather what each process gives, in the order of their ranks, in every process."""
    lengths = gather_rows(torch.tensor([[len(own)]])).flatten().tolist()
    flat = gather_rows(torch.frombuffer(bytearray(own), dtype=torch.uint8)).numpy().tobytes()
    return [flat[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)]


def all_reduce_sum(values: Tensor) -> Tensor:
    """Return the element-wise sum over all processes, in every process."""
    if world_size() == 1:
        return values
    summed = values.clone()
    dist.all_reduce(summed)
    return summed


def all_reduce_in_place(values: Tensor, at_once: int) -> None:
    """Replace values by their element-wise sum over all processes, ``at_once`` values at a time."""
    if world_size() > 1:
        for part in values.split(at_once):
            dist.all_reduce(part)


def broadcast_int(number: int) -> int:
    """Return rank 0's number, in every process."""
    if world_size() == 1:
        return number
    said = torch.tensor([number])
    dist.broadcast(said, 0)
    return int(said)


def gather_on_rank0(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Return named tensors on the CPU at rank 0, and nothing elsewhere; every process must go through all of them."""
    kept = {}
    for name, tensor in tensors:
        if rank() == 0:
            kept[name] = tensor.detach().cpu().contiguous()
    return kept
