"""What references to images are, and what nodes and registries say of them."""

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from tasks.cluster.api import Object
from tasks.cluster.findings import Finding
from tasks.cluster.images import image_checks
from tasks.cluster.pods import image_names
from tasks.settings import RunSettings
from tasks.settings.deployment import DeploymentSettings
from tests.preflight.api_server import ApiServer
from tests.preflight.conftest import CONFIG, TAG, Ask
from tests.preflight.http_server import Answer
from tests.preflight.services import Registry
from tools.s3 import free_port

SECONDS = 5
STAGES, TURNS = RunSettings.read(CONFIG), RunSettings.read(CONFIG, "updates_per_rollout=4")


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("mu-grpo-cpu:0.1.0", "docker.io/library/mu-grpo-cpu:0.1.0"),
        ("mu-grpo-cpu", "docker.io/library/mu-grpo-cpu:latest"),
        ("team/mu-grpo-cpu:v1", "docker.io/team/mu-grpo-cpu:v1"),
        ("localhost/mu-grpo-cpu:0.1.0", "localhost/mu-grpo-cpu:0.1.0"),
        ("ghcr.io/a/b/c-cpu:sha-1_2.3", "ghcr.io/a/b/c-cpu:sha-1_2.3"),
        ("r.company.net:5000/a__b/c.d-cpu:1", "r.company.net:5000/a__b/c.d-cpu:1"),
    ],
)
def test_references_are_read_as_nodes_read_them(name: str, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _away)
    monkeypatch.setattr(socket, "getaddrinfo", _away)
    (found,) = image_checks([name], [node("n1", image)], SECONDS)
    assert (found.state, found.found.partition(";")[0]) == ("ok", f"{image}, on 1 of 1 nodes")


def _away(*_: object, **__: object) -> NoReturn:
    raise OSError("no registry is asked here")


@pytest.mark.parametrize("name", ["Team/cpu:1", "ghcr.io/mu grpo:1", "ghcr.io/mu:", "ghcr.io//mu:1", "a/m-:1", ""])
def test_what_is_no_reference(name: str) -> None:
    (found,) = image_checks([name], [], SECONDS)
    assert (found.state, found.found) == ("failed", f"{name} is no reference to an image")


def only(images: str, tag: str = TAG, nodes: list[Object] | None = None) -> Finding:
    names = image_names(DeploymentSettings(images=images, tag=tag), STAGES)
    (found,) = image_checks(names, nodes or [], SECONDS)
    return found


def node(name: str, *images: str) -> Object:
    return {"metadata": {"name": name}, "status": {"images": [{"names": list(images)}]}}


@pytest.fixture(params=["", "bearer"])
def open_registry(request: pytest.FixtureRequest, registry: Registry) -> Registry:
    """Gives everybody what they ask for, at once or for a token."""
    registry.login = request.param
    return registry


def test_an_image_that_the_registry_has(
    open_registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password s3cr3t\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    images = open_registry.holding("team/mu-grpo", TAG)
    found = only(images)
    assert (found.state, found.found) == ("ok", f"{images}-cpu:{TAG} is in its registry")
    assert {one.method for one in open_registry.asked if one.path.startswith("/v2/")} == {"HEAD"}
    assert not [one for one in open_registry.asked if one.headers.get("Authorization", "").startswith("Basic")]


def test_an_image_that_the_registry_does_not_have(open_registry: Registry) -> None:
    images = f"127.0.0.1:{open_registry.port}/team/mu-grpo"
    image, found = f"{images}-cpu:{TAG}", only(images)
    assert (found.state, found.found) == ("failed", f"{image} is not in its registry, and on no node")
    assert found.fix == f"make images, then podman push mu-grpo-cpu:$(make -s tag) {image}"
    # Nodes that have it are not enough for the others.
    some = only(images, nodes=[node("n1", image), node("n2")])
    assert some.state == "warning"
    assert "on 1 of 2 nodes: pods on other nodes cannot start" in some.found


def test_an_unregistered_image_on_a_cluster(gpu_pool: ApiServer, ask: Ask, registry: Registry) -> None:
    images = registry.holding("team/mu-grpo", TAG)
    registry.images.remove(f"team/mu-grpo-train:{TAG}")
    found = ask(gpu_pool, changes={"images": images})
    states = {role: found[f"image mu-grpo-{role}"].state for role in ("cpu", "rollout", "train")}
    assert states == {"cpu": "ok", "rollout": "ok", "train": "failed"}


def test_a_run_that_takes_turns_needs_an_image_of_its_own() -> None:
    asked = DeploymentSettings.parse({"pods": {"train": {"image": "train"}}, "images": "here/mu-grpo", "tag": "v1"})
    assert image_names(asked, TURNS) == ["here/mu-grpo-cpu:v1", "here/mu-grpo-alternate:v1"]
    assert image_names(DeploymentSettings(), TURNS) == image_names(DeploymentSettings(), STAGES)


def test_a_registry_that_wants_a_login(registry: Registry) -> None:
    registry.login, images = "basic", f"127.0.0.1:{registry.port}/mu-grpo"
    image, found = f"{images}-cpu:{TAG}", only(images)
    assert found.state == "not tried"
    assert f"127.0.0.1:{registry.port} asks for a login, which is not tried here" in found.found
    assert found.fix.startswith(f"skopeo inspect docker://{image}")
    held = only(images, nodes=[node("n1", image)])
    assert (held.state, held.found.partition(";")[0]) == ("ok", f"{image}, on 1 of 1 nodes")


TOO_MANY, LOGIN = "answers 429 Too Many Requests", "asks for a login, which is not tried here"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer(401, headers={"WWW-Authenticate": 'Bearer realm="file:///etc/passwd",service="here"'}), LOGIN),
        (Answer(401, headers={"WWW-Authenticate": "Bearer"}), LOGIN),
        (Answer(401), LOGIN),
        (Answer(403), LOGIN),
        (Answer(429), TOO_MANY),
    ],
)
def test_a_registry_that_does_not_tell(answer: Answer, found: str, registry: Registry) -> None:
    registry.fixed[f"/v2/mu-grpo-cpu/manifests/{TAG}"] = answer
    told = only(f"127.0.0.1:{registry.port}/mu-grpo")
    assert told.state == "not tried"
    assert f"127.0.0.1:{registry.port} {found}" in told.found
    assert len(registry.asked) == 1


@pytest.mark.parametrize("token", [Answer(500, b"no"), Answer(200, b"no"), Answer(200, {}), Answer(403, {})])
def test_a_token_that_is_not_given(token: Answer, registry: Registry) -> None:
    registry.login, registry.fixed["/token"] = "bearer", token
    registry.holding("mu-grpo", TAG)
    assert LOGIN in only(f"127.0.0.1:{registry.port}/mu-grpo").found


def test_a_registry_out_of_reach_is_no_verdict() -> None:
    found = only(f"127.0.0.1:{free_port()}/mu-grpo")
    assert found.state == "not tried"
    assert "refused" in found.found


@pytest.mark.parametrize("registry", ["registry.example.com", "registry.example", "example.com:5000", "r.example.org"])
def test_the_placeholder_is_not_asked(registry: str) -> None:
    found = only(f"{registry}/mu-grpo")
    assert found.state == "failed"
    assert f"{registry}/mu-grpo-cpu:{TAG} is of the placeholder {registry}" in found.found
    assert "Set images of the deployment to a registry of yours" in found.fix


def test_a_tag_that_moves_is_warned_of(registry: Registry) -> None:
    found = only(registry.holding("mu-grpo", "latest"), "latest")
    assert (found.state, found.fix) == ("warning", "Give it a tag of its own: tag")
