"""Which cluster is asked, and as whom: a kubeconfig, or what a pod finds in itself."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

import yaml
from kubernetes import config as kubernetes_config
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

from tasks.preflight.findings import Unknown

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_MALFORMED = (OSError, ValueError, TypeError, AttributeError, KeyError)
"""What the client library raises for a file of another shape, which it takes for granted."""


def connect(kubeconfig: Path | None, context: str | None) -> tuple[ApiClient, str] | Unknown:
    """A client, and where its settings are from.

    Args:
        kubeconfig: a file; those of ``KUBECONFIG``, or ``~/.kube/config``, without it. In a pod that has none, the
            pod's own service account.
        context: of the kubeconfig; its current one without it.
    """
    named = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [path for path in (Path(one).expanduser() for one in named.split(os.pathsep) if one) if path.is_file()]
    settings = Configuration()
    settings.retries = False
    if not files and not kubeconfig and os.environ.get(_IN_CLUSTER):
        return _in_cluster(settings)
    if not files:
        return Unknown(
            f"{named}: no such file" if kubeconfig else f"{named}: no kubeconfig here, and this is no pod of a cluster",
            "Name one with --kubeconfig or KUBECONFIG, or let your cloud write it, as `aws eks update-kubeconfig` does",
        )
    return _from_files(files, context, settings)


def _in_cluster(settings: Configuration) -> tuple[ApiClient, str] | Unknown:
    try:
        kubernetes_config.load_incluster_config(settings)
    except (kubernetes_config.ConfigException, OSError) as error:
        return Unknown(
            f"this pod's service account: {error}",
            "Give the pod a service account with automountServiceAccountToken: true, or name a --kubeconfig",
        )
    return ApiClient(settings), "this pod's service account"


def _from_files(files: list[Path], context: str | None, settings: Configuration) -> tuple[ApiClient, str] | Unknown:
    where = os.pathsep.join(map(str, files))
    try:
        contexts, current = _contexts(files)
    except (OSError, yaml.YAMLError, ValueError) as error:
        return Unknown(f"{where}: cannot be read: {error}", "Let your cloud or kubectl write the kubeconfig again")
    wanted = context or current
    if wanted not in contexts:
        known = f"there are {', '.join(contexts)}" if contexts else "there are none"
        return Unknown(
            f"{where}: no context {wanted!r}; {known}" if wanted else f"{where}: no current context; {known}",
            "Name one of these with --context" if contexts else "Name another file with --kubeconfig",
        )
    with _told() as told:
        try:
            kubernetes_config.load_kube_config(where, wanted, settings)
        except (kubernetes_config.ConfigException, *_MALFORMED) as error:
            told.append(str(error))
    if told:
        return Unknown(
            f"{where}, context {wanted}: {' '.join('; '.join(told).split())}",
            "Mend what it names; a program that brings credentials must be installed and logged in",
        )
    return ApiClient(settings), f"{where}, context {wanted}"


def _contexts(files: list[Path]) -> tuple[list[str], str | None]:
    """Names of contexts, and the current one: of files together, as kubectl takes them."""
    names: list[str] = []
    current = None
    for file in files:
        content = yaml.safe_load(file.read_text())
        if not isinstance(content, dict):
            raise ValueError("it holds no settings")
        for one in content.get("contexts") or []:
            names.append(str(one["name"]) if isinstance(one, dict) and "name" in one else "")
        current = current or content.get("current-context")
    return [name for name in dict.fromkeys(names) if name], current


@contextmanager
def _told() -> Iterator[list[str]]:
    """Errors that the client library would only log, without a logger's name, and then go on without credentials."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == "root" and record.thread == get_ident():
                lines.append(record.getMessage())

    handler = Collect(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(handler)
