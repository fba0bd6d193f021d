"""Questions to an API server about one namespace, asked by kubectl with its settings; nothing is changed."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tasks.cluster.findings import Unknown

Object = dict[str, Any]
"""An object of Kubernetes, as JSON."""
_LOGIN = (
    "Try `kubectl version`. Name a kubeconfig and its context with --kubeconfig and --context, log in again, or check "
    "the network or VPN from this machine; a slow server: --timeout"
)
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RUNNING = "?" + urlencode({"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"})
_FROM_SERVER = re.compile(r"Error from server \((\w+)\): (.*)")
_GENERATED = re.compile(r'^pods? "\S+" is (?:forbidden|invalid): ')
"""The beginning of a refusal, with the generated name of a pod that nobody knows."""


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
        inside = f"namespaces/{self.namespace}/" if self.namespace else ""
        return f"/api/v1/{inside}{self.resource}" + (f"/{self.name}" if self.name else "")


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


class ServerError(Unknown):
    """The API server answered with an error.

    Args:
        reason: a word such as ``NotFound``.
        message: the server's own.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"the API server answers {reason}: {message}", _LOGIN)
        self.reason, self.message = reason, message


class Api:
    """An API server that is asked about one namespace. Every question raises ``Unknown`` if it has no answer.

    Args:
        options: of kubectl, such as ``--context=...``.
        namespace: the namespace of a run's pods.
        secret: the name of the secret that tasks take keys from.
        seconds: how long an answer is waited for.
    """

    def __init__(self, options: Sequence[str], namespace: str, secret: str, seconds: float) -> None:
        self.namespace, self.needed = namespace, needed(namespace, secret)
        self._options, self._seconds = [*options, f"--request-timeout={seconds:g}s"], seconds
        self.objects = cache(self._objects)

    def version(self) -> str:
        """Return the version of the server, such as ``v1.34.4``."""
        found = self._ask("/version").get("gitVersion")
        if not isinstance(found, str) or not found.startswith("v"):
            raise _strange()
        return found

    @cached_property
    def denied(self) -> set[str]:
        """The permissions of ``needed`` that this user lacks, by the server's own reviews."""
        with ThreadPoolExecutor() as pool:
            allowed = pool.map(self._allows, self.needed.values())
            return {what for what, may in zip(self.needed, allowed, strict=True) if not may}

    def secret_keys(self) -> set[str] | None:
        """Return the keys of the secret, or None without the secret. Its values are dropped."""
        secret = self._find(self._path("secret"))
        if secret is not None and not isinstance(secret.get("data") or {}, dict):
            raise _strange()
        return None if secret is None else set(secret.get("data") or {})

    def serves(self, group_version: str, resource: str) -> bool:
        """Return whether the server has a resource of an API such as ``kubeflow.org/v1``."""
        found = self._find(f"/apis/{group_version}")
        return found is not None and resource in {one["name"] for one in found["resources"]}

    def refusal(self, pod: Object) -> str:
        """Return why the server's admission would not take a pod, which is not made; empty if it would take it."""
        try:
            self._ask(f"{self._path('dry run')}?dryRun=All", pod)
        except ServerError as error:
            return _GENERATED.sub("", error.message)
        return ""

    def _allows(self, permission: Permission) -> bool:
        attributes = {key: value for key, value in asdict(permission).items() if value}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        return bool(self._ask(_REVIEWS, {**review, "spec": {"resourceAttributes": attributes}})["status"]["allowed"])

    def _objects(self, what: str) -> list[Object]:
        """Return all objects of a list of ``needed``, which is read once; of pods those that have not ended."""
        try:
            found = self._ask(self._path(what) + (_RUNNING if what == "pods" else ""))
            return [{**one, "name": one["metadata"]["name"]} for one in found["items"]]
        except (KeyError, TypeError):
            raise _strange() from None

    def _path(self, what: str) -> str:
        if what in self.denied:
            permission = self.needed[what]
            fix = f"Ask for the permission to {permission}: k8s/components/preflight has it"
            raise Unknown(f"may not {permission}", fix)
        return self.needed[what].path

    def _find(self, path: str) -> Object | None:
        """Return an object, or None if the server does not have it."""
        try:
            return self._ask(path)
        except ServerError as error:
            if error.reason == "NotFound":
                return None
            raise

    def _ask(self, path: str, body: Object | None = None) -> Object:
        answer = self.kubectl(*(["get"] if body is None else ["create", "-f", "-"]), "--raw", path, given=body)
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise _strange()
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
            raise ServerError(found[1], found[2])
        raise Unknown(message, _LOGIN)


def _strange() -> Unknown:
    # What the answer holds may be a secret, and is not shown.
    fix = "Check that the address is an API server's, not a proxy's or a login page's"
    return Unknown("an answer that is none of Kubernetes'", fix)
