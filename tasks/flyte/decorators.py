"""Decorators that make Flyte's tasks: cached steps, tasks that always run, and parts of a graph made at run time."""

import inspect
import os
import time
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.metadata import version as installed
from inspect import Parameter
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from flytekit import dynamic, task
from flytekit import workflow as flyte_workflow

from tasks.errors import UserError
from tasks.flyte import decks
from tasks.flyte.attempts import TOLD, attempt, write_error
from tasks.flyte.inputs import StepInputs
from tasks.flyte.pods import DEPLOYMENT, pod_options
from tasks.settings.deployment import VALUES, Role
from tasks.store import ArtifactRef, StoreRef, work

F = TypeVar("F", bound=Callable[..., object])
Made = TypeVar("Made", ArtifactRef, list[ArtifactRef])
Inputs = ParamSpec("Inputs")
Node = TypeVar("Node")
Logic = Callable[..., Made]
"""A function that does a step's work; it takes the store and the step's inputs, by their names."""
_JUDGES = ("latex2sympy2-extended", "math-verify", "sympy")
"""Packages that decide what a correct answer is."""


def step(
    version: str,
    *,
    role: Role = "cpu",
    mapped: bool = False,
    judges: bool = False,
    trains: bool = False,
    takes_turns: bool = False,
) -> Callable[[Callable[Inputs, Logic[Made]]], Callable[Inputs, Made]]:
    """Make a cached task of a declaration, a function that has the task's inputs and returns its logic.

    The work is done once for a store: the task finds what an earlier run made, and goes on where an earlier attempt was
    interrupted. Its deck shows what it made, or how it ended.

    Args:
        version: the task's cache version; raised when its sources change what it computes (see CONTRIBUTING.md).
        role: which of the deployment's pods it runs in.
        mapped: whether workflows map it over a list. Flyte then does not let one execution wait for another that does
            the same work: in an array node it would do the work again after waiting. The store's lease does.
        judges: whether it judges answers; the installed versions of what judges are then a part of its cache version.
        trains: whether several processes may do it together; one of its inputs holds OptimizeSettings then.
        takes_turns: whether it trains and generates, and so needs an image with an engine beside the trainer.
    """
    full = "-".join([version, *(f"{package}-{installed(package)}" for package in _JUDGES if judges)])

    def decorate(declared: Callable[Inputs, Logic[Made]]) -> Callable[Inputs, Made]:
        decorated: Any = task(
            task_config=_training() if trains else None,
            cache=True,
            cache_version=full,
            cache_serialize=not mapped,
            enable_deck=True,
            deck_fields=(),  # No copy of its source, of every installed package, of inputs that settings repeat.
            **pod_options(role, takes_turns),
        )(attempt(_cached(declared, full)))
        # What maps a task has its metadata, and flytekit notes the deck there only when the task itself is registered.
        decorated.metadata.generates_deck = True
        made: Callable[Inputs, Made] = decorated
        return made

    return decorate


def _cached(declared: Callable[..., Logic[Made]], version: str) -> Callable[..., Made]:
    """Return the function of a declaration's task, with the declaration's inputs and its logic's result."""

    @wraps(declared)
    def run(**inputs: Any) -> Made:
        store, determining, rest = arguments(logic := declared(**inputs), inputs)
        return _once(store, declared.__name__, version, logic, determining, rest)

    hints = get_type_hints(declared, include_extras=True)
    _, result = get_args(hints["return"])
    run.__annotations__ = {**hints, "return": result}
    signature = inspect.signature(declared).replace(return_annotation=result)
    run.__dict__["__signature__"] = signature  # where inspect.signature looks first
    return run


def arguments(logic: Logic[Made], inputs: Mapping[str, Any]) -> tuple[StoreRef, list[Any], dict[str, Any]]:
    """Return the arguments of a step's logic: its task's inputs, with the fields of a record in place of the record.

    Returns:
        The store, what determines the result in the order of the logic's parameters, and the rest by name.

    Raises:
        TypeError: the logic does not take exactly these.
    """
    given: dict[str, Any] = {}
    undecisive: set[str] = set()
    for name, value in inputs.items():
        if isinstance(value, StepInputs):
            given.update(value)
            undecisive.update(value.undecisive)
        else:
            given[name] = value
    store = given.pop("store")
    _, *taken = inspect.signature(logic).parameters
    if given.keys() != set(taken):
        raise TypeError(f"{logic} takes {sorted(taken)}; its task gives {sorted(given)}")
    determining = [given.pop(name) for name in taken if name not in undecisive]
    return store, determining, given


def _once(
    store: StoreRef, name: str, version: str, logic: Logic[Made], determining: list[Any], rest: Mapping[str, Any]
) -> Made:
    started = time.time()
    do_once: Callable[..., Any] = work.run_once
    if decks.is_group_member():
        from tasks.train.distributed import run_once_in_group

        do_once = run_once_in_group  # None in a follower, whose result Elastic passes over
    try:
        made: Made = do_once(store, name, version, logic, *determining, **rest)
    except UserError as error:
        if TOLD in os.environ:
            write_error(error)
        else:
            decks.show_unfinished(name, determining, error, started)
        raise
    if made is not None:
        decks.show(store, name, made, started)
    return made


def _training() -> Any:
    # Flyte's plugin takes half a second to import, which the tasks at the ends of a run do without.
    from tasks.flyte.training import TRAINING

    return TRAINING


def uncached(function: F) -> F:
    """Make a task that is never cached, for work of milliseconds that depends on the outside world."""
    decorated: F = task(**pod_options("cpu"))(attempt(function))
    return decorated


def dynamic_part(function: F) -> F:
    """Make a dynamic task, a part of a workflow whose nodes depend on its inputs. It is never cached.

    Its pod compiles the tasks inside of it again, for the deployment that it was itself registered with. It has no
    time-out, because Flyte counts the time-out of a dynamic node over everything that the node contains.
    """
    options = pod_options("cpu")
    del options["timeout"]
    options["environment"] |= {VALUES: DEPLOYMENT.model_dump_json()}
    decorated: F = dynamic(**options)(attempt(function))
    return decorated


def unpack_options(**defaults: object) -> Callable[[F], F]:
    """Show Flyte the keys of the TypedDict of a function's ``**`` parameter as inputs, with defaults by name.

    So inputs that several workflows and tasks hand on are declared once.
    """

    def decorate(function: F) -> F:
        signature, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
        *own, rest = signature.parameters.values()
        (keys,) = get_args(hints.pop(rest.name))
        taken = get_type_hints(keys, include_extras=True)
        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]
        for name, kind in taken.items():
            default = defaults.get(name, Parameter.empty)
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        function.__annotations__ = {**hints, **taken}
        function.__dict__["__signature__"] = signature.replace(parameters=parameters)
        return function

    return decorate


def workflow(graph: F) -> F:
    """Make a workflow of a function that connects tasks; flytekit's own decorator has no types."""
    decorated: F = flyte_workflow(graph)
    return decorated


def named(node: Node, name: str) -> Node:
    """Name a node of a graph, as the console shows it; its pods' names begin with the execution's and this one."""
    if hasattr(node, "with_overrides"):  # In a dynamic task on this machine it is a plain value.
        node.with_overrides(node_name=name, name=name.replace("-", " "))
    return node
