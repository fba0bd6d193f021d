"""What is asked of the API server, and its answers as typed records: GET requests, and reviews of permissions alone."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar
from urllib.parse import quote

import urllib3

# The package's API classes load models of everything for seconds, and only wrap these.
from kubernetes.client.api_client import ApiClient
from kubernetes.client.exceptions import ApiException

from tasks.preflight.findings import Unknown
from tasks.preflight.reach import Patience, unreachable
from tasks.preflight.records import (
    Discovery,
    LimitRange,
    Named,
    Namespace,
    Node,
    Page,
    Pod,
    PodTemplate,
    Quota,
    Record,
    Review,
    Secret,
    Version,
)

_PAGE = 500
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ROLE = "k8s/components/preflight"
_ANONYMOUS = "system:anonymous"
_TAKES_ROOM = "status.phase!=Succeeded,status.phase!=Failed"
T = TypeVar("T")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Permission:
    """Something that this user must be allowed to do, and the request that does it."""

    verb: str
    resource: str
    namespace: str = ""
    group: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f"{resource}/{self.name}" if self.name else resource
        return f"{self.verb} {named}" + (f" in {self.namespace}" if self.namespace else "")

    @property
    def path(self) -> str:
        """Of the object, or of the list."""
        parts = ["apis", self.group, "v1"] if self.group else ["api", "v1"]
        parts += ["namespaces", self.namespace] if self.namespace else []
        parts += [self.resource, self.name] if self.name else [self.resource]
        return "".join(f"/{quote(part, safe='')}" for part in parts)

    @property
    def unknown(self) -> Unknown:
        """What is not known without it."""
        return Unknown(f"may not {self}", f"Ask for the permission to {self}: {_ROLE} has it")


class Unauthenticated(Unknown):
    """The API server does not know who asks."""


class _Untold(Exception):
    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.why)
        self.unknown = unknown


class _Missing(Exception):
    """There is no such object."""


def needed(namespace: str, secret: str) -> dict[str, Permission]:
    """Every permission that the questions below need, by what is asked for; the role of the component grants them."""
    inside = ("podtemplates", "serviceaccounts", "resourcequotas", "limitranges")
    return {
        "namespace": Permission("get", "namespaces", name=namespace),
        "namespaces": Permission("list", "namespaces"),
        "nodes": Permission("list", "nodes"),
        "pods": Permission("list", "pods"),
        "priorityclasses": Permission("list", "priorityclasses", group="scheduling.k8s.io"),
        "secret": Permission("get", "secrets", namespace, name=secret),
        **{resource: Permission("list", resource, namespace) for resource in inside},
    }


class Cluster:
    """An API server that is asked about one namespace.

    Every question is answered by what it asks for, by None where an object is not there, or by why there is no answer.

    Args:
        client: of the server.
        namespace: of a run's pods.
        secret: the name of the secret that its tasks take keys from.
        patience: how long is waited for answers.
    """

    def __init__(self, client: ApiClient, namespace: str, secret: str, patience: Patience) -> None:
        self.host = str(client.configuration.host)
        self.namespace, self.needed = namespace, needed(namespace, secret)
        self._client = client
        self._patience, self._until = patience, time.monotonic() + patience.all

    def version(self) -> Version | Unknown:
        """Of the server."""
        return self._told(lambda: Version.model_validate_json(self._ask("/version")))

    def may(self, permission: Permission) -> bool | Unknown:
        """Whether this user has a permission."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in asdict(permission).items() if value}},
        }
        return self._told(lambda: Review.model_validate_json(self._ask(_REVIEWS, body=body)).allowed)

    def of_namespace(self) -> Namespace | Unknown | None:
        """The namespace of a run's pods."""
        return self._get(Namespace, "namespace")

    def secret(self) -> Secret | Unknown | None:
        """The secret, without its values."""
        return self._get(Secret, "secret")

    def namespaces(self) -> list[Named] | Unknown:
        """All that there are."""
        return self._list(Named, "namespaces")

    def nodes(self) -> list[Node] | Unknown:
        """All of the cluster."""
        return self._list(Node, "nodes")

    def pods(self) -> list[Pod] | Unknown:
        """All that take room, of all namespaces."""
        return self._list(Pod, "pods", fieldSelector=_TAKES_ROOM)

    def priority_classes(self) -> list[Named] | Unknown:
        """All of the cluster."""
        return self._list(Named, "priorityclasses")

    def templates(self) -> list[PodTemplate] | Unknown:
        """Pod templates of the namespace."""
        return self._list(PodTemplate, "podtemplates")

    def service_accounts(self) -> list[Named] | Unknown:
        """Of the namespace."""
        return self._list(Named, "serviceaccounts")

    def quotas(self) -> list[Quota] | Unknown:
        """Of the namespace."""
        return self._list(Quota, "resourcequotas")

    def limit_ranges(self) -> list[LimitRange] | Unknown:
        """Of the namespace."""
        return self._list(LimitRange, "limitranges")

    def resources(self, api: str) -> frozenset[str] | Unknown | None:
        """Names of the resources of a ``group/version``, for which every user may ask; None where there is none."""

        def ask() -> frozenset[str] | None:
            try:
                return frozenset(one.name for one in Discovery.model_validate_json(self._ask(f"/apis/{api}")).resources)
            except _Missing:
                return None

        return self._told(ask)

    def _get(self, kind: type[R], key: str) -> R | Unknown | None:
        permission = self.needed[key]

        def ask() -> R | None:
            try:
                return kind.model_validate_json(self._ask(permission.path, permission))
            except _Missing:
                return None

        return self._told(ask)

    def _list(self, kind: type[R], key: str, **query: str) -> list[R] | Unknown:
        permission = self.needed[key]

        def ask() -> list[R]:
            found: list[R] = []
            further = ""
            while True:
                limits = {"limit": str(_PAGE), **query} | ({"continue": further} if further else {})
                page = Page.model_validate_json(self._ask(permission.path, permission, limits))
                found += [kind.model_validate(item) for item in page.items or ()]
                further = page.further
                if not further:
                    return found

        return self._told(ask)

    def _told(self, ask: Callable[[], T]) -> T | Unknown:
        try:
            return ask()
        except _Untold as error:
            return error.unknown
        except (_Missing, ValueError):  # Not JSON, or of another shape; what it holds may be a secret, and is not told.
            return Unknown(
                f"{self.host}: an answer that is none of Kubernetes'",
                "Check that the address is an API server's, not a proxy's or a login page's",
            )

    def _ask(
        self,
        path: str,
        permission: Permission | None = None,
        query: dict[str, str] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> bytes:
        """The content of an answer to GET, or to POST of a body."""
        seconds = min(self._patience.request, self._until - time.monotonic())
        if seconds <= 0:
            took = f"{self.host}: its answers took more than {self._patience.all:g} s together"
            raise _Untold(Unknown(took, "Look for what slows the API server down; a slow server: --timeout"))
        request = self._client.param_serialize(
            "POST" if body else "GET",
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
            raise _Untold(unreachable(error, self.host, seconds)) from None
        if not 200 <= answer.status < 300:
            raise self._refused(answer.status, f"{answer.status} {answer.reason}", content, permission)
        return content

    def _refused(self, status: int, answer: str, content: bytes, permission: Permission | None) -> Exception:
        if status == 404:
            return _Missing()
        if status == 401:
            why = f"{self.host}: the credentials are not accepted (401)"
            return _Untold(Unauthenticated(why, "Log in to the cluster again, as `kubectl get pods` would ask for"))
        if status == 403 and _ANONYMOUS.encode() in content:
            why = f"{self.host}: no credentials were given, and {_ANONYMOUS} may do nothing (403)"
            return _Untold(Unauthenticated(why, "Name a user with credentials in the kubeconfig's context"))
        if status == 403 and permission:
            return _Untold(permission.unknown)
        return _Untold(Unknown(f"{self.host}: it answers {answer}", "Try again; then look at the API server"))
