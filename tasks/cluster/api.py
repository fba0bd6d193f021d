"""Questions to an API server about one namespace, through ``kubectl proxy``; nothing is changed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any, Literal, NamedTuple, Self

State = Literal["ok", "warning", "failed", "not tried"]
Result = tuple[State, str, str]
"""The state, what is found, and the fix."""
Object = dict[str, Any]
"""An object of Kubernetes, as JSON."""
_LOGIN = (
    "Try `kubectl version`. Name a kubeconfig and its context with --kubeconfig and --context, log in again, or check "
    "the network or VPN from this machine; a slow server: --timeout"
)
STRANGE = (
    "an answer that is none of Kubernetes'",
    "Check that the address is an API server's, not a proxy's or a login page's",
)
"""The finding and the fix for a server that is not Kubernetes. Its answer is not shown: it may hold a secret."""
_REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
_REFUSED = re.compile(r'^the API server answers \w+: (?:pods? "\S+" is (?:forbidden|invalid): )?')
"""The beginning of a refusal, with the generated name of a pod that nobody knows."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    state: State
    found: str
    fix: str = ""


class Unknown(Exception):
    """A question to a server has no answer; ``fix`` would bring one, ``reason`` is the API server's word for it."""

    def __init__(self, why: str, fix: str = "", reason: str = "") -> None:
        super().__init__(why)
        self.why, self.fix, self.reason = why, fix, reason


def run_check(name: str, check: Callable[[], Result], unknown: State = "not tried") -> Finding:
    """Return what a check finds, or a finding with the state ``unknown`` if something that it needs is not known."""
    try:
        return Finding(name, *check())
    except Unknown as error:
        return Finding(name, unknown, error.why, error.fix)


class Permission(NamedTuple):
    """Something that this user must be allowed to do."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        named = f"{self.resource}/{self.name}" if self.name else self.resource
        return f"{self.verb} {named}" + (f" in {self.namespace}" if self.namespace else "")


def required_permissions(namespace: str, secret: str) -> dict[str, Permission]:
    """Return every permission that a preflight uses; the role of k8s/components/preflight grants them."""
    return {
        "namespaces": Permission("list", "namespaces"),
        "nodes": Permission("list", "nodes"),
        "pods": Permission("list", "pods"),
        "podtemplates": Permission("list", "podtemplates", namespace),
        "secret": Permission("get", "secrets", namespace, secret),
        "dry run": Permission("create", "pods", namespace),
    }


class Api:
    """An API server that is asked about the namespace of a run's pods, and the secret that they take keys from.

    Every question raises ``Unknown`` if it has no answer within some seconds.
    """

    def __init__(self, kubectl: list[str], place: str, namespace: str, secret: str, seconds: float) -> None:
        self.namespace, self.required = namespace, required_permissions(namespace, secret)
        self.denied: list[str] = []
        self._kubectl, self._socket, self._seconds = kubectl, place, seconds

    @classmethod
    @contextmanager
    def open(cls, options: list[str], namespace: str, secret: str, seconds: float) -> Iterator[Self]:
        """Yield the server that kubectl finds, trusts and logs in to by its own settings and these options.

        Its proxy listens on a socket that this user alone can open.
        """
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        program = shutil.which("kubectl", path=path)
        if program is None:
            raise Unknown("there is no kubectl here", "Install it: https://kubernetes.io/docs/tasks/tools")
        kubectl = [program, *options]
        output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with tempfile.TemporaryDirectory() as folder:
            command, line = [*kubectl, "proxy", f"--unix-socket={folder}/proxy"], ""
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, **output) as proxy:
                try:
                    for line in proxy.stdout or ():
                        if line.startswith("Starting to serve"):
                            yield cls(kubectl, f"{folder}/proxy", namespace, secret, seconds)
                            return
                finally:
                    proxy.kill()
            raise Unknown(line.strip() or "kubectl proxy failed", _LOGIN)

    def address(self) -> str:
        """Return the server's address in the kubeconfig; inside a pod there is none."""
        command = [*self._kubectl, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]
        return subprocess.run(command, capture_output=True, text=True).stdout or "the cluster of this pod"

    def review(self) -> list[str]:
        """Return which permissions of ``required`` this user lacks; what needs them is not asked from then on."""
        for what, permission in self.required.items():
            review = {**_REVIEW, "spec": {"resourceAttributes": permission._asdict()}}
            if not self.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"]:
                self.denied.append(what)
        return self.denied

    def read(self, what: str) -> Object:
        """Return an object or a list of ``required``; of pods those that have not ended. Empty: there is none."""
        running = "?fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed" if what == "pods" else ""
        return self.ask(self._path(what) + running)

    def refusal(self, pod: Object) -> str:
        """Return why the server's admission would not take a pod, which is not made; empty if it would take it."""
        try:
            self.ask(f"{self._path('dry run')}?dryRun=All", pod)
        except Unknown as error:
            if not error.reason:
                raise
            return _REFUSED.sub("", error.why)
        return ""

    def ask(self, path: str, body: Object | None = None) -> Object:
        """Return the answer to a GET, or with a body to a POST; what is not found is empty."""
        connection = _UnixConnection(self._socket, timeout=self._seconds)
        method, content = ("GET", None) if body is None else ("POST", json.dumps(body))
        try:
            connection.request(method, path, content, {"Host": "localhost", "Content-Type": "application/json"})
            answer = connection.getresponse()
            text, plain = answer.read(), answer.getheader("Content-Type", "").startswith("text/plain")
        except TimeoutError:
            raise Unknown(f"no answer within {self._seconds:g} s", "A slow server: --timeout") from None
        except (OSError, HTTPException) as error:
            raise Unknown(f"kubectl proxy: {error}", _LOGIN) from None
        finally:
            connection.close()
        if answer.status >= 500 and plain:  # from kubectl, which did not reach the server
            raise Unknown(text.decode(errors="replace").strip(), _LOGIN)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unknown(*STRANGE)
        if answer.status == 404 and body is None:
            return {}
        if answer.status >= 300:
            reason = str(found.get("reason"))
            raise Unknown(f"the API server answers {reason}: {found.get('message')}", _LOGIN, reason)
        return found

    def _path(self, what: str) -> str:
        permission = self.required[what]
        if what in self.denied:
            fix = f"Ask for the permission to {permission}: k8s/components/preflight has it"
            raise Unknown(f"may not {permission}", fix)
        inside = f"namespaces/{permission.namespace}/" if permission.namespace else ""
        return f"/api/v1/{inside}{permission.resource}" + (f"/{permission.name}" if permission.name else "")


class _UnixConnection(HTTPConnection):
    """A connection to a socket in the file system, whose path stands in the place of the host's name."""

    def connect(self) -> None:
        self.sock = socket(AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)
