"""Whether Flyte's admin is there, knows the project and the domain, and has the workflow: by its HTTP gateway."""

import json
import re
from functools import partial
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import Field, ValidationError

from tasks.preflight.findings import Finding, Unknown
from tasks.preflight.records import Record
from tasks.preflight.web import fetch
from tasks.settings.deployment import VARIABLE

_NAMES = ("Flyte", "Flyte project", "workflow")
_ARCHIVED = "ARCHIVED"
R = TypeVar("R", bound=Record)


OLDEST = (1, 16, 4)
"""Older ones stop when a shard of a map task is tried more often than they have counted on (flyteorg/flyte #6802)."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def numbers(version: str) -> tuple[int, ...] | None:
    """The three numbers of a version such as v1.16.8; None of a build that has none."""
    found = _VERSION.match(version)
    return tuple(map(int, found.groups())) if found else None


class _Build(Record):
    version: str = Field(validation_alias="Version")


class _Version(Record):
    control_plane_version: _Build


class _Domain(Record):
    id: str


class _Project(Record):
    id: str
    domains: tuple[_Domain, ...] = ()
    state: str = "ACTIVE"


class _Projects(Record):
    projects: tuple[_Project, ...]


class _Id(Record):
    version: str


class _Workflow(Record):
    id: _Id


class _Workflows(Record):
    workflows: tuple[_Workflow, ...] = ()


def flyte_checks(url: str | None, project: str, domain: str, workflow: str, seconds: float) -> list[Finding]:
    """Three lines: the server, the project, the workflow; each is tried when the one before it did not stop it.

    Args:
        url: of Flyte's HTTP address, the console's too; nothing is tried without it.
        project: of the run.
        domain: of the run.
        workflow: of the run, by the name that it is registered by.
        seconds: for one request.
    """
    admin = _Admin((url or "").rstrip("/").removesuffix("/console"), seconds)
    findings: list[Finding] = []
    checks = (
        admin.server,
        partial(admin.project, project, domain),
        partial(admin.workflow, project, domain, workflow),
    )
    for check in checks:
        findings.append(check())
        if findings[-1].state not in ("ok", "warning"):
            break
    missing = _NAMES[len(findings) :]
    return [*findings, *(Finding(name, "not tried", f"needs {findings[-1].name}") for name in missing)]


class _Admin:
    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds

    def server(self) -> Finding:
        """Whether it answers, and its version where it tells it."""
        name = "Flyte"
        if not self._url:
            return Finding(name, "not tried", "its address is not given", "--flyte https://...")
        if urlsplit(self._url).scheme not in ("http", "https"):
            return Finding(name, "failed", f"{self._url} is no address of http", "--flyte https://... or http://...")
        answer = fetch(f"{self._url}/healthcheck", self._seconds)
        if isinstance(answer, Unknown):
            return answer.of(name, "failed")
        if not answer.ok:
            found = f"{self._url}/healthcheck answers {answer.status_code} {answer.reason}"
            return Finding(name, "failed", found, "Name the address of Flyte's admin or console with --flyte")
        told = self._ask(_Version, "version")
        version = "" if isinstance(told, Unknown) else told.control_plane_version.version
        found = ", ".join(part for part in (self._url, version) if part)
        parts = numbers(version)
        if parts is not None and parts < OLDEST:
            stops = f"{found}: a shard that is tried often stops its propeller"
            return Finding(name, "warning", stops, f"Upgrade Flyte to {'.'.join(map(str, OLDEST))} or newer")
        return Finding(name, "ok", found)

    def project(self, project: str, domain: str) -> Finding:
        """Whether it knows where the run goes."""
        name = "Flyte project"
        answer = self._ask(_Projects, "projects?limit=1000")
        if isinstance(answer, Unknown):
            return answer.of(name)
        found = next((one for one in answer.projects if one.id == project), None)
        if found is None:
            ids = ", ".join(one.id for one in answer.projects) or "none"
            body = json.dumps({"project": {"id": project, "name": project}})
            make = f"curl -d '{body}' {self._url}/api/v1/projects, or seedProjects in k8s/flyte/values.yaml"
            return Finding(name, "failed", f"Flyte has no project {project}; it has {ids}", make)
        if found.state == _ARCHIVED:
            body = json.dumps({"id": project, "state": "ACTIVE"})
            activate = f"curl -X PUT -d '{body}' {self._url}/api/v1/projects/{project}"
            return Finding(name, "failed", f"{project} is archived", activate)
        domains = [one.id for one in found.domains]
        if domain not in domains:
            there = f"{project} has no domain {domain}; it has {', '.join(domains) or 'none'}"
            return Finding(name, "failed", there, "Name one of these with --domain, or add it to Flyte's own settings")
        return Finding(name, "ok", f"{project}, {domain}")

    def workflow(self, project: str, domain: str, workflow: str) -> Finding:
        """Whether the workflow is registered, and its latest version."""
        name = "workflow"
        latest = urlencode({"limit": 1, "sort_by.key": "created_at", "sort_by.direction": "DESCENDING"})
        answer = self._ask(_Workflows, f"workflows/{quote(project)}/{quote(domain)}/{workflow}?{latest}")
        if isinstance(answer, Unknown):
            return answer.of(name)
        if not answer.workflows:
            register = f"pyflyte register --copy none -p {project} -d {domain} workflows, with {VARIABLE} set"
            return Finding(name, "failed", f"{workflow} is not registered in {project}, {domain}", register)
        return Finding(name, "ok", f"{workflow}, latest version {answer.workflows[0].id.version}")

    def _ask(self, kind: type[R], path: str) -> R | Unknown:
        url = f"{self._url}/api/v1/{path}"
        answer = fetch(url, self._seconds, {"Accept": "application/json"})
        if isinstance(answer, Unknown):
            return answer
        if answer.status_code in (401, 403):
            return Unknown(f"{self._url} asks for a login, which is not tried here", "Look at its console, logged in")
        if not answer.ok:
            return Unknown(f"{url} answers {answer.status_code} {answer.reason}", "Look at the log of flyteadmin")
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError:
            return Unknown(
                f"{url}: an answer that is none of Flyte's", "Name the address of Flyte's admin with --flyte"
            )
