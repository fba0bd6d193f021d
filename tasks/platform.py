"""What steps run on, and how they are cached: the only module outside of task.py and workflows/ that knows Flyte."""

from collections.abc import Callable
from typing import Annotated, TypeVar

from flytekit import HashMethod, Resources, task

from tasks.artifacts import ArtifactRef, StoreRef


def _digest(ref: ArtifactRef) -> str:
    return ref.digest


def _store_id(ref: StoreRef) -> str:
    return ref.id


Artifact = Annotated[ArtifactRef, HashMethod(_digest)]
"""An artifact as a task's input or output: its digest is what enters cache keys."""
StoreHandle = Annotated[StoreRef, HashMethod(_store_id)]
"""A store as a task's input or output: its id is what enters cache keys, so that a moved store hits."""

_RESOURCES = {
    "cpu": Resources(cpu="2", mem="4Gi"),
    "compute": Resources(cpu="2", mem="8Gi"),
}

F = TypeVar("F", bound=Callable[..., object])


def step(version: str, *, role: str = "cpu", deck: bool = False) -> Callable[[F], F]:
    """A cached task.

    Args:
        version: the task's cache version; raised when its sources change what it computes (see CONTRIBUTING.md).
        role: a key of the resources table.
        deck: whether it shows a Flyte deck.
    """
    decorator: Callable[[F], F] = task(
        cache=True,
        cache_version=version,
        cache_serialize=True,
        requests=_RESOURCES[role],
        limits=_RESOURCES[role],
        enable_deck=deck,
    )
    return decorator


def always(function: F) -> F:
    """A task that is never cached: it takes milliseconds and looks at the outside world."""
    decorated: F = task(requests=_RESOURCES["cpu"], limits=_RESOURCES["cpu"])(function)
    return decorated
