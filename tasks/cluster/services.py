"""Checks of the other services of a run: the store, the registries of the images, and Flyte."""

import re
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import quote, urlencode, urlsplit

import requests

from tasks.cluster.api import CheckResult, Finding, Object, Target, UnansweredError, parse_object, root_cause, run_check
from tasks.errors import ArtifactError
from tasks.settings.deployment import VARIABLE
from tasks.store.layout import PREFLIGHT
from tasks.store.store import bucket_of

OLDEST_FLYTE = (1, 16, 4)
"""Oldest version of Flyte without flyteorg/flyte #6802, which crashes if a shard of a map task is retried too often."""
_IMAGE = re.compile(r"(?:([^/]*[.:][^/]*|localhost)/)?([a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*)(?::([\w.-]+))?")
"""Registry, path and tag of a reference to an image."""
_PLACEHOLDER = re.compile(r"(^|\.)example(\.[a-z]+)?(:\d+)?$")
_WITHOUT_TLS = re.compile(r"(localhost|127\.0\.0\.1)(:\d+)?")
_OCI, _DOCKER = "application/vnd.oci.image", "application/vnd.docker.distribution.manifest"
_MANIFESTS = {"Accept": f"{_OCI}.index.v1+json, {_OCI}.manifest.v1+json, {_DOCKER}.list.v2+json, {_DOCKER}.v2+json"}


def probe_store(uri: str, seconds: float) -> CheckResult:
    """Check the store: write a small object, try to write it again, read it and delete it."""
    bucket, key = bucket_of(uri, seconds), f"{PREFLIGHT}/{uuid.uuid4().hex}"
    here = "checked from this machine with its credentials; pods have their own"
    if bucket is None:
        fix = "Name a prefix of a bucket: store=s3://bucket/prefix"
        return "failed", f"{uri} is a folder, which no pod of a cluster reaches", fix
    try:
        bucket.write_new(key, b"first")
        try:
            bucket.write_new(key, b"second")
            kept = bucket.read(key)
        finally:
            bucket.delete([key])
    except (ArtifactError, ValueError) as error:  # ValueError: the endpoint is not a URL.
        message = error.message if isinstance(error, ArtifactError) else f"{uri}: {error}"
        fix = (
            "Correct what the message names; for a store in the cluster: kubectl port-forward, and AWS_ENDPOINT_URL "
            "for it"
        )
        return "failed", f"{message} ({here})", fix
    if kept != b"first":
        found = (
            f"{uri}: the server ignores If-None-Match: if two runs do the same work, the later result replaces the "
            "earlier one"
        )
        return "warning", found, "Use a server that knows conditional writes, or start one run at a time"
    return "ok", f"{uri}: written with If-None-Match, read and removed; {here}", ""


def check_image(name: str, nodes: Sequence[Object], seconds: float) -> CheckResult:
    """Check that an image can be pulled: its name, the nodes that have it, and its registry."""
    parts = _IMAGE.fullmatch(name)
    if parts is None:
        fix = "Correct images and tag of the deployment: registry.host/path in small letters, and a tag"
        return "failed", f"{name} is not a reference to an image", fix
    # The defaults are those of the container runtime of a node.
    registry, path, tag = parts[1] or "docker.io", parts[2], parts[3] or "latest"
    if not parts[1] and "/" not in path:
        path = f"library/{path}"
    image = f"{registry}/{path}:{tag}"
    if _PLACEHOLDER.search(registry):
        fix = "Set images of the deployment to a registry of yours, then make images and push them there"
        return "failed", f"{image} is of the placeholder {registry}", fix
    held = sum(any(image in (one.get("names") or ()) for one in node["status"].get("images") or ()) for node in nodes)
    on = f", on {held} of {len(nodes)} nodes" if held else ""
    try:
        is_present = _in_registry(registry, path, tag, seconds)
    except UnansweredError as error:
        return "ok" if held else "not tried", f"{image}{on}; {error.why}", "" if held else error.fix
    push = f"make images, then podman push mu-grpo-{path.rpartition('-')[2]}:$(make -s tag) {image}"
    if not is_present and held:
        return "warning", f"{image} is not in its registry{on}: pods on other nodes cannot start", push
    if not is_present:
        return "failed", f"{image} is not in its registry, and on no node", push
    if tag == "latest":
        found = f"{image}{on}: the tag latest can name another image tomorrow"
        return "warning", found, "Give it a tag of its own: tag"
    return "ok", f"{image} is in its registry{on}", ""


