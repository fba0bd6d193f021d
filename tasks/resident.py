"""What stays loaded in this process from one step to the next: one thing, given back when the memory is needed."""

import gc
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar


class Closing(Protocol):
    """Something that holds memory until it is closed."""

    def close(self) -> None:
        """Gives the memory back; it cannot be used afterwards."""
        ...


Held = TypeVar("Held", bound=Closing)
_held: list[tuple[Hashable, Closing]] = []


def resident(key: Hashable, load: Callable[[], Held]) -> Held:
    """What ``load`` gave for this key the last time, or gives now.

    Args:
        key: names all that the loaded thing depends on, and its type.
        load: is called when another key, or none, is held; what is held is closed first.
    """
    for held_key, held in _held:
        if held_key == key:
            return held  # type: ignore[return-value]  # of the type that the same key was loaded with
    release()
    loaded = load()
    _held.append((key, loaded))
    return loaded


def release() -> None:
    """Closes what is held, if anything."""
    while _held:
        _, held = _held.pop()
        held.close()
        del held
        gc.collect()  # what it was made of may refer to itself
