"""The cluster that is asked, and the user who asks: from a kubeconfig, or from the pod that this runs in."""

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

from tasks.cluster.findings import Unknown

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_MALFORMED = (OSError, ValueError, TypeError, AttributeError, KeyError)
"""Errors that the client library raises for a file of another form."""


def connect(kubeconfig: Path | None, context: str | None) -> tuple[ApiClient, str]:
    """Return a client, and where its settings are from.

    Args:
        kubeconfig: a file; without it those of ``KUBECONFIG``, or ``~/.kube/config``. In a pod that has none, the
            pod's own service account is taken.
        context: a context of the kubeconfig; its current one without it.

    Raises:
        Unknown: there are no settings, or they cannot be used.
    """
    named = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [path for path in (Path(one).expanduser() for one in named.split(os.pathsep) if one) if path.is_file()]
    settings = Configuration()
    settings.retries = False
    if not files and not kubeconfig and os.environ.get(_IN_CLUSTER):
        try:
            kubernetes_config.load_incluster_config(settings)
        except (kubernetes_config.ConfigException, OSError) as error:
            fix = "Give the pod a service account with automountServiceAccountToken: true, or name a --kubeconfig"
            raise Unknown(f"this pod's service account: {error}", fix) from None
        return ApiClient(settings), "this pod's service account"
    if not files:
        raise Unknown(
            f"{named}: no such file" if kubeconfig else f"{named}: no kubeconfig here, and this is no pod of a cluster",
            "Name one with --kubeconfig or KUBECONFIG, or let your cloud write it, as `aws eks update-kubeconfig` does",
        )
    where = os.pathsep.join(map(str, files))
    try:
        contexts, current = _contexts(files)
    except (yaml.YAMLError, *_MALFORMED) as error:
        raise Unknown(
            f"{where}: cannot be read: {error}", "Let your cloud or kubectl write the kubeconfig again"
        ) from None
    wanted = context or current
    if wanted not in contexts:
        known = f"there are {', '.join(contexts)}" if contexts else "there are none"
        raise Unknown(
            f"{where}: no context {wanted!r}; {known}" if wanted else f"{where}: no current context; {known}",
            "Name one of these with --context" if contexts else "Name another file with --kubeconfig",
        )
    with _logged() as errors:
        try:
            kubernetes_config.load_kube_config(where, wanted, settings)
        except (kubernetes_config.ConfigException, *_MALFORMED) as error:
            errors.append(str(error))
    if errors:
        raise Unknown(
            f"{where}, context {wanted}: {' '.join('; '.join(errors).split())}",
            "Correct what it names; a program that brings credentials must be installed and logged in",
        )
    return ApiClient(settings), f"{where}, context {wanted}"


def _contexts(files: list[Path]) -> tuple[list[str], str | None]:
    """Return the names of contexts and the current one, of several files together as kubectl takes them."""
    names: list[str] = []
    current = None
    for file in files:
        content = yaml.safe_load(file.read_text())
        if not isinstance(content, dict):
            raise ValueError("it holds no settings")
        names += [
            str(one["name"]) for one in content.get("contexts") or [] if isinstance(one, dict) and one.get("name")
        ]
        current = current or content.get("current-context")
    return list(dict.fromkeys(names)), current


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Collect errors that the client library only logs, to go on without credentials."""
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