def _in_registry(registry: str, path: str, tag: str, seconds: float) -> bool:
    host = "registry-1.docker.io" if registry == "docker.io" else registry
    url = f"{'http' if _WITHOUT_TLS.fullmatch(registry) else 'https'}://{host}/v2/{path}/manifests/{tag}"
    answer = _fetch(url, seconds, _MANIFESTS, "HEAD")
    challenge = dict(re.findall(r'(\w+)="([^"]*)"', answer.headers.get("WWW-Authenticate", "")))
    if answer.status_code == 401 and challenge.get("realm", "").startswith(("http://", "https://")):
        # Registries give anonymous users a token for public images.
        query = urlencode({key: challenge[key] for key in ("service", "scope") if key in challenge})
        grant = parse_object(_fetch(f"{challenge['realm']}?{query}", seconds)) or {}
        token = grant.get("token") or grant.get("access_token")
        answer = _fetch(url, seconds, {**_MANIFESTS, "Authorization": f"Bearer {token}"}, "HEAD")
    if answer.ok or answer.status_code == 404:
        return answer.ok
    if answer.status_code in (401, 403):
        why = f"{registry} asks for a login, which is not tried here"
        raise UnansweredError(
            why, f"skopeo inspect docker://{registry}/{path}:{tag}, with the login that the nodes have"
        )
    raise UnansweredError(f"{registry} answers {answer.status_code} {answer.reason}", "Try again later")


def version_numbers(version: str) -> tuple[int, ...] | None:
    """Return the three numbers of a version such as v1.16.8, or None for a build without a version."""
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else None


def check_flyte(target: Target, workflow: str) -> list[Finding]:
    """Check that Flyte's admin answers at its HTTP address, and that the workflow is registered there."""
    address = (target.flyte or "").rstrip("/").removesuffix("/console")
    if not address:
        server = Finding("Flyte", "not tried", "its address is not given", "--flyte https://...")
    elif urlsplit(address).scheme not in ("http", "https"):
        server = Finding("Flyte", "failed", f"{address} is not an http address", "--flyte https://... or http://...")
    else:
        server = run_check("Flyte", partial(_admin, address, target.seconds), "failed")
    if server.state in ("failed", "not tried"):
        return [server, Finding("workflow", "not tried", "needs Flyte")]
    return [server, run_check("workflow", partial(_workflow, address, target, workflow))]


def _admin(address: str, seconds: float) -> CheckResult:
    answer = _fetch(f"{address}/healthcheck", seconds)
    if not answer.ok:
        found = f"{address}/healthcheck answers {answer.status_code} {answer.reason}"
        return "failed", found, "Name the address of Flyte's admin or console with --flyte"
    content = parse_object(_fetch(f"{address}/api/v1/version", seconds)) or {}
    version = str((content.get("control_plane_version") or {}).get("Version") or "")
    found, numbers = ", ".join(part for part in (address, version) if part), version_numbers(version)
    if numbers is not None and numbers < OLDEST_FLYTE:
        fix = f"Upgrade Flyte to {'.'.join(map(str, OLDEST_FLYTE))} or newer"
        return "warning", f"{found}: a shard that is tried often stops its propeller", fix
    return "ok", found, ""


def _workflow(address: str, target: Target, workflow: str) -> CheckResult:
    project, domain = target.project, target.domain
    latest = urlencode({"limit": 1, "sort_by.key": "created_at", "sort_by.direction": "DESCENDING"})
    answer = _fetch(f"{address}/api/v1/workflows/{quote(project)}/{quote(domain)}/{workflow}?{latest}", target.seconds)
    if answer.status_code in (401, 403):
        raise UnansweredError(f"{address} asks for a login, which is not tried here", "Look at its console, logged in")
    content = parse_object(answer)
    if not answer.ok or content is None:
        why = f"{answer.url}: the answer does not come from Flyte's admin"
        raise UnansweredError(why, "Name the address of Flyte's admin with --flyte")
    versions = content.get("workflows")
    if not versions:
        register = (
            f"pyflyte register --copy none -p {project} -d {domain} --version NAME workflows, with {VARIABLE} set"
        )
        fix = f"{register}; if Flyte has no such project: flytectl create project --id {project} --name {project}"
        return "failed", f"{workflow} is not registered in {project}, {domain}", fix
    return "ok", f"{workflow}, latest version {versions[0]['id'].get('version')}", ""


def _fetch(
    url: str, seconds: float, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> requests.Response:
    try:
        # With this function, requests does not add a login from the user's .netrc.
        return requests.request(method, url, headers=headers, timeout=seconds, auth=lambda request: request)
    except requests.RequestException as error:
        fix = "Check the address, its certificate (REQUESTS_CA_BUNDLE), the network or VPN; a slow server: --timeout"
        raise UnansweredError(f"{url}: {root_cause(error)}", fix) from None
