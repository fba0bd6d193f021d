"""Client that creates, changes, deletes and reads objects on a real API server."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import requests

from tests.cluster.control_plane import ControlPlane
from tests.preflight.api_server import Object
from tests.waiting import until

_GROUPS = {
    "PriorityClass": "scheduling.k8s.io/v1",
    "Deployment": "apps/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "SubjectAccessReview": "authorization.k8s.io/v1",
    **dict.fromkeys(("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"), "rbac.authorization.k8s.io/v1"),
}
"""API groups and versions of kinds that are not in the core."""
_WITH_STATUS = ("Node", "Pod")
"""Kinds whose status comes with the object, because no kubelet runs."""
_CONFLICT = 409


class Api:
    """Requests of the administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        self._url, self._session = plane.url, plane.session()

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        answer = self._session.get(self._path(kind, namespace, name))
        return None if answer.status_code == 404 else _content(answer)

    def create(self, one: Object) -> requests.Response:
        """Create an object, and return the answer, which may be a refusal."""
        content = {"apiVersion": _GROUPS.get(one["kind"], "v1"), **_without_status(one)}
        return self._session.post(self._path(one["kind"], _namespace(one)), json=content)

    def put(self, one: Object) -> None:
        """Create an object, or replace it if it exists; a pod is deleted and created again."""
        kind, name, namespace = one["kind"], one["metadata"]["name"], _namespace(one)
        if kind == "Pod" and self.get(kind, name, namespace):
            self.delete(one)
        if self.get(kind, name, namespace) is None:
            _content(self.create(one))
        if kind != "Pod":  # The server adds a taint to a new node without a kubelet.
            self._replace(kind, name, namespace, "", _without_status(one))
        if kind in _WITH_STATUS and "status" in one:
            self._replace(kind, name, namespace, "/status", {"status": one["status"]})

    def _replace(self, kind: str, name: str, namespace: str, part: str, wanted: Object) -> None:
        """Replace fields of an object, and try again if a controller changed it meanwhile."""
        path = self._path(kind, namespace, name)

        def taken() -> bool:
            found = _content(self._session.get(path))
            metadata = {**found["metadata"], **wanted.get("metadata", {})}
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            whole = found if part else {"apiVersion": found["apiVersion"]}
            answer = self._session.put(path + part, json={**whole, **wanted, "metadata": metadata | version})
            assert answer.ok or answer.status_code == _CONFLICT, answer.text
            return answer.ok

        until(taken)

    def delete(self, one: Object) -> None:
        """Delete an object without a grace period, and wait until it is gone."""
        path = self._path(one["kind"], _namespace(one), one["metadata"]["name"])
        answer = self._session.delete(path, params={"gracePeriodSeconds": "0"})
        assert answer.ok or answer.status_code == 404, answer.text
        until(lambda: self._session.get(path).status_code == 404)

    @contextmanager
    def changed(self, before: Sequence[Object], after: Sequence[Object]) -> Iterator[None]:
        """Put a cluster into another state during a block, and back into the state before."""
        self._turn(before, after)
        try:
            yield
        finally:
            self._turn(after, before)

    def _turn(self, before: Sequence[Object], after: Sequence[Object]) -> None:
        old, new = ({_key(one): one for one in state} for state in (before, after))
        for key in old.keys() - new.keys():
            self.delete(old[key])
        for key, one in new.items():
            if old.get(key) != one:
                self.put(one)

    def _path(self, kind: str, namespace: str, name: str = "") -> str:
        prefix, resource = f"apis/{_GROUPS[kind]}" if kind in _GROUPS else "api/v1", kind.lower()
        plural = f"{resource[:-1]}ies" if resource.endswith("y") else resource + ("es" if resource[-1] == "s" else "s")
        inside = f"namespaces/{namespace}/" if namespace else ""
        return f"{self._url}/{prefix}/{inside}{plural}" + (f"/{name}" if name else "")


def _namespace(one: Object) -> str:
    return str(one["metadata"].get("namespace", ""))


def _key(one: Object) -> tuple[str, str, str]:
    return one["kind"], _namespace(one), one["metadata"]["name"]


def _without_status(one: Object) -> Object:
    return {name: value for name, value in one.items() if name != "status"}


def _content(answer: requests.Response) -> Object:
    assert answer.ok, answer.text
    found: Object = answer.json()
    return found
