"""The checks of the store, of images by names, nodes and registries, and of Flyte by its HTTP gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from werkzeug import Request

from tasks.cluster.api import Finding, Object, Target
from tasks.cluster.services import check_flyte, check_image, probe_store
from tests.preflight.conftest import TAG
from tests.preflight.services import WORKFLOW, Answer, Flyte, HttpServer, Registry
from tools.s3 import S3, free_port, server

SECONDS = 5
TOO_MANY, LOGIN = "answers 429 Too Many Requests", "asks for a login, which is not tried here"
TOO_OLD = ("warning", ": a shard that is tried often stops its propeller", "Upgrade Flyte to 1.16.4 or newer")
VERSION, WORKFLOWS = "/api/v1/version", f"/api/v1/workflows/mu-grpo/development/{WORKFLOW}"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    """A moto server. It checks no signatures, because ``Between`` changes signed requests."""
    with server() as running:
        yield running


def store_finding(uri: str, seconds: float) -> Finding:
    return Finding("store", *probe_store(uri, seconds))


def test_a_store_is_written_conditionally_and_left_as_it_was(bucket: str, s3: S3) -> None:
    s3.put(f"{bucket}/runs/store.json", b"{}")
    found = store_finding(f"{bucket}/runs", SECONDS)
    assert found.state == "ok"
    assert "written with If-None-Match, read and removed; checked from this machine with its credentials" in found.found
    assert s3.keys(bucket) == ["runs/store.json"]


def test_stores_that_no_pod_reaches(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store_finding("runs/tiny-cpu", SECONDS)
    assert (folder.state, folder.found) == ("failed", "runs/tiny-cpu is a folder, which no pod of a cluster reaches")
    assert "store=s3://bucket/prefix" in folder.fix
    absent = store_finding("s3://no-such-bucket/runs", SECONDS)
    assert absent.state == "failed"
    assert "the bucket does not exist. Create it or name another store" in absent.found
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    away = store_finding(f"{bucket}/runs", 0.3)
    assert away.state == "failed"
    assert "at last with EndpointConnectionError" in away.found
    assert "kubectl port-forward, and AWS_ENDPOINT_URL" in away.fix
    monkeypatch.setenv("AWS_ENDPOINT_URL", "store:9000")
    assert "Invalid endpoint: store:9000" in store_finding(f"{bucket}/runs", 0.3).found


class Between(HttpServer):
    """A proxy that removes conditions from requests, and refuses requests with the method ``denied``."""

    def __init__(self, to: str) -> None:
        super().__init__()
        self._to, self.denied = to, ""

    def answer(self, asked: Request) -> Answer:
        if asked.method == self.denied:
            return Answer(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
        dropped = ("if-none-match", "host", "expect", "connection", "content-length", "transfer-encoding")
        kept = {name: value for name, value in asked.headers.items() if name.lower() not in dropped}
        url, content = f"{self._to}{asked.path}", asked.get_data()
        answer = requests.request(asked.method, url, params=asked.args, data=content, headers=kept, timeout=10)
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in dropped}
        return Answer(answer.status_code, answer.content, headers)


@pytest.fixture
def between(bucket: str, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    """A proxy between this process and the server of the bucket; requests are not chunked."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with Between(s3.endpoint) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


def test_a_server_that_ignores_conditions_is_a_warning(between: Between, bucket: str, s3: S3) -> None:
    found = store_finding(f"{bucket}/runs", SECONDS)
    assert found.state == "warning"
    assert "the server ignores If-None-Match" in found.found
    assert "start one run at a time" in found.fix
    assert not s3.keys(bucket.removeprefix("s3://"))


@pytest.mark.parametrize("method", ["PUT", "GET", "POST"])
def test_a_store_that_denies_something(method: str, between: Between, bucket: str) -> None:
    between.denied = method
    found = store_finding(f"{bucket}/runs", SECONDS)
    assert found.state == "failed"
    assert f"Allow listing, reading, writing and deleting below {bucket}/runs" in found.found


def test_a_store_that_does_not_answer(between: Between, bucket: str) -> None:
    between.silent = True
    assert store_finding(f"{bucket}/runs", 0.3).state == "failed"


