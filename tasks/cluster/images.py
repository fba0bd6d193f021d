"""Checks that the images of a deployment can be pulled, by their names, the nodes and the registries."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

import requests

from tasks.cluster.api import Object
from tasks.cluster.findings import Finding, Result, Unknown, fetch

_IMAGE = re.compile(r"(?:([^/]*[.:][^/]*|localhost)/)?([a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*)(?::([\w.-]+))?")
"""Registry, path and tag of a reference to an image."""
_PLACEHOLDER = re.compile(r"(^|\.)example(\.[a-z]+)?(:\d+)?$")
_LOCAL = re.compile(r"(localhost|127\.0\.0\.1)(:\d+)?")
"""Registries that are asked without TLS."""
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


def image_checks(names: Sequence[str], nodes: Sequence[Object], seconds: float) -> Iterator[Finding]:
    """Yield a check of each image.

    Args:
        names: references to images.
        nodes: nodes of the cluster, which tell the images that they hold.
        seconds: how long a registry is waited for.
    """
    for name in names:
        yield Finding(f"image {name.rpartition('/')[2].partition(':')[0]}", *_check(name, nodes, seconds))


def _check(name: str, nodes: Sequence[Object], seconds: float) -> Result:
    parts = _IMAGE.fullmatch(name)
    if parts is None:
        fix = "Correct images and tag of the deployment: registry.host/path in small letters, and a tag"
        return "failed", f"{name} is no reference to an image", fix
    # Completed as nodes do it.
    registry, path, tag = parts[1] or "docker.io", parts[2], parts[3] or "latest"
    if not parts[1] and "/" not in path:
        path = f"library/{path}"
    image = f"{registry}/{path}:{tag}"
    if _PLACEHOLDER.search(registry):
        fix = "Set images of the deployment to a registry of yours, then make images and push them there"
        return "failed", f"{image} is of the placeholder {registry}", fix
    held = sum(any(image in one["names"] for one in node["status"].get("images") or ()) for node in nodes)
    on = f", on {held} of {len(nodes)} nodes" if held else ""
    try:
        there = _ask(registry, path, tag, seconds)
    except Unknown as error:
        return "ok" if held else "not tried", f"{image}{on}; {error.why}", "" if held else error.fix
    push = f"make images, then podman push mu-grpo-{path.rpartition('-')[2]}:$(make -s tag) {image}"
    if not there and held:
        return "warning", f"{image} is not in its registry{on}: pods on other nodes cannot start", push
    if not there:
        return "failed", f"{image} is not in its registry, and on no node", push
    if tag == "latest":
        return "warning", f"{image}{on}: what latest is changes", "Give it a tag of its own: tag"
    return "ok", f"{image} is in its registry{on}", ""


def _ask(registry: str, path: str, tag: str, seconds: float) -> bool:
    """Return whether a registry has an image, asked with a token for everybody where the registry wants one."""
    host = "registry-1.docker.io" if registry == "docker.io" else registry
    url = f"{'http' if _LOCAL.fullmatch(registry) else 'https'}://{host}/v2/{path}/manifests/{tag}"
    accept = {"Accept": ", ".join(_KINDS)}
    answer = fetch(url, seconds, accept, "HEAD")
    challenge = dict(re.findall(r'(\w+)="([^"]*)"', answer.headers.get("WWW-Authenticate", "")))
    if answer.status_code == 401 and challenge.get("realm", "").startswith(("http://", "https://")):
        query = urlencode({key: challenge[key] for key in ("service", "scope") if key in challenge})
        token = _token(fetch(f"{challenge['realm']}?{query}", seconds))
        answer = fetch(url, seconds, accept | {"Authorization": f"Bearer {token}"}, "HEAD")
    if answer.ok or answer.status_code == 404:
        return answer.ok
    if answer.status_code in (401, 403):
        why = f"{registry} asks for a login, which is not tried here"
        raise Unknown(why, f"skopeo inspect docker://{registry}/{path}:{tag}, with the login that the nodes have")
    raise Unknown(f"{registry} answers {answer.status_code} {answer.reason}", "Try again later")


def _token(answer: requests.Response) -> str:
    try:
        found = answer.json()
        return str(found.get("token") or found.get("access_token"))
    except (ValueError, AttributeError):
        return ""
