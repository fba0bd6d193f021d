"""Decorators for Flyte's tasks and workflows: cached steps, uncached tasks, and dynamic tasks, in the pods of roles."""

import inspect
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from importlib.metadata import version as installed
from inspect import Parameter
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from flytekit import Resources, Secret, dynamic, task
from flytekit import workflow as flyte_workflow
from flytekit.extras.accelerators import GPUAccelerator

from tasks.errors import UserError
from tasks.flyte import decks
from tasks.flyte.attempts import GPUS, REGISTERED, attempt, is_group_member
from tasks.flyte.inputs import StepInputs
from tasks.process.provenance import code
from tasks.settings.deployment import VALUES, DeploymentSettings, Role
from tasks.store import ArtifactRef, StoreRef, work

DEPLOYMENT = DeploymentSettings.current()
F = TypeVar("F", bound=Callable[..., object])
Made = TypeVar("Made", ArtifactRef, list[ArtifactRef])
Inputs = ParamSpec("Inputs")
Node = TypeVar("Node")
Logic = Callable[..., Made]
"""The function that does a step's work; it takes the store and the step's inputs by name."""
_JUDGES = ("latex2sympy2-extended", "math-verify", "sympy")
"""Packages that decide what a correct answer is."""


def step(
    version: str,
    *,
    role: Role = "cpu",
    mapped: bool = False,
    judges: bool = False,
    trains: bool = False,
    colocated: bool = False,
) -> Callable[[Callable[Inputs, Logic[Made]]], Callable[Inputs, Made]]:
    """Make a cached task from a declaration, a function that takes the task's inputs and returns its logic.

    The work is done once per store: the task finds the artifacts of an earlier run, and continues where an earlier
    attempt was interrupted. Its deck shows the artifacts that it made, or the error that it ended with.

    Args:
        version: the task's cache version; raise it when new sources change the task's result (see CONTRIBUTING.md).
        role: the role of the pod that it runs in.
        mapped: whether workflows map it over a list. Flyte's cache serialization is then off, because an array node
            would do the work again after waiting for it; the store's lease makes executions wait instead.
        judges: whether it judges answers; its cache version then holds the versions of the packages that judge.
        trains: whether several processes may run it together; one of its inputs then holds OptimizeSettings.
        colocated: whether it trains and generates, and so needs an image with both the trainer and an engine.
    """
    cache_version = "-".join([version, *(f"{package}-{installed(package)}" for package in _JUDGES if judges)])

    def decorate(declared: Callable[Inputs, Logic[Made]]) -> Callable[Inputs, Made]:
        if trains:  # Importing Flyte's plugin takes half a second, which tasks that do not train are spared.
            from tasks.flyte.training import TRAINING
        decorated: Any = task(
            task_config=TRAINING if trains else None,
            cache=True,
            cache_version=cache_version,
            cache_serialize=not mapped,
            enable_deck=True,
            deck_fields=(),  # Flyte's decks of source, packages and inputs repeat what our decks show.
            **pod_options(role, colocated),
        )(attempt(_cached(declared, cache_version)))
        # A map task takes over this metadata, and flytekit notes the deck in it only if the task itself is registered.
        decorated.metadata.generates_deck = True
        typed: Callable[Inputs, Made] = decorated
        return typed

    return decorate


def _cached(declared: Callable[..., Logic[Made]], version: str) -> Callable[..., Made]:
    """Return the task function of a declaration, with the declaration's inputs and the logic's result."""

    @wraps(declared)
    def run(**inputs: Any) -> Made:
        store, determining, rest = arguments(logic := declared(**inputs), inputs)
        name, started = declared.__name__, time.time()
        run_once: Callable[..., Any] = work.run_once
        if is_group_member():
            from tasks.train.distributed import run_once_in_group

            run_once = run_once_in_group  # It returns None in followers, whose result Elastic ignores.
        try:
            made: Made = run_once(store, name, version, logic, *determining, **rest)
        except UserError as error:
            if not is_group_member():  # The parent of the group shows the deck.
                decks.show_unfinished(name, determining, error, started)
            raise
        if made is not None:
            decks.show(store, name, made, started)
        return made

    hints = get_type_hints(declared, include_extras=True)
    _, result = get_args(hints["return"])
    run.__annotations__ = {**hints, "return": result}
    signature = inspect.signature(declared).replace(return_annotation=result)
    run.__dict__["__signature__"] = signature  # where inspect.signature looks first
    return run


