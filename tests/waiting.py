"""Wait for what another process or thread does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(true: Callable[[], T], seconds: float = 30) -> T:
    """What ``true`` returns, once it is true; a failed test if it stays false."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.02)
    return found
