"""Checks that Flyte's admin is there, knows the project and the domain, and has the workflow, by its HTTP gateway."""

import re
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import requests

from tasks.cluster.findings import Finding, Result, Unknown, checked, fetch
from tasks.settings.deployment import VARIABLE

OLDEST = (1, 16, 4)
"""Older ones stop when a shard of a map task is tried more often than they have counted on (flyteorg/flyte #6802)."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def numbers(version: str) -> tuple[int, ...] | None:
    """Return the three numbers of a version such as v1.16.8, or None for a build that has none."""
    found = _VERSION.match(version)
    return tuple(map(int, found.groups())) if found else None


def flyte_checks(url: str | None, project: str, domain: str, workflow: str, seconds: float) -> list[Finding]:
    """Check the server, the project and the workflow, each if the one before did not stop it.

    Args:
        url: Flyte's HTTP address, also the console's; nothing is tried without it.
        project: the project of the run.
        domain: the domain of the run.
        workflow: the name that the workflow is registered by.
        seconds: how long one request is waited for.
    """
    admin = _Admin((url or "").rstrip("/").removesuffix("/console"), seconds)
    findings = [checked("Flyte", admin.server, "failed")]
    for name, check in (
        ("Flyte project", lambda: admin.project(project, domain)),
        ("workflow", lambda: admin.workflow(project, domain, workflow)),
    ):
        needs = next((one.name for one in findings if one.state in ("failed", "not tried")), None)
        findings.append(Finding(name, "not tried", f"needs {needs}") if needs else checked(name, check))
    return findings


class _Admin:
    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds

    def server(self) -> Result:
        if not self._url:
            return "not tried", "its address is not given", "--flyte https://..."
        if urlsplit(self._url).scheme not in ("http", "https"):
            return "failed", f"{self._url} is no address of http", "--flyte https://... or http://..."
        answer = fetch(f"{self._url}/healthcheck", self._seconds)
        if not answer.ok:
            found = f"{self._url}/healthcheck answers {answer.status_code} {answer.reason}"
            return "failed", found, "Name the address of Flyte's admin or console with --flyte"
        try:
            version = str(self._ask("version")["control_plane_version"]["Version"])
        except (Unknown, KeyError, TypeError):
            version = ""
        found, parts = ", ".join(part for part in (self._url, version) if part), numbers(version)
        if parts is not None and parts < OLDEST:
            fix = f"Upgrade Flyte to {'.'.join(map(str, OLDEST))} or newer"
            return "warning", f"{found}: a shard that is tried often stops its propeller", fix
        return "ok", found, ""

    def project(self, project: str, domain: str) -> Result:
        projects = {one["id"]: one for one in self._list("projects?limit=1000", "projects")}
        if project not in projects or projects[project].get("state") == "ARCHIVED":
            why = f"{project} is archived" if project in projects else f"Flyte has no project {project}"
            fix = f"flytectl create project --id {project} --name {project}, or flytectl update project --activate"
            return "failed", f"{why}; it has {', '.join(projects) or 'none'}", fix
        domains = [one.get("id", "") for one in projects[project].get("domains") or ()]
        if domain not in domains:
            there = f"{project} has no domain {domain}; it has {', '.join(domains) or 'none'}"
            return "failed", there, "Name one of these with --domain, or add it to Flyte's own settings"
        return "ok", f"{project}, {domain}", ""

    def workflow(self, project: str, domain: str, workflow: str) -> Result:
        latest = urlencode({"limit": 1, "sort_by.key": "created_at", "sort_by.direction": "DESCENDING"})
        found = self._list(f"workflows/{quote(project)}/{quote(domain)}/{workflow}?{latest}", "workflows")
        if not found:
            fix = f"pyflyte register --copy none -p {project} -d {domain} workflows, with {VARIABLE} set"
            return "failed", f"{workflow} is not registered in {project}, {domain}", fix
        return "ok", f"{workflow}, latest version {found[0]['id'].get('version')}", ""

    def _list(self, path: str, key: str) -> list[Any]:
        """Return objects with an id; an answer without workflows has no such key."""
        answer = self._ask(path)
        found = answer.get(key, [] if key == "workflows" else None) if isinstance(answer, dict) else None
        if not isinstance(found, list) or not all(isinstance(one, dict) and one.get("id") for one in found):
            raise self._strange(path)
        return found

    def _ask(self, path: str) -> Any:
        answer = fetch(f"{self._url}/api/v1/{path}", self._seconds, {"Accept": "application/json"})
        if answer.status_code in (401, 403):
            raise Unknown(f"{self._url} asks for a login, which is not tried here", "Look at its console, logged in")
        try:
            answer.raise_for_status()
            return answer.json()
        except (requests.HTTPError, ValueError):
            raise self._strange(path) from None

    def _strange(self, path: str) -> Unknown:
        why = f"{self._url}/api/v1/{path}: an answer that is none of Flyte's"
        return Unknown(why, "Name the address of Flyte's admin with --flyte")
