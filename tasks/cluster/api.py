"""Questions to an API server about one namespace: reads, reviews of permissions, and dry runs; nothing is changed."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import urllib3

# The package's API classes load models of everything for seconds, and only wrap these.
from kubernetes.client.api_client import ApiClient
from kubernetes.client.exceptions import ApiException

from tasks.cluster.findings import Patience, Unknown, unreachable

Object = dict[str, Any]
"""An object of Kubernetes, as JSON."""
_PAGE = 500
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ANONYMOUS = "system:anonymous"


@dataclass(frozen=True)
class Permission:
    """Something that this user must be allowed to do."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        named = f"{self.resource}/{self.name}" if self.name else self.resource
        return f"{self.verb} {named}" + (f" in {self.namespace}" if self.namespace else "")

    @property
    def path(self) -> str:
        """Path of the object or of the list."""
        inside = ["namespaces", self.namespace] if self.namespace else []
        parts = ["api", "v1", *inside, self.resource, *([self.name] if self.name else [])]
        return "".join(f"/{quote(part, safe='')}" for part in parts)


def needed(namespace: str, secret: str) -> dict[str, Permission]:
    """Return every permission that a preflight uses; the role of k8s/components/preflight grants them."""
    return {
        "namespaces": Permission("list", "namespaces"),
        "nodes": Permission("list", "nodes"),
        "pods": Permission("list", "pods"),
        "podtemplates": Permission("list", "podtemplates", namespace),
        "secret": Permission("get", "secrets", namespace, secret),
        "dry run": Permission("create", "pods", namespace),
    }


class Refused(Exception):
    """The API server does not take an object; the message is its own."""


class NotFound(Exception):
    """The API server does not have an object."""


class Api:
    """An API server that is asked about one namespace. Every question raises ``Unknown`` if it has no answer.

    Args:
        client: the client of the server.
        namespace: the namespace of a run's pods.
        secret: the name of the secret that tasks take keys from.
        patience: how long answers are waited for.
    """

    def __init__(self, client: ApiClient, namespace: str, secret: str, patience: Patience) -> None:
        self.host = str(client.configuration.host)
        self.namespace, self.needed = namespace, needed(namespace, secret)
        self._client, self._patience = client, patience
        self._until = time.monotonic() + patience.all
        self._lists: dict[str, list[Object] | Unknown] = {}

    def version(self) -> str:
        """Return the version of the server, such as ``v1.34.4``."""
        found = self._ask("GET", "/version").get("gitVersion")
        if not isinstance(found, str) or not found.startswith("v"):
            raise self._strange()
        return found

    def allowed(self, what: str) -> bool:
        """Return whether this user has a permission of ``needed``."""
        attributes = {key: value for key, value in asdict(self.needed[what]).items() if value}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = self._ask("POST", _REVIEWS, body={**review, "spec": {"resourceAttributes": attributes}})
        return bool(answer["status"]["allowed"])

    def objects(self, what: str, **query: str) -> list[Object]:
        """Return all objects of a list of ``needed``, which is read once."""
        if what not in self._lists:
            try:
                self._lists[what] = self._read(self.needed[what], query)
            except Unknown as error:
                self._lists[what] = error
        found = self._lists[what]
        if isinstance(found, Unknown):
            raise found
        return found

    def secret_keys(self) -> set[str] | None:
        """Return the keys of the secret, or None without the secret. Its values are dropped."""
        try:
            values = self._ask("GET", self.needed["secret"].path, self.needed["secret"]).get("data") or {}
        except NotFound:
            return None
        if not isinstance(values, dict):
            raise self._strange()
        return set(values)

    def serves(self, group_version: str, resource: str) -> bool:
        """Return whether the server has a resource of an API such as ``kubeflow.org/v1``."""
        try:
            found = self._ask("GET", f"/apis/{group_version}")["resources"]
        except NotFound:
            return False
        return resource in {one["name"] for one in found}

    def dry_run(self, pod: Object) -> None:
        """Ask whether a pod would be taken, by all of the server's admission; it is not made.

        Raises:
            Refused: it would not.
        """
        permission = self.needed["dry run"]
        try:
            self._ask("POST", permission.path, permission, {"dryRun": "All"}, pod)
        except NotFound:
            raise Refused(f"there is no namespace {self.namespace}") from None

    def _read(self, permission: Permission, query: Mapping[str, str]) -> list[Object]:
        found: list[Object] = []
        further = ""
        while True:
            limits = {"limit": str(_PAGE), **query} | ({"continue": further} if further else {})
            page = self._ask("GET", permission.path, permission, limits)
            try:
                found += [{**one, "name": one["metadata"]["name"]} for one in page["items"] or ()]
                further = page["metadata"].get("continue", "")
            except (KeyError, TypeError):
                raise self._strange() from None
            if not further:
                return found

    def _ask(
        self,
        method: str,
        path: str,
        permission: Permission | None = None,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> Object:
        seconds = min(self._patience.request, self._until - time.monotonic())
        if seconds <= 0:
            took = f"{self.host}: its answers took more than {self._patience.all:g} s together"
            raise Unknown(took, "Find out what slows the API server down; for a slow server: --timeout")
        request = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=seconds)
            content: bytes = answer.read()
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise unreachable(error, self.host, seconds) from None
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if 200 <= answer.status < 300 and isinstance(found, dict):
            return found
        raise self._failure(answer.status, str(answer.reason), found, permission)

    def _failure(self, status: int, reason: str, found: Any, permission: Permission | None) -> Exception:
        message = str(found.get("message", "")) if isinstance(found, dict) else ""
        if 200 <= status < 300 or (status == 404 and not message):
            return self._strange()
        if status == 404:
            return NotFound(message)
        if status == 401:
            fix = "Log in to the cluster again, as `kubectl get pods` would ask for"
            return Unknown(f"{self.host}: the credentials are not accepted (401)", fix)
        if status == 403 and _ANONYMOUS in message:
            why = f"{self.host}: no credentials were given, and {_ANONYMOUS} may do nothing (403)"
            return Unknown(why, "Name a user with credentials in the kubeconfig's context")
        if status == 403 and permission and f"cannot {permission.verb} resource" in message:
            fix = f"Ask for the permission to {permission}: k8s/components/preflight has it"
            return Unknown(f"may not {permission}", fix)
        if status in (400, 403, 422) and permission and permission.verb == "create":
            # Without the generated name of a pod that nobody knows.
            return Refused(message.partition(" is forbidden: ")[2] or message.partition(" is invalid: ")[2] or message)
        return Unknown(f"{self.host}: it answers {status} {reason}", "Try again; then look at the API server")

    def _strange(self) -> Unknown:
        # What the answer holds may be a secret, and is not shown.
        fix = "Check that the address is an API server's, not a proxy's or a login page's"
        return Unknown(f"{self.host}: an answer that is none of Kubernetes'", fix)
