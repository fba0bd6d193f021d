"""Everything that the API server was asked, read once; the checks are functions of it."""

from dataclasses import dataclass

from tasks.preflight.cluster import Cluster, Permission, Unauthenticated
from tasks.preflight.findings import Unknown
from tasks.preflight.records import (
    LimitRange,
    Named,
    Namespace,
    Node,
    Pod,
    PodTemplate,
    Quota,
    Secret,
    Version,
)
from tasks.settings.deployment import DeploymentSettings

KUBEFLOW = "kubeflow.org/v1"
"""The training operator's API."""
_NOT_ASKED = Unknown("the API server was not asked")


@dataclass(frozen=True)
class Answers:
    """By question; Unknown where there is no answer, None where there is no such object."""

    host: str
    """Empty when no server is known."""
    namespace: str
    version: Version | Unknown
    permissions: dict[Permission, bool] | Unknown = _NOT_ASKED
    creates_pods: bool | Unknown = _NOT_ASKED
    of_namespace: Namespace | Unknown | None = _NOT_ASKED
    namespaces: list[Named] | Unknown = _NOT_ASKED
    """Asked for when the namespace is not there."""
    accounts: list[Named] | Unknown = _NOT_ASKED
    secret: Secret | Unknown | None = _NOT_ASKED
    templates: list[PodTemplate] | Unknown = _NOT_ASKED
    priorities: list[Named] | Unknown = _NOT_ASKED
    nodes: list[Node] | Unknown = _NOT_ASKED
    pods: list[Pod] | Unknown = _NOT_ASKED
    quotas: list[Quota] | Unknown = _NOT_ASKED
    limits: list[LimitRange] | Unknown = _NOT_ASKED
    training: frozenset[str] | Unknown | None = _NOT_ASKED
    """Resources of the training operator; asked for when several nodes train."""


def ask(cluster: Cluster, deployment: DeploymentSettings) -> Answers:
    """Asks what a deployment needs to be known; a server that does not answer is asked once."""
    version = cluster.version()
    if isinstance(version, Unknown):
        return Answers(cluster.host, cluster.namespace, version)
    permissions = _permissions(cluster)
    if isinstance(permissions, Unauthenticated):
        return Answers(cluster.host, cluster.namespace, permissions)
    of_namespace = cluster.of_namespace()
    gone = Unknown(f"there is no namespace {cluster.namespace}") if of_namespace is None else None
    secrets = deployment.secrets
    return Answers(
        host=cluster.host,
        namespace=cluster.namespace,
        version=version,
        permissions=permissions,
        creates_pods=cluster.may(Permission("create", "pods", cluster.namespace)),
        of_namespace=of_namespace,
        namespaces=cluster.namespaces() if gone else _NOT_ASKED,
        accounts=gone or cluster.service_accounts(),
        secret=gone or (cluster.secret() if secrets.hub_token or secrets.tracker_key else _NOT_ASKED),
        templates=gone or cluster.templates(),
        priorities=cluster.priority_classes(),
        nodes=cluster.nodes(),
        pods=cluster.pods(),
        quotas=gone or cluster.quotas(),
        limits=gone or cluster.limit_ranges(),
        training=cluster.resources(KUBEFLOW) if deployment.train_nodes > 1 else _NOT_ASKED,
    )


def _permissions(cluster: Cluster) -> dict[Permission, bool] | Unknown:
    found = {}
    for permission in cluster.needed.values():
        answer = cluster.may(permission)
        if isinstance(answer, Unknown):
            return answer
        found[permission] = answer
    return found
