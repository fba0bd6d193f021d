"""Resident objects: an engine and a verifier that stay loaded in this process from one step to the next."""

import atexit
import gc
import os
from collections.abc import Callable, Hashable
from typing import Literal, Protocol, TypeVar, cast


class Closing(Protocol):
    """An object that holds memory or processes until it is closed."""

    def close(self) -> None:
        """Release memory and processes; the object cannot be used afterwards."""
        ...


Held = TypeVar("Held", bound=Closing)
Slot = Literal["engine", "verifier"]
"""Names of the slots, each of which holds at most one object."""
_held: dict[Slot, tuple[Hashable, Closing]] = {}
os.register_at_fork(after_in_child=_held.clear)  # The objects belong to the parent, which still uses them.


def load_resident(slot: Slot, key: Hashable, load: Callable[[], Held]) -> Held:
    """Return the object in a slot, or load it; if the slot holds the object of another key, that is closed first.

    The key identifies the object with everything that it depends on.
    """
    if slot in _held and _held[slot][0] == key:
        return cast(Held, _held[slot][1])
    release(slot)
    loaded = load()
    _held[slot] = (key, loaded)
    return loaded


def release(slot: Slot = "engine") -> None:
    """Close the object in a slot, if there is one."""
    if slot in _held:
        _held.pop(slot)[1].close()
        gc.collect()  # Cycles of references would keep the memory of the object.


atexit.register(release, "verifier")
