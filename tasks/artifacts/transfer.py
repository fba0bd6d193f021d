"""How much a transfer does at once, and how it shows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from tasks.progress import bar

_SHOWN_FROM_BYTES = 64 * 2**20
_MEBIBYTE = 2**20
Advance = Callable[[int], None]


class Budget:
    """Shares of a fixed number of units; a taker waits until its units are free."""

    def __init__(self, units: int) -> None:
        self._free = asyncio.Semaphore(units)
        # One taker gathers at a time: two that wait for each other's rest would wait for ever.
        self._gathering = asyncio.Lock()

    @asynccontextmanager
    async def take(self, units: int) -> AsyncIterator[None]:
        """Holds so many units inside the block."""
        async with self._gathering:
            for _ in range(units):
                await self._free.acquire()
        try:
            yield
        finally:
            for _ in range(units):
                self._free.release()


@contextmanager
def shown(title: str, total: int) -> Iterator[Advance]:
    """A bar over mebibytes, for a transfer that is large enough to wait for."""
    if total < _SHOWN_FROM_BYTES:
        yield lambda _: None
        return
    with bar(f"{title}, MiB", total // _MEBIBYTE) as progress:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            before, done = done // _MEBIBYTE, done + count
            progress.advance(done // _MEBIBYTE - before)

        yield advance