def arguments(logic: Logic[Made], inputs: Mapping[str, Any]) -> tuple[StoreRef, list[Any], dict[str, Any]]:
    """Return the arguments of a step's logic: the inputs of its task, with each record replaced by its fields.

    Returns:
        The store, the values that determine the result in the order of the logic's parameters, and the others by name.
    """
    values: dict[str, Any] = {}
    not_in_key: set[str] = set()
    for name, value in inputs.items():
        if isinstance(value, StepInputs):
            values.update(value)
            not_in_key.update(value.not_in_key)
        else:
            values[name] = value
    store = values.pop("store")
    _, *parameters = inspect.signature(logic).parameters
    determining = [values.pop(name) for name in parameters if name not in not_in_key]
    return store, determining, values


def pod_options(role: Role, colocated: bool = False) -> dict[str, Any]:
    """Return the arguments of ``flytekit.task`` for a role: image, resources, template, attempts, secrets."""
    pod = DEPLOYMENT.pods[role]
    resources = Resources(
        cpu=pod.cpu, mem=pod.memory, ephemeral_storage=pod.ephemeral_storage, gpu=str(pod.gpus) if pod.gpus else None
    )
    return {
        "container_image": DEPLOYMENT.image(role, colocated),
        "requests": resources,
        "limits": resources,
        "accelerator": GPUAccelerator(pod.accelerator) if pod.accelerator else None,
        "shared_memory": pod.shared_memory,
        "pod_template_name": pod.template,
        "interruptible": pod.interruptible,
        "retries": pod.retries,
        "timeout": timedelta(minutes=pod.timeout_minutes),
        "environment": {REGISTERED: code(), **({GPUS: str(pod.gpus)} if pod.gpus else {})},
        "secret_requests": _secrets(role),
    }


def _secrets(role: Role) -> list[Secret]:
    """Return the secrets of a role: the hub's token for prefetch, the tracker's key for training and evaluation."""
    secrets = DEPLOYMENT.secrets
    keys = {
        "HF_TOKEN": secrets.hub_token if role == "prefetch" else "",
        "WANDB_API_KEY": secrets.tracker_key if role in ("train", "evaluate") else "",
    }
    return [
        Secret(group=secrets.name, key=key, env_var=variable, mount_requirement=Secret.MountType.ENV_VAR)
        for variable, key in keys.items()
        if key
    ]


def uncached(function: F, role: Role = "cpu") -> F:
    """Make an uncached task, for short work that depends on the outside world, in a pod of a role."""
    decorated: F = task(**pod_options(role))(attempt(function))
    return decorated


def uncached_with_hub(function: F) -> F:
    """Make an uncached task that looks up commits on the hub, in a pod that reaches the hub and has its token."""
    return uncached(function, "prefetch")


def dynamic_part(function: F) -> F:
    """Make an uncached dynamic task: a part of a workflow whose nodes depend on its inputs.

    Its pod compiles the tasks inside it again, for the deployment that the dynamic task was registered with. It has no
    time-out, because Flyte would count the time of all nodes inside it.
    """
    options = pod_options("cpu")
    del options["timeout"]
    options["environment"] |= {VALUES: DEPLOYMENT.model_dump_json()}
    decorated: F = dynamic(**options)(attempt(function))
    return decorated


def unpack_options(**defaults: object) -> Callable[[F], F]:
    """Declare the keys of the TypedDict of a function's ``**`` parameter as its inputs, with defaults by name.

    This way, inputs that several workflows and tasks pass on are declared once.
    """

    def decorate(function: F) -> F:
        signature, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
        *explicit, rest = signature.parameters.values()
        (keys,) = get_args(hints.pop(rest.name))
        unpacked = get_type_hints(keys, include_extras=True)
        parameters = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in explicit]
        for name, kind in unpacked.items():
            default = defaults.get(name, Parameter.empty)
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        function.__annotations__ = {**hints, **unpacked}
        function.__dict__["__signature__"] = signature.replace(parameters=parameters)
        return function

    return decorate


def workflow(graph: F) -> F:
    """Make a workflow from a function that connects tasks; flytekit's decorator has no types."""
    decorated: F = flyte_workflow(graph)
    return decorated


def named(node: Node, name: str) -> Node:
    """Name a node for the console; the names of its pods begin with the execution's name and this one."""
    if hasattr(node, "with_overrides"):  # In a local dynamic task the node is a plain value.
        node.with_overrides(node_name=name, name=name.replace("-", " "))
    return node
