"""Read-only client of an API server for the checks of one namespace."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from urllib3 import Timeout
from urllib3.exceptions import HTTPError

State = Literal["ok", "warning", "failed", "not tried"]
CheckResult = tuple[State, str, str]
"""State, finding and fix."""
Object = dict[str, Any]
"""An object of Kubernetes, as JSON."""
_LOGIN = (
    "Try `kubectl version`. Name a kubeconfig and its context with --kubeconfig and --context, log in again, or check "
    "the network or VPN from this machine; a slow server: --timeout"
)
STRANGE = (
    "the answer does not come from an API server",
    "Check that the address is an API server's, not a proxy's or a login page's",
)
"""Finding and fix for a server that is not Kubernetes. Its answer is not shown, because it may contain a secret."""
_REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
_REFUSED = re.compile(r'^the API server answers \w+: (?:pods? "\S+" is (?:forbidden|invalid): )?')
"""Prefix of a refusal, with the generated name of the pod, which is removed from messages."""
_BUSY = ("TooManyRequests", "ServiceUnavailable", "ServerTimeout", "Timeout")
"""Reasons of a server that has not looked at the request."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Target:
    """Target cluster of a run.

    Without a kubeconfig and a context, those of the user are used. Without the address of Flyte, Flyte is not checked.
    """

    project: str = "mu-grpo"
    domain: str = "development"
    kubeconfig: Path | None = None
    context: str | None = None
    flyte: str | None = None
    seconds: float = 10.0
    """Longest wait for an answer, in seconds."""

    @property
    def namespace(self) -> str:
        """The namespace in which Flyte starts the run's pods."""
        return f"{self.project}-{self.domain}"


class UnansweredError(Exception):
    """A question to a server has no answer. ``fix`` says how to get one, ``reason`` is that in the server's status."""

    def __init__(self, why: str, fix: str = "", reason: str = "") -> None:
        super().__init__(why)
        self.why, self.fix, self.reason = why, fix, reason


def run_check(name: str, check: Callable[[], CheckResult], unknown: State = "not tried") -> Finding:
    """Return the finding of a check, or a finding with the state ``unknown`` after an ``UnansweredError``."""
    try:
        return Finding(name, *check())
    except UnansweredError as error:
        return Finding(name, unknown, error.why, error.fix)


def root_cause(error: BaseException) -> str:
    """Return the message of the innermost of chained errors, on one line."""
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper
    return " ".join(str(error).split())


def parse_object(answer: Any) -> Object | None:
    """Return the JSON object in an answer of urllib3 or requests; None if it has something else."""
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Permission(NamedTuple):
    """A permission that the user needs."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        named = f"{self.resource}/{self.name}" if self.name else self.resource
        return f"{self.verb} {named}" + (f" in {self.namespace}" if self.namespace else "")


def required_permissions(namespace: str, secret: str) -> dict[str, Permission]:
    """Return the permissions that a preflight needs, by name; the role of k8s/components/preflight grants them."""
    return {
        "namespaces": Permission("list", "namespaces"),
        "nodes": Permission("list", "nodes"),
        "pods": Permission("list", "pods"),
        "podtemplates": Permission("list", "podtemplates", namespace),
        "secret": Permission("get", "secrets", namespace, secret),
        "dry run": Permission("create", "pods", namespace),
    }


class Api:
    """Client of an API server, for the namespace of a run's pods and for their secret.

    Every method raises ``UnansweredError`` if the server does not answer within ``target.seconds``.
    """

    def __init__(self, target: Target, secret: str) -> None:
        """Log in with a kubeconfig as kubectl does, or with the service account in a pod without a kubeconfig."""
        from kubernetes import client, config  # The import takes half a second, and only a preflight needs it.

        self.namespace, self._seconds, self.denied = target.namespace, target.seconds, list[str]()
        self.required = required_permissions(target.namespace, secret)
        configuration = client.Configuration()
        configuration.retries = False
        own = target.kubeconfig or os.environ.get("KUBECONFIG")
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and not (own or target.context)
        file = str(own or "~/.kube/config")
        try:
            if in_pod:
                config.load_incluster_config(configuration)
            else:
                config.load_kube_config(file, target.context, configuration)
        except Exception as error:  # A malformed file can raise any exception.
            raise UnansweredError(f"{'this pod' if in_pod else file}: {error}", _LOGIN) from None
        self._client, self.address = client.ApiClient(configuration), str(configuration.host)

    def review(self) -> list[str]:
        """Return the names in ``required`` of the permissions that the user lacks; ``read`` refuses these."""
        for what, permission in self.required.items():
            review = {**_REVIEW, "spec": {"resourceAttributes": permission._asdict()}}
            if not self.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"]:
                self.denied.append(what)
        return self.denied

    def read(self, what: str) -> Object:
        """Return an object or a list that ``required`` names; empty if it does not exist. Ended pods are left out."""
        running = "?fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed" if what == "pods" else ""
        return self.ask(self._path(what) + running)

    def refusal(self, pod: Object) -> str:
        """Return the reason why the server refuses a pod in a dry run; empty if it admits the pod."""
        try:
            self.ask(f"{self._path('dry run')}?dryRun=All", pod)
        except UnansweredError as error:
            if error.reason in ("", *_BUSY):
                raise
            return _REFUSED.sub("", error.why)
        return ""

    def ask(self, path: str, body: Object | None = None) -> Object:
        """Return the answer to a GET, or to a POST if there is a body; empty if a GET finds nothing."""
        method = "GET" if body is None else "POST"
        _, url, headers, *_ = self._client.param_serialize(method, path, auth_settings=["BearerToken"])
        headers = {name: value.strip() for name, value in headers.items()}  # A file of a token ends with a line break.
        pool, timeout = self._client.rest_client.pool_manager, Timeout(self._seconds)
        try:
            answer = pool.request(method, url, json=body, headers=headers, timeout=timeout)
        except HTTPError as error:
            raise UnansweredError(f"{self.address}: {root_cause(error)}", _LOGIN) from None
        if (found := parse_object(answer)) is None:
            raise UnansweredError(*STRANGE)
        if answer.status == 404 and body is None:
            return {}
        if answer.status >= 300:
            reason = str(found.get("reason"))
            raise UnansweredError(f"the API server answers {reason}: {found.get('message')}", _LOGIN, reason)
        return found

    def _path(self, what: str) -> str:
        permission = self.required[what]
        if what in self.denied:
            fix = f"Ask for the permission to {permission}: k8s/components/preflight has it"
            raise UnansweredError(f"may not {permission}", fix)
        inside = f"namespaces/{permission.namespace}/" if permission.namespace else ""
        return f"/api/v1/{inside}{permission.resource}" + (f"/{permission.name}" if permission.name else "")
