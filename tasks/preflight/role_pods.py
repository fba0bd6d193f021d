"""A role's pod as Flyte makes it: the deployment's sizes on the pod template's rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.preflight.pools import Ask, requests
from tasks.preflight.records import (
    CPU,
    GPU,
    MEMORY,
    STORAGE,
    Container,
    PodSpec,
    PodTemplate,
    Requirement,
    SecurityContext,
    Term,
    Toleration,
    thousandths,
)
from tasks.settings.deployment import ROLES, DeploymentSettings, PodSettings, Role

_BASES = ("default", "primary")
"""Containers of a template that Flyte puts below the task's own, the second over the first; it takes no others."""


@dataclass(frozen=True)
class RolePod:
    """What the cluster will be asked for when a role's task starts."""

    role: Role
    template: str
    ask: Ask
    spec: PodSpec
    """The pod without its image and command: what admission looks at."""
    count: int
    """Pods that must run at once for one of the role's tasks."""


def role_pods(
    deployment: DeploymentSettings, templates: Mapping[str, PodTemplate], roles: Sequence[Role] = ROLES
) -> dict[Role, RolePod]:
    """The pods of those roles whose templates are there."""
    return {
        role: _role_pod(role, deployment, templates[deployment.pod(role).template])
        for role in roles
        if deployment.pod(role).template in templates
    }


def _role_pod(role: Role, deployment: DeploymentSettings, template: PodTemplate) -> RolePod:
    pod, spec = deployment.pod(role), template.spec
    merged = spec.model_copy(update={"containers": (_container(spec, sizes(pod)),), "init_containers": ()})
    accelerator, tolerations = None, spec.tolerations
    if pod.accelerator:
        key = deployment.accelerator_label
        accelerator = Requirement(key=key, operator="In", values=(pod.accelerator,))
        tolerations += (Toleration(key=key, operator="Equal", value=pod.accelerator, effect="NoSchedule"),)
    key, _, value = deployment.spot_label.partition("=")
    if pod.interruptible:
        tolerations += (Toleration(key=key, operator="Equal", value=value, effect="NoSchedule"),)
    spot = Requirement(key=key, operator="In" if pod.interruptible else "NotIn", values=(value,))
    # Merged with a template that has terms, Flyte's own requirement becomes one more: any of them is enough.
    terms = None if spec.terms is None else (*spec.terms, Term(on_labels=(spot,)))
    own = spot if terms is None else None
    return RolePod(
        role=role,
        template=template.name,
        ask=Ask(requests(merged), spec.node_selector, terms, own, accelerator, tolerations),
        spec=merged,
        count=deployment.train_nodes if role == "train" else 1,
    )


def sizes(pod: PodSettings) -> dict[str, int]:
    """What the deployment gives a role's container: requests, which are its limits too."""
    amounts = {CPU: pod.cpu, MEMORY: pod.memory, STORAGE: pod.ephemeral_storage}
    amounts |= {GPU: str(pod.gpus)} if pod.gpus else {}
    return {name: thousandths(amount) for name, amount in amounts.items()}


def _container(spec: PodSpec, own: dict[str, int]) -> Container:
    """The task's container over those of the template, each field that is given over the one below it."""
    bases = [one for name in _BASES for one in spec.containers if one.name == name]
    merged = Container(name="task")
    for base in bases:
        given = {name: getattr(base, name) for name in base.model_fields_set}
        merged = merged.model_copy(
            update={
                **given,
                "requests": merged.requests | base.requests,
                "limits": merged.limits | base.limits,
                "security_context": _over(merged.security_context, base.security_context),
            }
        )
    return merged.model_copy(update={"requests": merged.requests | own, "limits": merged.limits | own})


def _over(below: SecurityContext, above: SecurityContext) -> SecurityContext:
    return below.model_copy(update={name: getattr(above, name) for name in above.model_fields_set})
