"""What is asked of the API server, and its answers as typed records: GET requests, and reviews of permissions alone."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import urllib3
from kubernetes.client import (
    ApiClient,
    ApiException,
    AuthorizationV1Api,
    CoreV1Api,
    CustomObjectsApi,
    SchedulingV1Api,
    VersionApi,
)

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
_ROLE = "k8s/components/preflight"
_ANONYMOUS = "system:anonymous"
T = TypeVar("T")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Permission:
    """Something that this user must be allowed to do."""

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
    def unknown(self) -> Unknown:
        """What is not known without it."""
        return Unknown(f"may not {self}", f"Ask for the permission to {self}: {_ROLE} has it")


class Unauthenticated(Unknown):
    """The API server does not know who asks."""


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


class _Untold(Exception):
    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.why)
        self.unknown = unknown


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
        self._client, self._core = client, CoreV1Api(client)
        self._patience, self._until = patience, time.monotonic() + patience.all

    def version(self) -> Version | Unknown:
        """Of the server."""
        return self._told(lambda: self._one(Version, None, VersionApi(self._client).get_code))

    def may(self, permission: Permission) -> bool | Unknown:
        """Whether this user has a permission."""
        attributes = {key: value for key, value in asdict(permission).items() if value}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        review = AuthorizationV1Api(self._client).create_self_subject_access_review
        return self._told(lambda: Review.model_validate(self._ask(None, review, body=body)).allowed)

    def of_namespace(self) -> Namespace | Unknown | None:
        """The namespace of a run's pods."""
        return self._told(lambda: self._maybe(Namespace, "namespace", self._core.read_namespace, self.namespace))

    def secret(self) -> Secret | Unknown | None:
        """The secret, without its values."""
        name, ask = self.needed["secret"].name, self._core.read_namespaced_secret
        return self._told(lambda: self._maybe(Secret, "secret", ask, name, self.namespace))

    def namespaces(self) -> list[Named] | Unknown:
        """All that there are."""
        return self._told(lambda: self._all(Named, "namespaces", self._core.list_namespace))

    def nodes(self) -> list[Node] | Unknown:
        """All of the cluster."""
        return self._told(lambda: self._all(Node, "nodes", self._core.list_node))

    def pods(self) -> list[Pod] | Unknown:
        """All that take room, of all namespaces."""
        running = "status.phase!=Succeeded,status.phase!=Failed"
        ask = self._core.list_pod_for_all_namespaces
        return self._told(lambda: self._all(Pod, "pods", ask, field_selector=running))

    def priority_classes(self) -> list[Named] | Unknown:
        """All of the cluster."""
        ask = SchedulingV1Api(self._client).list_priority_class
        return self._told(lambda: self._all(Named, "priorityclasses", ask))

    def templates(self) -> list[PodTemplate] | Unknown:
        """Pod templates of the namespace."""
        ask = self._core.list_namespaced_pod_template
        return self._told(lambda: self._all(PodTemplate, "podtemplates", ask, self.namespace))

    def service_accounts(self) -> list[Named] | Unknown:
        """Of the namespace."""
        ask = self._core.list_namespaced_service_account
        return self._told(lambda: self._all(Named, "serviceaccounts", ask, self.namespace))

    def quotas(self) -> list[Quota] | Unknown:
        """Of the namespace."""
        ask = self._core.list_namespaced_resource_quota
        return self._told(lambda: self._all(Quota, "resourcequotas", ask, self.namespace))

    def limit_ranges(self) -> list[LimitRange] | Unknown:
        """Of the namespace."""
        ask = self._core.list_namespaced_limit_range
        return self._told(lambda: self._all(LimitRange, "limitranges", ask, self.namespace))

    def resources(self, group: str, version: str) -> frozenset[str] | Unknown | None:
        """Names of the resources of an API, which every user may ask for; None when there is no such API."""
        ask = CustomObjectsApi(self._client).get_api_resources
        found = self._told(lambda: self._maybe(Discovery, None, ask, group, version))
        return frozenset(one.name for one in found.resources) if isinstance(found, Discovery) else found

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

    def _all(self, kind: type[R], key: str, ask: Callable[..., Any], *names: str, **query: str) -> list[R]:
        found: list[R] = []
        further: str | None = None
        while True:
            page = Page.model_validate(self._ask(key, ask, *names, limit=_PAGE, _continue=further, **query))
            found += [kind.model_validate(item) for item in page.items or ()]
            further = page.further
            if not further:
                return found

    def _one(self, kind: type[R], key: str | None, ask: Callable[..., Any], *names: str) -> R:
        return kind.model_validate(self._ask(key, ask, *names))

    def _maybe(self, kind: type[R], key: str | None, ask: Callable[..., Any], *names: str) -> R | None:
        try:
            return self._one(kind, key, ask, *names)
        except _Missing:
            return None

    def _ask(self, key: str | None, ask: Callable[..., Any], *names: Any, **query: Any) -> Any:
        seconds = min(self._patience.request, self._until - time.monotonic())
        if seconds <= 0:
            took = f"{self.host}: its answers took more than {self._patience.all:g} s together"
            raise _Untold(Unknown(took, "Look for what slows the API server down; a slow server: --timeout"))
        try:
            answer = ask(*names, **query, _preload_content=False, _request_timeout=seconds)
            return json.loads(answer.data)
        except ApiException as error:
            raise self._refused(error, key) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _Untold(unreachable(error, self.host, seconds)) from None

    def _refused(self, error: ApiException, key: str | None) -> Exception:
        if error.status == 404:
            return _Missing()
        if error.status == 401:
            return _Untold(
                Unauthenticated(
                    f"{self.host}: the credentials are not accepted (401)",
                    "Log in to the cluster again, as `kubectl get pods` would ask for",
                )
            )
        if error.status == 403 and _ANONYMOUS in (error.body or ""):
            return _Untold(
                Unauthenticated(
                    f"{self.host}: no credentials were given, and {_ANONYMOUS} may do nothing (403)",
                    "Name a user with credentials in the kubeconfig's context",
                )
            )
        if error.status == 403 and key:
            return _Untold(self.needed[key].unknown)
        if not error.status:
            return _Untold(unreachable(error, self.host, self._patience.request))
        return _Untold(
            Unknown(f"{self.host}: it answers {error.status} {error.reason}", "Try again; then look at the API server")
        )


class _Missing(Exception):
    """There is no such object."""
