"""Decorators for Flyte: cached tasks, tasks without a cache, dynamic tasks, workflows, and names of nodes."""

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
"""The function of a step; its parameters are the store and the inputs of the task, by their names."""
_JUDGES = ("latex2sympy2-extended", "math-verify", "sympy")
"""Packages that decide which answers are correct."""


def step(
    version: str,
    *,
    role: Role = "cpu",
    mapped: bool = False,
    judges: bool = False,
    trains: bool = False,
    takes_turns: bool = False,
) -> Callable[[Callable[Inputs, Logic[Made]]], Callable[Inputs, Made]]:
    """Make a cached task of a declaration: a function with the inputs of the task, which returns the step's function.

    A store does the work once: the task uses the artifacts of earlier runs, and the saved parts of an interrupted
    attempt. Its deck shows its artifacts, or its error.

    Args:
        version: cache version of the task, to be raised when its results change (see CONTRIBUTING.md).
        role: role of its pod in the deployment.
        mapped: whether workflows map it over a list. Flyte's cache_serialize is off then, since in an array node it
            would do the work again after waiting; the lease of the store makes executions wait.
        judges: whether it judges answers. The versions of the packages that do are then part of its cache version.
        trains: whether several processes may do it together. One of its inputs then holds OptimizeSettings.
        takes_turns: whether it trains and generates, for which it needs an image with engine and trainer.
    """
    full = "-".join([version, *(f"{package}-{installed(package)}" for package in _JUDGES if judges)])

    def decorate(declared: Callable[Inputs, Logic[Made]]) -> Callable[Inputs, Made]:
        decorated: Any = task(
            task_config=_training() if trains else None,
            cache=True,
            cache_version=full,
            cache_serialize=not mapped,
            enable_deck=True,
            deck_fields=(),  # The deck has no source code, no list of packages, and no inputs.
            **pod_options(role, takes_turns),
        )(attempt(_cached(declared, full)))
        # A mapped task takes this from the metadata, which flytekit sets only at the task's own registration.
        decorated.metadata.generates_deck = True
        made: Callable[Inputs, Made] = decorated
        return made

    return decorate


def _cached(declared: Callable[..., Logic[Made]], version: str) -> Callable[..., Made]:
    """Return the function of a task: it has the inputs of the declaration and the result of its step."""

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
    """Return the arguments of a step's function: the inputs of its task, with records replaced by their fields.

    Returns:
        The store; the arguments that determine the result, in the order of the parameters; the others by name.

    Raises:
        TypeError: the function has other parameters.
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

        do_once = run_once_in_group  # It returns None in followers, whose results Elastic ignores.
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
    # Flyte's plugin takes half a second to import, which other tasks need not wait for.
    from tasks.flyte.training import TRAINING

    return TRAINING


def uncached(function: F) -> F:
    """Make a task without a cache, for short work that depends on the outside world."""
    decorated: F = task(**pod_options("cpu"))(attempt(function))
    return decorated


def dynamic_part(function: F) -> F:
    """Make a dynamic task: a part of a workflow whose nodes depend on its inputs. It is not cached.

    Its pod compiles the tasks inside again, for the deployment of its own registration. It has no time-out, because
    Flyte's time-out of a dynamic node covers all nodes inside.
    """
    options = pod_options("cpu")
    del options["timeout"]
    options["environment"] |= {VALUES: DEPLOYMENT.model_dump_json()}
    decorated: F = dynamic(**options)(attempt(function))
    return decorated


def unpack_options(**defaults: object) -> Callable[[F], F]:
    """Declare the keys of the TypedDict of a function's ``**`` parameter as inputs to Flyte, with defaults by name.

    With it, inputs that several workflows and tasks pass on are declared once.
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
    """Make a workflow of a function that connects tasks; typed, as flytekit's decorator is not."""
    decorated: F = flyte_workflow(graph)
    return decorated


def named(node: Node, name: str) -> Node:
    """Name a node, for the console and its pods, and return it."""
    if hasattr(node, "with_overrides"):  # In a local dynamic task it is a plain value.
        node.with_overrides(node_name=name, name=name.replace("-", " "))
    return node
