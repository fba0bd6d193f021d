"""A simulated API server that serves objects, reviews permissions by roles, and judges dry runs of pods."""

import copy
import re
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from werkzeug import Request
from werkzeug.serving import make_ssl_devcert

from tests.preflight.services import Answer, HttpServer

Object = dict[str, Any]
TOKEN = "the-right-token"
SECRET = "s3cr3t-value"
NAMESPACE = "mu-grpo-development"
USER = "researcher"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_KINDS = {f"{kind.lower()}s": kind for kind in ("Node", "Pod", "Namespace", "PodTemplate", "Secret")}
_HOST = "kube-apiserver"


@cache
def certificate() -> tuple[str, str]:
    """Return a self-signed certificate and its key; kubectl sends no token without TLS."""
    return make_ssl_devcert(f"{tempfile.mkdtemp(prefix='certificate')}/server", cn=_HOST)


def write_kubeconfig(path: Path, cluster: Object, user: str, token: str | None) -> Path:
    """Write a kubeconfig for a cluster, for a user with a token or without credentials."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token} if token else {"username": "nobody"}}],
        "contexts": [{"name": "right", "context": {"cluster": "here", "user": user}}],
        "current-context": "right",
    }
    path.write_text(yaml.safe_dump(content))
    return path


class Objects:
    """The objects of a cluster, which tests change."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self.objects = copy.deepcopy(list(objects))

    def all(self, kind: str) -> list[Object]:
        return [one for one in self.objects if one["kind"] == kind]

    def find(self, kind: str, name: str) -> Object:
        return next(one for one in self.all(kind) if one["metadata"]["name"] == name)

    def remove(self, kind: str, name: str) -> None:
        self.objects.remove(self.find(kind, name))


class ApiServer(Objects, HttpServer):
    """The simulated API server of a cluster; every rule of the user has a ``namespace``, an empty one for all."""

    def __init__(self, objects: Iterable[Object], version: Object, rules: Iterable[Object]) -> None:
        Objects.__init__(self, objects)
        HttpServer.__init__(self, certificate())
        self.version = version
        self.rules = list(rules)
        self.apis: dict[str, list[str]] = {}
        """Resources of other APIs, by ``group/version``."""
        self.refused: dict[str, str] = {}
        """Messages with which admission refuses a pod, by the role in its labels."""

    def kubeconfig(self, folder: Path, token: str | None = TOKEN, trusted: bool = True) -> Path:
        trust = {"certificate-authority": certificate()[0]} if trusted else {}
        cluster = {"server": self.url, "tls-server-name": _HOST, **trust}
        return write_kubeconfig(folder / "kubeconfig", cluster, USER, token)

    def answer(self, asked: Request) -> Answer:
        scheme, _, token = asked.headers.get("Authorization", "").partition(" ")
        token = token if scheme == "Bearer" else ""  # Kubernetes accepts no passwords.
        if token not in ("", TOKEN):
            return _status(401, "Unauthorized", "Unauthorized")
        if asked.path == "/version":
            return Answer(body=self.version)
        if not token:
            return _status(403, "Forbidden", f'{asked.path} is forbidden: User "system:anonymous" cannot do that')
        if asked.method == "POST":
            return self._reviewed(asked, asked.get_json(force=True))
        if not asked.path.startswith("/apis/"):
            return self._objects(asked)
        resources = self.apis.get(asked.path.removeprefix("/apis/"))
        if resources is None:
            return _status(404, "NotFound", "the server could not find the requested resource")
        return Answer(body={"kind": "APIResourceList", "resources": [{"name": name} for name in resources]})

    def _reviewed(self, asked: Request, given: Object) -> Answer:
        """Answer an access review or a dry run of a pod, without storing anything."""
        if asked.path == _REVIEWS:
            return Answer(201, {**given, "status": {"allowed": self._allowed(**given["spec"]["resourceAttributes"])}})
        assert (asked.path, asked.args["dryRun"]) == (f"/api/v1/namespaces/{NAMESPACE}/pods", "All")
        if not self._allowed("create", "pods", NAMESPACE):
            return _status(403, "Forbidden", f'pods is forbidden: User "{USER}" cannot create resource "pods"')
        message = self.refused.get(given["metadata"]["labels"]["mu-grpo/role"])
        forbidden = f'pods "preflight-x2f5p" is forbidden: {message}'
        return _status(403, "Forbidden", forbidden) if message else Answer(201, given)

    def _objects(self, asked: Request) -> Answer:
        path = asked.path.removeprefix("/api/v1/")
        namespace, inside = re.fullmatch(r"(?:namespaces/([^/]+)/)?(.*)", path).groups("")
        resource, _, name = inside.partition("/")
        verb = "get" if name else "list"
        if not self._allowed(verb, resource, namespace, name):
            text = f'{resource} is forbidden: User "{USER}" cannot {verb} resource "{resource}"'
            return _status(403, "Forbidden", text)
        found = [
            one
            for one in self.all(_KINDS[resource])
            if (not namespace or one["metadata"].get("namespace") == namespace)
            and (not name or one["metadata"]["name"] == name)
        ]
        if name:
            return Answer(body=found[0]) if found else _status(404, "NotFound", f'{resource} "{name}" not found')
        for condition in asked.args.get("fieldSelector", "").split(","):
            field, _, value = condition.partition("!=")
            if field == "status.phase":
                found = [one for one in found if one["status"]["phase"] != value]
        # As in Kubernetes, objects inside a list have no kind.
        items = [{key: value for key, value in one.items() if key != "kind"} for one in found]
        return Answer(body={"kind": "List", "metadata": {"resourceVersion": "918273"}, "items": items})

    def _allowed(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return any(
            verb in one["verbs"]
            and resource in one["resources"]
            and "" in one["apiGroups"]
            and one["namespace"] in ("", namespace)
            and (not one.get("resourceNames") or name in one["resourceNames"])
            for one in self.rules
        )


def _status(code: int, reason: str, message: str) -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return Answer(code, {**body, "code": code})
