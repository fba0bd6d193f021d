"""Steps as Flyte's tasks: what enters their cache keys, and how their work is done once."""

import inspect
import os
import time
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from flytekit import HashMethod, dynamic, task

from tasks.artifacts import ArtifactRef, Store, StoreRef
from tasks.artifacts import work as works
from tasks.errors import UserError
from tasks.platform import decks
from tasks.platform.attempts import TOLD, attempt, tell
from tasks.platform.pods import DEPLOYMENT, pod_options
from tasks.settings.deployment import VALUES, Role


def _digest(ref: ArtifactRef) -> str:
    return ref.digest


def _store_id(ref: StoreRef) -> str:
    return ref.id


Artifact = Annotated[ArtifactRef, HashMethod(_digest)]
"""An artifact as a task's input or output: its digest is what enters cache keys."""
StoreHandle = Annotated[StoreRef, HashMethod(_store_id)]
"""A store as a task's input or output: its id is what enters cache keys, so that a moved store hits."""

F = TypeVar("F", bound=Callable[..., object])
Made = TypeVar("Made", ArtifactRef, list[ArtifactRef])
Inputs = ParamSpec("Inputs")
Node = TypeVar("Node")
_NOT_IN_KEYS = ("operation",)


def step(
    version: str, *, role: Role = "cpu", mapped: bool = False, trains: bool = False, takes_turns: bool = False
) -> Callable[[F], F]:
    """A cached task, whose deck shows what it made.

    Args:
        version: the task's cache version; raised when its sources change what it computes (see CONTRIBUTING.md).
        role: which of the deployment's pods it runs in.
        mapped: whether workflows map it over a list. Flyte then does not let one execution wait for another that does
            the same work: in an array node it would do the work again after waiting. The store's lease does.
        trains: whether several processes may do it together; one of its inputs is OptimizeSettings then.
        takes_turns: whether it generates too, and so needs an image with an engine beside the trainer.
    """

    def decorate(function: F) -> F:
        inputs = inspect.signature(function).parameters
        decorated: Any = task(
            task_config=_training() if trains else None,
            cache=True,
            cache_version=version,
            cache_serialize=not mapped,
            cache_ignore_input_vars=tuple(name for name in _NOT_IN_KEYS if name in inputs),
            enable_deck=True,
            deck_fields=(),  # No copy of its source, of every installed package, of inputs that settings repeat.
            **pod_options(role, takes_turns),
        )(attempt(function))
        # What maps a task has its metadata, and flytekit notes the deck there only when the task itself is registered.
        decorated.metadata.generates_deck = True
        made: F = decorated
        return made

    return decorate


def _training() -> Any:
    # Flyte's plugin takes half a second to import, which the pods of all other steps do without.
    from tasks.platform.training import TRAINING

    return TRAINING


def always(function: F) -> F:
    """A task that is never cached: it takes milliseconds and looks at the outside world."""
    decorated: F = task(**pod_options("cpu"))(attempt(function))
    return decorated


def unrolling(function: F) -> F:
    """A part of a workflow whose nodes depend on its inputs; it runs in a small pod and is never cached.

    Its pod compiles the tasks inside of it anew, for the deployment that it was itself registered with. It has no
    time-out: Flyte counts that of a dynamic node over all that the node contains.
    """
    options = pod_options("cpu")
    del options["timeout"]
    options["environment"] |= {VALUES: DEPLOYMENT.model_dump_json()}
    decorated: F = dynamic(**options)(attempt(function))
    return decorated


def named(node: Node, name: str) -> Node:
    """Names a node of a graph, as the console shows it; its pods' names begin with the execution's and this one."""
    if hasattr(node, "with_overrides"):  # In a dynamic task on this machine it is a plain value.
        node.with_overrides(node_name=name, name=name.replace("-", " "))
    return node


def once(
    store: StoreRef,
    name: str,
    version: str,
    logic: Callable[Concatenate[Store, Inputs], Made],
    *inputs: Inputs.args,
    **named: Inputs.kwargs,
) -> Made:
    """Does a cached task's work, unless the store has its result; goes on where an earlier attempt was interrupted.

    The task's deck shows what the work gave, or how it ended.

    Args:
        store: where the result goes.
        name: the task's.
        version: its cache version.
        logic: the step.
        inputs: all that determines the result; the key of the work is made of them.
        named: what does not.
    """
    started = time.time()
    do_once = works.once
    if decks.in_group():
        from tasks.train.group import once_together

        do_once = once_together  # type: ignore[assignment]  # None in a follower, whose result Elastic passes over
    try:
        made = do_once(store, name, version, logic, *inputs, **named)
    except UserError as error:
        if TOLD in os.environ:
            tell(error)
        else:
            decks.show_unfinished(name, inputs, error, started)
        raise
    if made is not None:
        decks.show(store, name, made, started)
    return made
