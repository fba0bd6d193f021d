"""Checks that the images of a deployment can be pulled, by their names, the nodes and the registries."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import requests

from tasks.cluster.api import Object
from tasks.cluster.findings import Finding, Unknown
from tasks.cluster.web import fetch

_HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
_LOCAL = ("localhost", "127.0.0.1")
"""Hosts that are asked without TLS; when a node pulls, they are the node's own."""
_PLACEHOLDER = re.compile(r"(^|\.)example(\.[a-z]+)?$")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
Answer = bool | Unknown
"""Check that a registry has an image."""


@dataclass(frozen=True)
class Image:
    """A reference to an image."""

    registry: str
    path: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> "Image | None":
        """Return the reference that a text is, completed as nodes do it, or None if it is none."""
        first, separator, rest = text.partition("/")
        if separator and ("." in first or ":" in first or first == "localhost"):
            registry = first
        else:
            registry, rest = _HUB, text if separator else f"library/{text}"
        path, colon, tag = rest.partition(":")
        if not _PATH.fullmatch(path) or not _TAG.fullmatch(tag if colon else "latest"):
            return None
        return cls(registry, path, tag if colon else "latest")

    def __str__(self) -> str:
        return f"{self.registry}/{self.path}:{self.tag}"

    @property
    def host(self) -> str:
        """The registry without its port."""
        return self.registry.rpartition(":")[0] or self.registry

    @property
    def manifest(self) -> str:
        """The URL of the image's manifest."""
        server = _HUB_HOST if self.registry == _HUB else self.registry
        return f"{'http' if self.host in _LOCAL else 'https'}://{server}/v2/{self.path}/manifests/{self.tag}"


def ask_registries(names: Sequence[str], seconds: float) -> dict[str, Answer]:
    """Return what registries say of images, by name; a registry that is out of reach is asked once."""
    found: dict[str, Answer] = {}
    away: dict[str, Unknown] = {}
    for name in names:
        image = Image.parse(name)
        if image is None or _PLACEHOLDER.search(image.host):
            continue
        if image.registry not in away:
            try:
                found[name] = _meaning(image, _ask(image, seconds))
                continue
            except Unknown as error:
                away[image.registry] = error
        found[name] = away[image.registry]
    return found


def _ask(image: Image, seconds: float) -> requests.Response:
    """Ask for a manifest, with a token for everybody where the registry wants one."""
    accept = {"Accept": ", ".join(_KINDS)}
    answer = fetch(image.manifest, seconds, accept, "HEAD")
    scheme, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
    challenge = dict(_CHALLENGE.findall(rest))
    realm = challenge.get("realm", "")
    if answer.status_code != 401 or scheme.lower() != "bearer" or urlsplit(realm).scheme not in ("http", "https"):
        return answer
    query = {key: challenge[key] for key in ("service", "scope") if key in challenge}
    try:
        given = fetch(f"{realm}?{urlencode(query)}", seconds).json()
        token = given.get("token") or given["access_token"]
    except (Unknown, ValueError, KeyError, AttributeError):
        return answer
    return fetch(image.manifest, seconds, accept | {"Authorization": f"Bearer {token}"}, "HEAD")


def _meaning(image: Image, answer: requests.Response) -> Answer:
    if answer.ok or answer.status_code == 404:
        return answer.ok
    if answer.status_code in (401, 403):
        return Unknown(
            f"{image.registry} asks for a login, which is not tried here",
            f"skopeo inspect docker://{image}, with the login that nodes or imagePullSecrets have",
        )
    return Unknown(f"{image.registry} answers {answer.status_code} {answer.reason}", "Try again later")


def image_check(name: str, answer: Answer | None, nodes: Sequence[Object]) -> Finding:
    """Check an image.

    Args:
        name: the reference.
        answer: what its registry says of it; None if it was not asked.
        nodes: nodes of the cluster, which tell the images that they hold.
    """
    image, title = Image.parse(name), f"image {name.rpartition('/')[2].partition(':')[0]}"
    if image is None:
        fix = "Correct images and tag of the deployment: registry.host/path in small letters, and a tag"
        return Finding(title, "failed", f"{name} is no reference to an image", fix)
    if _PLACEHOLDER.search(image.host):
        fix = "Set images of the deployment to a registry of yours, then make images and push them there"
        return Finding(title, "failed", f"{name} is of the placeholder {image.host}", fix)
    push = f"make images, then podman push mu-grpo-{image.path.rpartition('-')[2]}:$(make -s tag) {image}"
    held = sum(any(image == Image.parse(one) for one in _held(node) if "@" not in one) for node in nodes)
    on = f", on {held} of {len(nodes)} nodes" if held else ""
    if answer is True:
        if image.tag == "latest":
            return Finding(title, "warning", f"{image}{on}: what latest is changes", "Give it a tag of its own: tag")
        return Finding(title, "ok", f"{image} is in its registry{on}")
    if answer is False:
        if held:
            found = f"{image} is not in its registry{on}: pods on other nodes cannot start"
            return Finding(title, "warning", found, push)
        return Finding(title, "failed", f"{image} is not in its registry, and on no node", push)
    unknown = answer or Unknown("its registry was not asked")
    if held:
        return Finding(title, "ok", f"{image}{on}; {unknown.why}")
    local = f"; {image.host} is each node's own, and this machine's is another" if image.host in _LOCAL else ""
    return Finding(title, "not tried", f"{image}: {unknown.why}{local}", unknown.fix)


def _held(node: Object) -> list[str]:
    return [name for image in node["status"].get("images") or () for name in image.get("names") or ()]
