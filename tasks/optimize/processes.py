"""The processes that train one policy together. A process alone is a group of one, to which all of this is free.

Tensors that are sent here are on the CPU: gloo carries them, also beside NCCL.
"""

from collections.abc import Iterable
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor


def count() -> int:
    """How many there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The place of this one; the one at 0 leads."""
    return dist.get_rank() if count() > 1 else 0


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes in the order of their ranks, the same in each.

    Args:
        rows: [rows, ...]; processes may have different numbers of rows.
    """
    if count() == 1:
        return rows
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(count())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    longest = max(int(length) for length in counts)
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype)
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(length)] for part, length in zip(parts, counts, strict=True)])


def gather_bytes(own: bytes) -> list[bytes]:
    """What each process gives, in the order of their ranks, the same in each."""
    lengths = gather_rows(torch.tensor([[len(own)]])).flatten().tolist()
    flat = gather_rows(torch.frombuffer(bytearray(own), dtype=torch.uint8)).numpy().tobytes()
    return [flat[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)]


def total(values: Tensor) -> Tensor:
    """The element-wise sum over all processes, the same in each."""
    if count() == 1:
        return values
    summed = values.clone()
    dist.all_reduce(summed)
    return summed


def add_up(values: Tensor, at_once: int) -> None:
    """Replaces values by their element-wise sum over all processes, so many at a time."""
    if count() > 1:
        for part in values.split(at_once):
            dist.all_reduce(part)


def agreed(number: int) -> int:
    """The leader's number, in every process."""
    if count() == 1:
        return number
    said = torch.tensor([number])
    dist.broadcast(said, 0)
    return int(said)


def kept_by_leader(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Named tensors on the CPU in the leader, nothing elsewhere; every process must go through all of them."""
    kept = {}
    for name, tensor in tensors:
        if rank() == 0:
            kept[name] = tensor.detach().cpu().contiguous()
    return kept
