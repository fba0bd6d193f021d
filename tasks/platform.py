"""What steps run on, and how they are cached: the only module outside of task.py and workflows/ that knows Flyte."""

import inspect
from collections.abc import Callable
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from flytekit import FlyteContextManager, HashMethod, Resources, current_context, task
from flytekit.exceptions.user import FlyteRecoverableException

from tasks.artifacts import ArtifactRef, Store, StoreRef
from tasks.artifacts import work as works
from tasks.interruption import Interrupted
from tasks.logs import logger


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
Made = TypeVar("Made", ArtifactRef, list[ArtifactRef])
Inputs = ParamSpec("Inputs")
_NOT_IN_KEYS = ("operation",)


def step(version: str, *, role: str = "cpu", deck: bool = False) -> Callable[[F], F]:
    """A cached task.

    Args:
        version: the task's cache version; raised when its sources change what it computes (see CONTRIBUTING.md).
        role: a key of the resources table.
        deck: whether it shows a Flyte deck.
    """

    def decorate(function: F) -> F:
        inputs = inspect.signature(function).parameters
        decorated: F = task(
            cache=True,
            cache_version=version,
            cache_serialize=True,
            cache_ignore_input_vars=tuple(name for name in _NOT_IN_KEYS if name in inputs),
            requests=_RESOURCES[role],
            limits=_RESOURCES[role],
            enable_deck=deck,
        )(function)
        return decorated

    return decorate


def always(function: F) -> F:
    """A task that is never cached: it takes milliseconds and looks at the outside world."""
    decorated: F = task(requests=_RESOURCES["cpu"], limits=_RESOURCES["cpu"])(function)
    return decorated


def once(
    store: StoreRef,
    name: str,
    version: str,
    logic: Callable[Concatenate[Store, Inputs], Made],
    *inputs: Inputs.args,
    **named: Inputs.kwargs,
) -> Made:
    """Does a cached task's work, unless the store has its result; goes on where an earlier attempt was interrupted.

    Args:
        store: where the result goes.
        name: the task's.
        version: its cache version.
        logic: the step.
        inputs: all that determines the result; the key of the work is made of them.
        named: what does not.
    """
    local = FlyteContextManager.current_context().execution_state
    in_pod = local is not None and not local.is_local_execution()
    checkpoint = current_context().checkpoint if in_pod else None
    if checkpoint is not None and (earlier := checkpoint.read()):
        logger().info("%s: an earlier attempt saved %s in %s", name, earlier.decode(), store.uri)

    def saved(place: str) -> None:
        if checkpoint is not None:
            checkpoint.write(place.encode())

    try:
        return works.once(store, name, version, logic, saved, *inputs, **named)
    except Interrupted as error:
        if in_pod:
            raise FlyteRecoverableException(error.message) from error
        raise
