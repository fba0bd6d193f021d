"""Engines and verifiers that stay loaded in this process between steps."""

import atexit
import gc
import os
from collections.abc import Callable, Hashable
from typing import Literal, Protocol, TypeVar, cast


class Closing(Protocol):
    """An object that holds memory or processes until it is closed."""

    def close(self) -> None:
        """Release them, after which the object cannot be used."""
        ...


Held = TypeVar("Held", bound=Closing)
Place = Literal["engine", "verifier"]
"""Each place holds one object."""
_held: dict[Place, tuple[Hashable, Closing]] = {}
os.register_at_fork(after_in_child=_held.clear)  # Its parent goes on using them.


def load_resident(place: Place, key: Hashable, load: Callable[[], Held]) -> Held:
    """Return the object that is held with a key, or load it.

    Args:
        place: the place of the object.
        key: everything that the object depends on.
        load: function that loads the object. An object with another key is closed first.
    """
    if place in _held and _held[place][0] == key:
        return cast(Held, _held[place][1])
    release(place)
    loaded = load()
    _held[place] = (key, loaded)
    return loaded


def release(place: Place = "engine") -> None:
    """Close the object in a place, if there is one."""
    if place in _held:
        _held.pop(place)[1].close()
        gc.collect()  # it may have reference cycles


atexit.register(release, "verifier")
