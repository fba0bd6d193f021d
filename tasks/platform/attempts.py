"""What an attempt of a task is told at its start, and how its end is told to Flyte."""

import json
import os
from pathlib import Path

from flytekit import FlyteContextManager
from flytekit.exceptions.user import FlyteRecoverableException

from tasks.artifacts.provenance import code
from tasks.errors import DeploymentError, UserError
from tasks.interruption import Interrupted

REGISTERED = "MU_GRPO_CODE"
"""The variable of a pod with the code that its task was registered from."""
TOLD = "MU_GRPOTOLD"
"""The variable with the file in which a process of a group leaves its error for the one that started it."""


def in_pod() -> bool:
    """Whether Flyte runs this task in a container, and not ``pyflyte run`` in its own process."""
    execution = FlyteContextManager.current_context().execution_state
    return execution is not None and not execution.is_local_execution()


def check_code() -> None:
    """Raises DeploymentError when the image holds other code than the task was registered from."""
    registered, here = os.environ.get(REGISTERED), code()
    if registered is not None and registered.split()[0] != here.split()[0]:
        raise DeploymentError(
            f"the task was registered from code {registered}, but runs code {here} (digest, version, commit). Push "
            "images of the commit that is registered, or register the commit of the images; pyflyte run --remote "
            "brings all of the code along with --copy all."
        )


def retried(error: UserError) -> Exception:
    """The error as Flyte is to see it: an interruption in a pod is a reason to try again."""
    return FlyteRecoverableException(error.message) if isinstance(error, Interrupted) and in_pod() else error


def tell(error: UserError) -> None:
    """Leaves an error for the process that started this one, unless another was first."""
    try:
        with Path(os.environ[TOLD]).open("x") as file:
            json.dump([type(error).__name__, error.message], file)
    except FileExistsError:
        pass
