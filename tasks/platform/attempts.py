"""What an attempt of a task is told at its start, and how its end is told to Flyte."""

import os

from flytekit import FlyteContextManager
from flytekit.exceptions.user import FlyteRecoverableException

from tasks.artifacts.provenance import code
from tasks.errors import DeploymentError, UserError
from tasks.interruption import Interrupted

REGISTERED = "MU_GRPO_CODE"
"""The variable of a pod with the code that its task was registered from."""


def in_pod() -> bool:
    """Whether Flyte runs this task in a container, and not ``pyflyte run`` in its own process."""
    execution = FlyteContextManager.current_context().execution_state
    return execution is not None and not execution.is_local_execution()


def check_code() -> None:
    """Raises DeploymentError when the image holds other code than the task was registered from."""
    registered, here = os.environ.get(REGISTERED), code()
    if registered is not None and registered.split()[0] != here.split()[0]:
        raise DeploymentError(
            f"the task was registered from code {registered}, but its image holds code {here} (digest, version, "
            "commit). Push images of the commit that is registered, or register the commit of the images."
        )


def retried(error: UserError) -> Exception:
    """The error as Flyte is to see it: an interruption in a pod is a reason to try again."""
    return FlyteRecoverableException(error.message) if isinstance(error, Interrupted) and in_pod() else error
