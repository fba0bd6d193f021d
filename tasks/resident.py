"""What stays loaded in this process from one step to the next, until something else takes its place."""

import atexit
import gc
import os
from collections.abc import Callable, Hashable
from typing import Literal, Protocol, TypeVar


class Closing(Protocol):
    """Something that holds memory or processes until it is closed."""

    def close(self) -> None:
        """Gives them back; it cannot be used afterwards."""
        ...


Held = TypeVar("Held", bound=Closing)
Place = Literal["engine", "verifier"]
"""One thing is held in each."""
_held: dict[Place, tuple[Hashable, Closing]] = {}
os.register_at_fork(after_in_child=_held.clear)  # Its parent goes on using them.


def resident(place: Place, key: Hashable, load: Callable[[], Held]) -> Held:
    """What ``load`` gave for this key the last time, or gives now.

    Args:
        place: where it is held.
        key: names all that the loaded thing depends on.
        load: is called when another key, or none, is held; what is held is closed first.
    """
    if place in _held and _held[place][0] == key:
        return _held[place][1]  # type: ignore[return-value]  # of the type that the same place and key were loaded with
    release(place)
    loaded = load()
    _held[place] = (key, loaded)
    return loaded


def release(place: Place = "engine") -> None:
    """Closes what is held there, if anything."""
    if place in _held:
        _held.pop(place)[1].close()
        gc.collect()  # what it was made of may refer to itself


atexit.register(release, "verifier")
