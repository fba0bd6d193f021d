"""Memory and speed of a GPU; on a CPU all memory is 0."""

import gc
import time
from collections.abc import Callable, Mapping

import torch

from tasks.errors import SettingsError


def wait() -> None:
    """Wait until the GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free() -> None:
    """Free unused memory, and reset the peak."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def held() -> int:
    """Return the bytes of all tensors."""
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


def peak() -> int:
    """Return the largest number of bytes of all tensors since ``free``."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def measure_working(
    ways: Mapping[str, Callable[[], float]], repeats: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Call every function once per repeat, so that a change in the speed of the device affects all alike.

    Returns:
        The values of the functions, and a line about the error of those that failed because memory, a kernel or a
        package is missing; these are not called again.
    """
    values: dict[str, list[float]] = {name: [] for name in ways}
    failed: dict[str, str] = {}
    for _ in range(repeats):
        for name in [name for name in ways if name not in failed]:
            try:
                values[name].append(ways[name]())
            except (RuntimeError, ImportError, SettingsError) as error:
                failed[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:120]}"
            free()
    return {name: one for name, one in values.items() if name not in failed}, failed


def matrix_rate(device: torch.device) -> float:
    """Return the operations per second of the fastest of 20 products of large matrices, in bfloat16 on a GPU."""
    gpu = device.type == "cuda"
    size, dtype = (8192, torch.bfloat16) if gpu else (1024, torch.float32)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds = []
    for _ in range(23):
        wait()
        start = time.perf_counter()
        left @ right
        wait()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds[3:])
