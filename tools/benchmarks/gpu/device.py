"""A GPU's memory and pace; on a CPU memory counts as 0."""

import gc
import time

import torch


def wait() -> None:
    """Until the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free() -> None:
    """Gives back what nothing refers to; peaks count from here."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def held() -> int:
    """Bytes that tensors take."""
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


def peak() -> int:
    """Most bytes that tensors took since ``free``."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def matrix_rate(device: torch.device) -> float:
    """Operations per second that products of large square matrices reach, the fastest of 20; in bfloat16 on a GPU."""
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
