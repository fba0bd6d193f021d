"""An API server that holds objects, and allows what roles allow: as Kubernetes does, for reading."""

import datetime
import ipaddress
import json
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.preflight.http_server import Answer, Asked, HttpServer

Object = dict[str, Any]
TOKEN = "the-right-token"
SECRET = "s3cr3t-value"
NAMESPACE = "mu-grpo-development"
USER = "researcher"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "namespaces": "Namespace",
    "podtemplates": "PodTemplate",
    "secrets": "Secret",
}


@cache
def certificate() -> tuple[Path, Path]:
    """A certificate for this machine that it signed itself, and its key: kubectl sends no token without TLS."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-apiserver")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=2))
        .add_extension(host, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = Path(tempfile.mkdtemp(prefix="certificate"))
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return paths


class ApiServer(HttpServer):
    """The server of a cluster.

    Args:
        objects: with kind and metadata.
        version: what ``/version`` tells.
        rules: of the user's roles, each with a ``namespace`` or an empty one for all.
    """

    def __init__(self, objects: Iterable[Object], version: Object, rules: Iterable[Object]) -> None:
        super().__init__(certificate())
        self.objects = list(objects)
        self.version = version
        self.rules = list(rules)
        self.apis: dict[str, list[str]] = {}
        """Resources of further APIs, by ``group/version``."""
        self.refused: dict[str, str] = {}
        """What admission says of a pod, by the role that its template's labels name."""
        self.fixed: dict[str, Answer] = {}
        """Answers that are given whatever is asked, by path."""

    def kubeconfig(self, folder: Path, token: str | None = TOKEN, trusted: bool = True) -> Path:
        """A file that points here."""
        user = {"token": token} if token else {}
        cluster = {"certificate-authority": str(certificate()[0])} if trusted else {}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": self.url, **cluster}}],
            "users": [{"name": USER, "user": user}],
            "contexts": [{"name": "right", "context": {"cluster": "here", "user": USER}}],
            "current-context": "right",
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    def find(self, kind: str, name: str) -> Object:
        """An object, to be changed by a test."""
        return next(one for one in self.objects if one["kind"] == kind and one["metadata"]["name"] == name)

    def all(self, kind: str) -> list[Object]:
        """Objects of a kind, to be changed by a test."""
        return [one for one in self.objects if one["kind"] == kind]

    def remove(self, kind: str, name: str) -> None:
        self.objects.remove(self.find(kind, name))

    def forbid(self, resource: str) -> None:
        """Takes a resource out of all rules."""
        for one in self.rules:
            one["resources"] = [kept for kept in one["resources"] if kept != resource]

    def answer(self, asked: Asked) -> Answer:
        if asked.path in self.fixed:
            return self.fixed[asked.path]
        token = asked.headers.get("Authorization", "").partition(" ")[2]
        if token not in ("", TOKEN):
            return _status(401, "Unauthorized", "Unauthorized")
        if asked.path == "/version":
            return Answer(body=self.version)
        if not token:
            return _status(403, "Forbidden", f'{asked.path} is forbidden: User "system:anonymous" cannot do that')
        if asked.method == "POST" and asked.path == _REVIEWS:
            attributes = asked.body["spec"]["resourceAttributes"]
            allowed = self._allowed(**{"group": "", "namespace": "", "name": "", **attributes})
            return Answer(201, {**asked.body, "status": {"allowed": allowed}})
        if asked.method == "POST" and asked.path == f"/api/v1/namespaces/{NAMESPACE}/pods":
            assert asked.query["dryRun"] == "All"
            if not self._allowed("create", "pods", "", NAMESPACE, ""):
                return _status(403, "Forbidden", f'pods is forbidden: User "{USER}" cannot create resource "pods"')
            message = self.refused.get(asked.body["metadata"]["labels"]["mu-grpo/role"])
            forbidden = f'pods "preflight-x2f5p" is forbidden: {message}'
            return _status(403, "Forbidden", forbidden) if message else Answer(201, asked.body)
        if asked.method != "GET":
            return _status(405, "MethodNotAllowed", "this server is read")
        return self._discovery(asked.path) or self._objects(asked)

    def _discovery(self, path: str) -> Answer | None:
        if not path.startswith("/apis/") or path.count("/") != 3:
            return None
        resources = self.apis.get(path.removeprefix("/apis/"))
        if resources is None:
            return _status(404, "NotFound", "the server could not find the requested resource")
        return Answer(body={"kind": "APIResourceList", "resources": [{"name": name} for name in resources]})

    def _objects(self, asked: Asked) -> Answer:
        parts, namespace = asked.path.removeprefix("/api/v1/").split("/"), ""
        if len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource, name = parts[0], (parts[1:] or [""])[0]
        verb = "get" if name else "list"
        if not self._allowed(verb, resource, "", namespace, name):
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
        for condition in asked.query.get("fieldSelector", "").split(","):
            field, _, value = condition.partition("!=")
            if field == "status.phase":
                found = [one for one in found if one["status"]["phase"] != value]
        # As in Kubernetes, objects inside a list do not name their kind.
        items = [{key: value for key, value in one.items() if key != "kind"} for one in found]
        return Answer(body={"kind": "List", "metadata": {"resourceVersion": "918273"}, "items": items})

    def _allowed(self, verb: str, resource: str, group: str, namespace: str, name: str) -> bool:
        return any(
            verb in one["verbs"]
            and resource in one["resources"]
            and group in one["apiGroups"]
            and one["namespace"] in ("", namespace)
            and (not one.get("resourceNames") or name in one["resourceNames"])
            for one in self.rules
        )


def _status(code: int, reason: str, message: str) -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return Answer(code, {**body, "code": code})


def recorded(name: str) -> Object:
    """Nodes, pods and the version of a cluster."""
    found: Object = json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text())
    return found
