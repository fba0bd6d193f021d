"""All checks, the most basic first; what one of them stops is not tried."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tasks.preflight.answers import Answers, ask
from tasks.preflight.asked import image_names, roles_of, workflow_of
from tasks.preflight.cluster import Cluster
from tasks.preflight.connection import connect
from tasks.preflight.findings import Finding, Unknown
from tasks.preflight.flyte import flyte_checks
from tasks.preflight.images import ask_registries, image_checks
from tasks.preflight.namespace_checks import identity_checks, known_templates, namespace_checks
from tasks.preflight.quota_checks import quota_checks
from tasks.preflight.reach import Patience
from tasks.preflight.role_pods import role_pods
from tasks.preflight.room_checks import room_checks
from tasks.preflight.storage import store_check
from tasks.settings import RunSettings
from tasks.settings.deployment import DeploymentSettings


@dataclass(frozen=True)
class Target:
    """Where a run is to go.

    Without a kubeconfig and a context, kubectl's own are taken; without Flyte's address, Flyte is not asked.
    """

    project: str = "mu-grpo"
    domain: str = "development"
    kubeconfig: Path | None = None
    context: str | None = None
    flyte: str | None = None
    patience: Patience = field(default_factory=Patience)

    @property
    def namespace(self) -> str:
        """Where Flyte starts the run's pods."""
        return f"{self.project}-{self.domain}"


def preflight(run: RunSettings, deployment: DeploymentSettings, target: Target) -> list[Finding]:
    """What stops a run from starting, and what does not."""
    seconds, names = target.patience.request, image_names(deployment, run)
    with ThreadPoolExecutor() as pool:
        store = pool.submit(store_check, run.store, seconds)
        registries = pool.submit(ask_registries, names, seconds)
        flyte = pool.submit(flyte_checks, target.flyte, target.project, target.domain, workflow_of(run), seconds)
        kubeconfig, answers = _cluster(deployment, target)
        return [
            kubeconfig,
            *_cluster_checks(answers, deployment, run),
            store.result(),
            *image_checks(names, registries.result(), answers.nodes),
            *flyte.result(),
        ]


def _cluster(deployment: DeploymentSettings, target: Target) -> tuple[Finding, Answers]:
    name, connected = "kubeconfig", connect(target.kubeconfig, target.context)
    if isinstance(connected, Unknown):
        return connected.of(name, "failed"), Answers("", target.namespace, Unknown("needs a kubeconfig"))
    client, where = connected
    with client:
        answers = ask(Cluster(client, target.namespace, deployment.secrets.name, target.patience), deployment)
    return Finding(name, "ok", where), answers


def _cluster_checks(answers: Answers, deployment: DeploymentSettings, run: RunSettings) -> Iterator[Finding]:
    roles = roles_of(run)
    pods = role_pods(deployment, known_templates(answers), roles)
    yield from identity_checks(answers)
    yield from namespace_checks(answers, deployment, pods, roles)
    yield from room_checks(answers, deployment, pods, run)
    yield from quota_checks(answers, pods)
