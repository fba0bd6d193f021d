"""What steps run on, and how they are cached: the only module outside of task.py and workflows/ that knows Flyte."""

import inspect
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from flytekit import FlyteContextManager, HashMethod, PythonFunctionTask, Resources, current_context, task
from flytekit.exceptions.base import FlyteException
from flytekit.exceptions.user import FlyteRecoverableException
from flytekit.extend import IgnoreOutputs, TaskPlugins
from flytekitplugins.kfpytorch import Elastic
from flytekitplugins.kfpytorch.task import PytorchElasticFunctionTask

from tasks.artifacts import ArtifactRef, Store, StoreRef
from tasks.artifacts import work as works
from tasks.errors import UserError
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


_NODES = int(os.environ.get("PET_NNODES", os.environ.get("MU_GRPO_TRAIN_NODES", "1")).split(":")[-1])
"""Of a step that trains: asked for at registration, and told to its pods by the training operator."""
_TOLD = "MU_GRPO_TOLD"
"""The variable with the file in which a process of a group leaves its error for the one that started it."""


@dataclass
class _Training(Elastic):
    """One process, or the group that ``settings.backend`` of the step asks for."""


class _TrainingTask(PytorchElasticFunctionTask):
    """Elastic with a number of processes that is an input of the step."""

    def __init__(self, task_config: _Training, task_function: Callable[..., object], **options: Any) -> None:
        # The plugin's own imports torch, which a run that finds everything in the cache does without.
        PythonFunctionTask.__init__(
            self,
            task_config=task_config,
            task_function=task_function,
            task_type=self._ELASTIC_TASK_TYPE if _NODES > 1 else self._ELASTIC_TASK_TYPE_STANDALONE,
            task_type_version=1,
            **options,
        )
        self.min_nodes = self.max_nodes = _NODES
        self.rdzv_backend = "c10d"

    def execute(self, **inputs: Any) -> Any:
        """Runs the step here, or in a group of processes."""
        backend = inputs["settings"].backend
        if backend.kind == "torch":
            return PythonFunctionTask.execute(self, **inputs)
        self._task_config = replace(self.task_config, nproc_per_node=backend.processes)
        with _listening():
            return super().execute(**inputs)


TaskPlugins.register_pythontask_plugin(_Training, _TrainingTask)


@contextmanager
def _listening() -> Iterator[None]:
    """An error that a process of the group left becomes this one's, and is told once."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "error.json"
        os.environ[_TOLD] = str(told)
        try:
            yield
        except (FlyteException, IgnoreOutputs):
            if not told.is_file():
                raise
            name, message = json.loads(told.read_text())
            raise _retried(next(kind for kind in _kinds(UserError) if kind.__name__ == name)(message)) from None
        finally:
            del os.environ[_TOLD]


def _kinds(kind: type[UserError]) -> Iterator[type[UserError]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _kinds(derived)


def _tell(error: UserError) -> None:
    """Leaves an error for the process that started this one, unless another was first."""
    try:
        with Path(os.environ[_TOLD]).open("x") as file:
            json.dump([type(error).__name__, error.message], file)
    except FileExistsError:
        pass


def step(version: str, *, role: str = "cpu", deck: bool = False, trains: bool = False) -> Callable[[F], F]:
    """A cached task.

    Args:
        version: the task's cache version; raised when its sources change what it computes (see CONTRIBUTING.md).
        role: a key of the resources table.
        deck: whether it shows a Flyte deck.
        trains: whether several processes may do it together; it has an input ``settings`` with a ``backend`` then.
    """

    def decorate(function: F) -> F:
        inputs = inspect.signature(function).parameters
        decorated: F = task(
            task_config=_Training(nnodes=_NODES, increase_shared_mem=False) if trains else None,
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
    checkpoint = current_context().checkpoint if _in_pod() else None
    if checkpoint is not None and (earlier := checkpoint.read()):
        logger().info("%s: an earlier attempt saved %s in %s", name, earlier.decode(), store.uri)

    def saved(place: str) -> None:
        if checkpoint is not None:
            checkpoint.write(place.encode())

    do_once = works.once
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from tasks.optimize.group import once_together

        do_once = once_together  # type: ignore[assignment]  # None in a follower, whose result Elastic passes over
    try:
        return do_once(store, name, version, logic, saved, *inputs, **named)
    except UserError as error:
        if _TOLD in os.environ:
            _tell(error)
            raise
        raise _retried(error) from error.__cause__


def _in_pod() -> bool:
    execution = FlyteContextManager.current_context().execution_state
    return execution is not None and not execution.is_local_execution()


def _retried(error: UserError) -> Exception:
    """The error as Flyte is to see it: an interruption in a pod is a reason to try again."""
    return FlyteRecoverableException(error.message) if isinstance(error, Interrupted) and _in_pod() else error
