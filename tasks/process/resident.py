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
Place = Literal["engine", "verifier"]
"""A slot for one object."""
_held: dict[Place, tuple[Hashable, Closing]] = {}
os.register_at_fork(after_in_child=_held.clear)  # The objects belong to the parent, which still uses them.


def load_resident(place: Place, key: Hashable, load: Callable[[], Held]) -> Held:
    """Return the resident object of a key, or load it.

    Args:
        place: the slot of the object.
        key: the identity of the object, with all that it depends on.
        load: a function that loads the object; if the slot holds an object of another key, that is closed first.
    """
    if place in _held and _held[place][0] == key:
        return cast(Held, _held[place][1])
    release(place)
    loaded = load()
    _held[place] = (key, loaded)
    return loaded


def release(place: Place = "engine") -> None:
    """Close the object in a slot, if there is one."""
    if place in _held:
        _held.pop(place)[1].close()
        gc.collect()  # Cycles of references would keep its memory.


atexit.register(release, "verifier")
