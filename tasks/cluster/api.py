"""Questions to an API server about one namespace, asked by kubectl with its settings; nothing is changed."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

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
_RUNNING = "?" + urlencode({"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"})
_FROM_SERVER = re.compile(r"Error from server \((\w+)\): (.*)")
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


def checked(name: str, check: Callable[[], Result], unknown: State = "not tried") -> Finding:
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


class Api:
    """An API server that is asked about the namespace of a run's pods, and the secret that they take keys from.

    Every question raises ``Unknown`` if it has no answer within some seconds. Options are kubectl's.
    """

    def __init__(self, options: list[str], namespace: str, secret: str, seconds: float) -> None:
        self.namespace, self.needed, self.denied = namespace, needed(namespace, secret), list[str]()
        self._options, self._seconds = [*options, f"--request-timeout={seconds:g}s"], seconds

    def review(self) -> list[str]:
        """Return which permissions of ``needed`` this user lacks; what needs them is not asked from then on."""
        for what, permission in self.needed.items():
            asked = {**_REVIEW, "spec": {"resourceAttributes": permission._asdict()}}
            if not self.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)["status"]["allowed"]:
                self.denied.append(what)
        return self.denied

    def read(self, what: str) -> Object:
        """Return an object or a list of ``needed``; of pods those that have not ended. Empty: there is none."""
        return self.ask(self._path(what) + (_RUNNING if what == "pods" else ""))

    def refusal(self, pod: Object) -> str:
        """Return why the server's admission would not take a pod, which is not made; empty if it would take it."""
        path = f"{self._path('dry run')}?dryRun=All"
        try:
            self.ask(path, pod)
        except Unknown as error:
            if not error.reason:
                raise
            return _REFUSED.sub("", error.why)
        return ""

    def ask(self, path: str, body: Object | None = None) -> Object:
        """Return the answer to a GET, or with a body to a POST; what is not found is empty."""
        try:
            answer = self.kubectl(*(["get"] if body is None else ["create", "-f", "-"]), "--raw", path, given=body)
            found = json.loads(answer)
        except Unknown as error:
            if error.reason != "NotFound" or body is not None:
                raise
            return {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unknown(*STRANGE)
        return found

    def kubectl(self, *arguments: str, given: Object | None = None) -> str:
        """Return what kubectl prints."""
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        program = shutil.which("kubectl", path=places)
        if program is None:
            raise Unknown("there is no kubectl here", "Install it: https://kubernetes.io/docs/tasks/tools")
        command, text = [program, *self._options, *arguments], "" if given is None else json.dumps(given)
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=3 * self._seconds)
        except subprocess.TimeoutExpired:
            raise Unknown(f"no answer within {3 * self._seconds:g} s", "A slow server: --timeout") from None
        if done.returncode == 0:
            return done.stdout
        message = (done.stderr.strip().splitlines() or ["kubectl failed"])[-1]
        if found := _FROM_SERVER.search(message):
            raise Unknown(f"the API server answers {found[1]}: {found[2]}", _LOGIN, found[1])
        raise Unknown(message, _LOGIN)

    def _path(self, what: str) -> str:
        permission = self.needed[what]
        if what in self.denied:
            fix = f"Ask for the permission to {permission}: k8s/components/preflight has it"
            raise Unknown(f"may not {permission}", fix)
        inside = f"namespaces/{permission.namespace}/" if permission.namespace else ""
        return f"/api/v1/{inside}{permission.resource}" + (f"/{permission.name}" if permission.name else "")
