"""Whether the images of a deployment can be pulled: what their names, the nodes and the registries tell."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import requests
from pydantic import ValidationError

from tasks.preflight.findings import Finding, Unknown
from tasks.preflight.records import Node, Record
from tasks.preflight.web import fetch

_HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
_LOCAL = ("localhost", "127.0.0.1")
"""Hosts that registries' clients speak to without TLS; a node's own, when a node pulls."""
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


@dataclass(frozen=True)
class Image:
    """A reference to an image."""

    registry: str
    path: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> "Image | None":
        """The reference that a text is, completed as nodes do it; None when it is none."""
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
        """The registry's, without its port."""
        return self.registry.rpartition(":")[0] or self.registry

    @property
    def manifest(self) -> str:
        """The URL of what the registry knows of it."""
        server = _HUB_HOST if self.registry == _HUB else self.registry
        return f"{'http' if self.host in _LOCAL else 'https'}://{server}/v2/{self.path}/manifests/{self.tag}"


class _Token(Record):
    token: str = ""
    access_token: str = ""


Told = bool | Unknown
"""Whether a registry has an image."""


def ask_registries(names: Sequence[str], seconds: float) -> dict[str, Told]:
    """What registries say of images; one that is out of reach is asked once."""
    found: dict[str, Told] = {}
    away: dict[str, Unknown] = {}
    for name in names:
        image = Image.parse(name)
        if image is None or _PLACEHOLDER.search(image.host):
            continue
        if image.registry not in away:
            answer = _ask(image, seconds)
            if isinstance(answer, requests.Response):
                found[name] = _told(image, answer)
                continue
            away[image.registry] = answer
        found[name] = away[image.registry]
    return found


def _ask(image: Image, seconds: float) -> requests.Response | Unknown:
    accept = {"Accept": ", ".join(_KINDS)}
    answer = fetch(image.manifest, seconds, accept, "HEAD")
    if not isinstance(answer, requests.Response) or answer.status_code != 401:
        return answer
    scheme, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
    challenge = dict(_CHALLENGE.findall(rest))
    if scheme.lower() != "bearer" or urlsplit(challenge.get("realm", "")).scheme not in ("http", "https"):
        return answer
    query = {key: challenge[key] for key in ("service", "scope") if key in challenge}
    allowed = fetch(f"{challenge['realm']}?{urlencode(query)}", seconds)
    if not isinstance(allowed, requests.Response) or not allowed.ok:
        return answer
    try:
        token = _Token.model_validate_json(allowed.content)
    except ValidationError:
        return answer
    return fetch(
        image.manifest, seconds, accept | {"Authorization": f"Bearer {token.token or token.access_token}"}, "HEAD"
    )


def _told(image: Image, answer: requests.Response) -> Told:
    if answer.ok:
        return True
    if answer.status_code == 404:
        return False
    if answer.status_code in (401, 403):
        return Unknown(
            f"{image.registry} asks for a login, which is not tried here",
            f"skopeo inspect docker://{image}, with the login that nodes or imagePullSecrets have",
        )
    return Unknown(f"{image.registry} answers {answer.status_code} {answer.reason}", "Try again later")


def image_checks(names: Sequence[str], told: Mapping[str, Told], nodes: Sequence[Node] | Unknown) -> list[Finding]:
    """A line for each image."""
    known = [] if isinstance(nodes, Unknown) else nodes
    return [_check(name, told.get(name), known) for name in names]


def _check(name: str, told: Told | None, nodes: Sequence[Node]) -> Finding:
    image = Image.parse(name)
    title = f"image {name.rpartition('/')[2].partition(':')[0]}"
    if image is None:
        mend = "Mend images and tag of the deployment: registry.host/path in small letters, and a tag"
        return Finding(title, "failed", f"{name} is no reference to an image", mend)
    if _PLACEHOLDER.search(image.host):
        mend = "Set images of the deployment to a registry of yours, then make images and push them there"
        return Finding(title, "failed", f"{name} is of the placeholder {image.host}", mend)
    push = f"make images, then podman push mu-grpo-{image.path.rpartition('-')[2]}:$(make -s tag) {image}"
    held = [node.name for node in nodes if any(_same(image, one) for kept in node.images for one in kept.names)]
    on = f", on {len(held)} of {len(nodes)} nodes" if held else ""
    if told is True:
        if image.tag == "latest":
            return Finding(title, "warning", f"{image}{on}: what latest is changes", "Give it a tag of its own: tag")
        return Finding(title, "ok", f"{image} is in its registry{on}")
    if told is False:
        if held:
            found = f"{image} is not in its registry{on}: pods on other nodes cannot start"
            return Finding(title, "warning", found, push)
        return Finding(title, "failed", f"{image} is not in its registry, and on no node", push)
    why = told or Unknown("its registry was not asked")
    if held:
        return Finding(title, "ok", f"{image}{on}; {why.why}")
    if image.host in _LOCAL:
        why = Unknown(f"{why.why}; {image.host} is each node's own, and this machine's is another", why.mend)
    return Unknown(f"{image}: {why.why}", why.mend).of(title)


def _same(image: Image, name: str) -> bool:
    return "@" not in name and Image.parse(name) == image
