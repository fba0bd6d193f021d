"""Attempts of tasks: checks of code and GPUs before an attempt, and errors in the form that Flyte needs."""

import atexit
import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import NoReturn, ParamSpec, TypeVar

from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument
from flyteidl.core.execution_pb2 import ExecutionError
from flytekit import FlyteContextManager, current_context
from flytekit.core.constants import ERROR_FILE_NAME
from flytekit.exceptions.user import FlyteRecoverableException
from flytekit.extend import IgnoreOutputs
from flytekit.utils.asyn import run_sync

from tasks.errors import DeploymentError, DeviceError, UserError
from tasks.process.interruption import STOPPED, Interrupted, repeat_lost_sigint
from tasks.process.logs import end_when_it_hangs, replace_unencodable_text
from tasks.process.provenance import code

REGISTERED = "MU_GRPO_CODE"
"""Environment variable of a pod that holds the version of the code that its task was registered from."""
GPUS = "MU_GRPO_GPUS"
"""Environment variable of a pod that holds the number of its GPUs."""
ERROR_PATH = "MU_GRPO_ERROR_PATH"
"""Environment variable with the path of the file in which a process of a group writes its error for its parent."""
Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")
_recoverable: Callable[[str], Exception] = FlyteRecoverableException
_ignore_outputs: Callable[[str], Exception] = IgnoreOutputs
_NODE_GROUP_VARIABLES = {"FLYTE_INTERNAL_DIST_ERROR_STRATEGY", "_F_DES"}
"""Environment variables of pods in a group of several nodes; Flyte chooses the group's error from those of its pods."""


def in_pod() -> bool:
    """Return True if Flyte runs this task in a container, False if ``pyflyte run`` runs it in its own process."""
    execution = FlyteContextManager.current_context().execution_state
    return execution is not None and not execution.is_local_execution()


def is_group_member() -> bool:
    """Return True if Elastic started this process as a member of a group that runs a step."""
    return "TORCHELASTIC_RUN_ID" in os.environ


@cache
def close_connections_at_exit() -> None:
    """Close flytekit's connections to S3 before Python exits, because Python warns of each open connection.

    Call it while a task runs: exit functions run in reverse order of their registration, and flytekit registers the end
    of its event loop when it fetches the task's inputs. The connections can only be closed in that loop.
    """
    atexit.register(_close_connections)


def _close_connections() -> None:
    if "s3fs" not in sys.modules:
        return
    from s3fs import S3FileSystem

    # fsspec caches its file systems; nothing else closes those in flytekit's event loop. Where no endpoint is set, one
    # has a client for every region of a bucket, too, which its creator knows.
    systems = S3FileSystem._cache.values()
    creators = [system._s3creator for system in systems if system.asynchronous and system._s3 is not None]

    async def close() -> None:
        for creator in creators:
            await creator.__aexit__(None, None, None)

    if creators:
        run_sync(close)


@cache
def say_how_to_go_on() -> None:
    """Print a message when Ctrl-C stops ``pyflyte run``; flytekit's own handler exits without one."""

    def stop(_number: int, _frame: FrameType) -> NoReturn:
        sys.exit(STOPPED)

    FlyteContextManager.add_signal_handler(stop)
    repeat_lost_sigint()


def check_code() -> None:
    """Raise DeploymentError if the image's code differs from the code that the task was registered from."""
    registered, running = os.environ.get(REGISTERED), code()
    if registered is not None and registered.split()[0] != running.split()[0]:
        raise DeploymentError(
            f"the task was registered from code {registered}, but runs code {running} (digest, version, commit). Push "
            "images of the commit that is registered, or register the commit of the images; pyflyte run --remote "
            "brings all of the code along with --copy all."
        )


def check_gpus() -> None:
    """Raise DeviceError if CUDA gives this process fewer GPUs than its pod has; it would compute on the CPU."""
    wanted = int(os.environ.get(GPUS, "0"))
    if not wanted:
        return
    import torch

    # device_count asks the driver's library, which also answers where CUDA cannot start.
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if seen < wanted:
        raise DeviceError(
            f"the pod has {wanted} GPUs, but CUDA finds {seen}. Look at the node's fabric manager and its driver, "
            f"which must be new enough for CUDA {torch.version.cuda or '(this torch has none)'}."
        )


def attempt(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """Wrap a task's function so that it checks code and GPUs first, and raises errors in the form that Flyte needs.

    flytekit tells Flyte that an exception of a task is final unless it is a FlyteRecoverableException. Here an error is
    final only if a person must fix something before another attempt can succeed (``UserError.recoverable``).
    """

    @wraps(function)
    def attempted(*inputs: Inputs.args, **named: Inputs.kwargs) -> Output:
        replace_unencodable_text()  # ``pyflyte run`` prints the summary of the run.
        close_connections_at_exit()
        current_context().decks.clear()  # ``pyflyte run`` collects the decks of all tasks in one list.
        if in_pod():
            end_when_it_hangs()
        else:
            say_how_to_go_on()
        try:
            check_code()
            check_gpus()
            return function(*inputs, **named)
        except Exception as error:  # Every error is raised again, because Flyte must see it.
            if ERROR_PATH in os.environ:
                # In a group of processes the parent converts the error (tasks/flyte/training.py).
                if isinstance(error, UserError):
                    write_error(error)
                raise
            if (flyte_error := to_flyte_error(error)) is error:
                raise
            raise flyte_error from error

    return attempted


def to_flyte_error(error: Exception) -> Exception:
    """Return the exception that an attempt must raise, so that Flyte retries where a retry may succeed.

    Flyte counts an interruption as a failure of the system, like a deleted pod. flytekit would count it against
    ``retries``, so the error file is written here, and IgnoreOutputs keeps flytekit from writing another. In a group of
    several nodes Flyte gathers the error files of all pods, whose names only flytekit knows.
    """
    if not in_pod() or isinstance(error, FlyteRecoverableException | IgnoreOutputs):
        return error
    if not isinstance(error, Interrupted):
        final = isinstance(error, UserError) and not error.recoverable
        return error if final else _recoverable(f"{type(error).__name__}: {error}")
    if _NODE_GROUP_VARIABLES & os.environ.keys():
        return _recoverable(error.message)
    container_error = ContainerError(
        code=type(error).__name__,
        message=error.message,
        kind=ContainerError.RECOVERABLE,
        origin=ExecutionError.SYSTEM,
    )
    container_error.timestamp.GetCurrentTime()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ERROR_FILE_NAME
        file.write_bytes(ErrorDocument(error=container_error).SerializeToString())
        target = f"{current_context().output_metadata_prefix}/{ERROR_FILE_NAME}"
        FlyteContextManager.current_context().file_access.put_data(str(file), target)
    return _ignore_outputs(error.message)


def write_error(error: UserError) -> None:
    """Write an error to the file for the parent process, unless another process of the group has written one."""
    with suppress(OSError), Path(os.environ[ERROR_PATH]).open("x") as file:  # The disk may be full.
        json.dump([f"{type(error).__module__}:{type(error).__qualname__}", error.message], file)
