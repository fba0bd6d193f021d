"""Engines and verifiers that stay loaded in this process from one step to the next."""

import atexit
import gc
import os
from collections.abc import Callable, Hashable
from typing import Literal, Protocol, TypeVar, cast


class Closing(Protocol):
    """An object that holds memory or processes until it is closed."""

    def close(self) -> None:
        """Release them; the object cannot be used afterwards."""
        ...


Held = TypeVar("Held", bound=Closing)
Place = Literal["engine", "verifier"]
"""Each place holds one object."""
_held: dict[Place, tuple[Hashable, Closing]] = {}
os.register_at_fork(after_in_child=_held.clear)  # Its parent goes on using them.


def load_resident(place: Place, key: Hashable, load: Callable[[], Held]) -> Held:
    """Return the object that is held for a key, or load it.

    Args:
        place: where it is held.
        key: names all that the object depends on; the same key is always loaded by the same function.
        load: is called when another key, or none, is held, after the held object is closed.
    """
    if place in _held and _held[place][0] == key:
        return cast(Held, _held[place][1])
    release(place)
    loaded = load()
    _held[place] = (key, loaded)
    return loaded


def release(place: Place = "engine") -> None:
    """Close the object that is held in a place, if there is one."""
    if place in _held:
        _held.pop(place)[1].close()
        gc.collect()  # what it was made of may refer to itself


atexit.register(release, "verifier")
