"""Memory and speed of a GPU; on a CPU all memory is 0."""

import gc
import time

import torch


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


def failure(error: Exception) -> str:
    """Return one line about an error, such as missing memory, for a table."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:120]}"


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
