"""What a run needs of a cluster: its workflow, the roles of its pods, and their images."""

from tasks.settings import RunSettings
from tasks.settings.deployment import ROLES, DeploymentSettings, Role

_IN_TRAINING: tuple[Role, ...] = ("verify", "rollout")
"""What pods that train do themselves where generation and optimization take turns."""


def workflow_of(run: RunSettings) -> str:
    """Under the name that it is registered by."""
    return "workflows.grpo.grpo" if run.alternates else "workflows.mu_grpo.mu_grpo"


def roles_of(run: RunSettings) -> tuple[Role, ...]:
    """Of the pods that the workflow starts."""
    return tuple(role for role in ROLES if not run.alternates or role not in _IN_TRAINING)


def image_names(deployment: DeploymentSettings, run: RunSettings) -> list[str]:
    """The different images of these roles."""
    return list(dict.fromkeys(deployment.image(role, run.alternates) for role in roles_of(run)))