def node(name: str, *images: str) -> Object:
    # A node also lists images without a name, whose tag another image has now.
    unnamed: list[Object] = [{"sizeBytes": 1}, {"names": None, "sizeBytes": 1}]
    return {"metadata": {"name": name}, "status": {"images": [*unnamed, {"names": list(images)}]}}


def image_finding(name: str, *nodes: Object) -> Finding:
    return Finding("image", *check_image(name, nodes, SECONDS))


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
def test_image_references_are_completed_as_on_nodes(name: str, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    found = image_finding(name, node("n1", image))
    assert (found.state, found.found.partition(";")[0]) == ("ok", f"{image}, on 1 of 1 nodes")


@pytest.mark.parametrize("name", ["Team/cpu:1", "ghcr.io/mu grpo:1", "ghcr.io/mu:", "ghcr.io//mu:1", "a/m-:1", ""])
def test_a_name_that_is_no_image_reference_fails(name: str) -> None:
    found = image_finding(name)
    assert (found.state, found.found) == ("failed", f"{name} is not a reference to an image")


@pytest.mark.parametrize("login", ["", "bearer"])
def test_an_image_that_the_registry_has(
    login: str, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No password is sent, also where somebody has one, and where the registry gives a token to everybody."""
    registry.login = login
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password s3cr3t\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    image = f"{registry.holding('team/mu-grpo', TAG)}-cpu:{TAG}"
    found = image_finding(image)
    assert (found.state, found.found) == ("ok", f"{image} is in its registry")
    assert {one.method for one in registry.asked if one.path.startswith("/v2/")} == {"HEAD"}
    assert not [one for one in registry.asked if one.headers.get("Authorization", "").startswith("Basic")]


@pytest.mark.parametrize("login", ["", "bearer"])
def test_an_image_that_the_registry_does_not_have(login: str, registry: Registry) -> None:
    registry.login = login
    image = f"127.0.0.1:{registry.port}/team/mu-grpo-cpu:{TAG}"
    found = image_finding(image)
    assert (found.state, found.found) == ("failed", f"{image} is not in its registry, and on no node")
    assert found.fix == f"make images, then podman push mu-grpo-cpu:$(make -s tag) {image}"
    # If some nodes have the image, pods on the others still cannot start.
    some = image_finding(image, node("n1", image), node("n2"))
    assert some.state == "warning"
    assert "on 1 of 2 nodes: pods on other nodes cannot start" in some.found


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer(401, headers={"WWW-Authenticate": 'Basic realm="here"'}), LOGIN),
        (Answer(401, headers={"WWW-Authenticate": 'Bearer realm="file:///etc/passwd",service="here"'}), LOGIN),
        (Answer(401), LOGIN),
        (Answer(403), LOGIN),
        (Answer(429), TOO_MANY),
    ],
)
def test_a_registry_that_refuses_to_answer_is_no_verdict(answer: Answer, found: str, registry: Registry) -> None:
    registry.fixed[f"/v2/mu-grpo-cpu/manifests/{TAG}"] = answer
    image = f"127.0.0.1:{registry.port}/mu-grpo-cpu:{TAG}"
    told = image_finding(image)
    assert told.state == "not tried"
    assert f"127.0.0.1:{registry.port} {found}" in told.found
    assert len(registry.asked) == 1
    held = image_finding(image, node("n1", image))
    assert (held.state, held.found.partition(";")[0]) == ("ok", f"{image}, on 1 of 1 nodes")


@pytest.mark.parametrize("token", [Answer(500, b"no"), Answer(200, {}), Answer(403, {})])
def test_a_registry_that_gives_no_token_asks_for_a_login(token: Answer, registry: Registry) -> None:
    registry.login, registry.fixed["/token"] = "bearer", token
    assert LOGIN in image_finding(f"{registry.holding('mu-grpo', TAG)}-cpu:{TAG}").found


@pytest.mark.parametrize("registry", ["registry.example.com", "registry.example", "example.com:5000"])
def test_the_placeholder_registry_fails_without_a_request(registry: str) -> None:
    found = image_finding(f"{registry}/mu-grpo-cpu:{TAG}")
    assert found.state == "failed"
    assert f"{registry}/mu-grpo-cpu:{TAG} is of the placeholder {registry}" in found.found
    assert "Set images of the deployment to a registry of yours" in found.fix


def test_the_tag_latest_is_a_warning(registry: Registry) -> None:
    found = image_finding(f"{registry.holding('mu-grpo', 'latest')}-cpu:latest")
    assert (found.state, found.fix) == ("warning", "Give it a tag of its own: tag")


def flyte_findings(url: str | None, project: str = "mu-grpo", domain: str = "development") -> list[Finding]:
    return check_flyte(Target(project, domain, flyte=url, seconds=SECONDS), WORKFLOW)


@pytest.mark.parametrize("path", ["", "/", "/console"])
def test_a_registered_workflow(path: str, flyte: Flyte) -> None:
    server, workflow = flyte_findings(f"{flyte.url}{path}")
    assert (server.state, server.found) == ("ok", f"{flyte.url}, v1.16.8")
    assert (workflow.state, workflow.found) == ("ok", f"{WORKFLOW}, latest version v2")
    assert {one.method for one in flyte.asked} == {"GET"}


@pytest.mark.parametrize("version", ["v1.16.4", "1.17.0-b0", "unknown", "", "v1.16.3", "v1.9.12"])
def test_a_flyte_before_1_16_4_is_a_warning(version: str, flyte: Flyte) -> None:
    flyte.version = version
    server, workflow = flyte_findings(flyte.url)
    state, message, fix = TOO_OLD if version in ("v1.16.3", "v1.9.12") else ("ok", "", "")
    found = flyte.url + (f", {version}" if version else "") + message
    assert (server.state, server.found, server.fix) == (state, found, fix)
    assert workflow.state == "ok"


@pytest.mark.parametrize(("project", "domain"), [("mu-grpo", "test"), ("other", "development")])
def test_a_workflow_that_is_not_registered_there(project: str, domain: str, flyte: Flyte) -> None:
    found = flyte_findings(flyte.url, project, domain)[1]
    assert (found.state, found.found) == ("failed", f"{WORKFLOW} is not registered in {project}, {domain}")
    register = f"pyflyte register --copy none -p {project} -d {domain} --version NAME workflows, with MU_GRPO_DEPLOY"
    assert found.fix.startswith(register)
    assert f"flytectl create project --id {project}" in found.fix


@pytest.mark.parametrize(
    ("paths", "answer", "states", "message"),
    [
        ([VERSION, WORKFLOWS], Answer(401, {"code": 16}), ("ok", "not tried"), " asks for a login, which is not tried"),
        ([WORKFLOWS], Answer(200, b"<html/>"), ("ok", "not tried"), "the answer does not come from Flyte's admin"),
        (["/healthcheck"], Answer(502), ("failed", "not tried"), "/healthcheck answers 502 Bad Gateway"),
    ],
)
def test_a_flyte_that_gives_no_answer(
    paths: list[str], answer: Answer, states: tuple[str, str], message: str, flyte: Flyte
) -> None:
    flyte.fixed = dict.fromkeys(paths, answer)
    server, workflow = flyte_findings(flyte.url)
    assert (server.state, workflow.state) == states
    assert message in (server if server.state == "failed" else workflow).found


@pytest.mark.parametrize(
    ("url", "state", "found"),
    [
        (None, "not tried", "its address is not given"),
        ("dns:///flyte.example.com", "failed", "dns:///flyte.example.com is not an http address"),
        ("localhost:30080", "failed", "localhost:30080 is not an http address"),
        ("http://127.0.0.1:1", "failed", "http://127.0.0.1:1/healthcheck: [Errno "),
    ],
)
def test_addresses_of_other_servers(url: str | None, state: str, found: str) -> None:
    server, workflow = flyte_findings(url)
    assert (server.state, workflow.state, workflow.found) == (state, "not tried", "needs Flyte")
    assert found in server.found
    assert server.fix
