"""The store, from this machine; and Flyte, by its HTTP gateway."""

from collections.abc import Iterator

import pytest
import requests
from werkzeug import Request

from tasks.cluster.flyte import flyte_checks
from tasks.cluster.preflight import store_check
from tests.preflight.http_server import Answer, HttpServer
from tests.preflight.services import WORKFLOW, Flyte
from tools.s3 import S3, free_port

SECONDS = 5


def test_a_store_is_written_conditionally_and_left_as_it_was(bucket: str, s3: S3) -> None:
    name = bucket.removeprefix("s3://")
    s3.client().put_object(Bucket=name, Key="runs/store.json", Body=b"{}")
    found = store_check(f"{bucket}/runs", SECONDS)
    assert found.state == "ok"
    assert "written with If-None-Match, read and removed; seen from this machine, with its credentials" in found.found
    assert s3.keys(name) == ["runs/store.json"]


@pytest.mark.parametrize("uri", ["runs/tiny-cpu", "/shared/runs"])
def test_a_folder_is_no_store_for_pods(uri: str) -> None:
    found = store_check(uri, SECONDS)
    assert (found.state, found.found) == ("failed", f"{uri} is a folder, which no pod of a cluster reaches")
    assert "store=s3://bucket/prefix" in found.fix


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    found = store_check("s3://no-such-bucket/runs", SECONDS)
    assert found.state == "failed"
    assert "the bucket does not exist. Create it or name another store" in found.found


def test_a_server_that_is_not_there(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    found = store_check(f"{bucket}/runs", 1)
    assert found.state == "failed"
    assert "failed for 1 s, at last with EndpointConnectionError" in found.found
    assert "Check the server and the network" in found.found
    assert "kubectl port-forward, and AWS_ENDPOINT_URL" in found.fix
    monkeypatch.setenv("AWS_ENDPOINT_URL", "store:9000")
    assert "Invalid endpoint: store:9000" in store_check(f"{bucket}/runs", 0.5).found


class Between(HttpServer):
    """Hands requests on to a server, without their conditions; ``denied`` is a method that it does not allow."""

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
    """A server in front of the bucket's, which this process asks, in requests that are not chunked."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with Between(s3.endpoint) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


def test_a_server_that_ignores_conditions_is_a_warning(between: Between, bucket: str, s3: S3) -> None:
    found = store_check(f"{bucket}/runs", SECONDS)
    assert found.state == "warning"
    assert "If-None-Match is ignored" in found.found
    assert "start one run at a time" in found.fix
    assert not s3.keys(bucket.removeprefix("s3://"))


@pytest.mark.parametrize("method", ["PUT", "GET", "POST"])
def test_a_store_that_denies_something(method: str, between: Between, bucket: str) -> None:
    between.denied = method
    found = store_check(f"{bucket}/runs", SECONDS)
    assert found.state == "failed"
    assert f"Allow listing, reading, writing and deleting below {bucket}/runs" in found.found


def test_a_store_that_does_not_answer(between: Between, bucket: str) -> None:
    between.silent = True
    assert store_check(f"{bucket}/runs", 1).state == "failed"


def test_without_an_address_flyte_is_not_asked() -> None:
    found = flyte_checks(None, "mu-grpo", "development", WORKFLOW, SECONDS)
    assert {one.state for one in found} == {"not tried"}
    assert [one.found for one in found] == ["its address is not given", "needs Flyte", "needs Flyte"]
    assert found[0].fix == "--flyte https://..."


@pytest.mark.parametrize("path", ["", "/", "/console"])
def test_a_registered_workflow(path: str, flyte: Flyte) -> None:
    found = flyte_checks(f"{flyte.url}{path}", "mu-grpo", "development", WORKFLOW, SECONDS)
    assert [(one.name, one.state, one.found) for one in found] == [
        ("Flyte", "ok", f"{flyte.url}, v1.16.8"),
        ("Flyte project", "ok", "mu-grpo, development"),
        ("workflow", "ok", f"{WORKFLOW}, latest version v2"),
    ]
    assert {one.method for one in flyte.asked} == {"GET"}


@pytest.mark.parametrize(
    ("version", "state", "found"),
    [
        ("v1.16.4", "ok", ", v1.16.4"),
        ("1.17.0-b0", "ok", ", 1.17.0-b0"),
        ("unknown", "ok", ", unknown"),
        ("", "ok", ""),
        ("v1.16.3", "warning", ", v1.16.3: a shard that is tried often stops its propeller"),
        ("v1.9.12", "warning", ", v1.9.12: a shard that is tried often stops its propeller"),
    ],
)
def test_versions_of_flyte(version: str, state: str, found: str, flyte: Flyte) -> None:
    flyte.version = version
    server, *others = flyte_checks(flyte.url, "mu-grpo", "development", WORKFLOW, SECONDS)
    assert (server.state, server.found) == (state, f"{flyte.url}{found}")
    assert server.fix == ("Upgrade Flyte to 1.16.4 or newer" if state == "warning" else "")
    assert [one.state for one in others] == ["ok", "ok"]


def test_what_flyte_does_not_have(flyte: Flyte) -> None:
    def states(project: str = "mu-grpo", domain: str = "development") -> tuple[list[str], str, str]:
        found = flyte_checks(flyte.url, project, domain, WORKFLOW, SECONDS)
        worst = next(one for one in found if one.state == "failed")
        return [one.state for one in found], worst.found, worst.fix

    assert states(project="other") == (
        ["ok", "failed", "not tried"],
        "Flyte has no project other; it has flytesnacks, mu-grpo",
        "flytectl create project --id other --name other, or flytectl update project --activate",
    )
    assert states(domain="test")[1:] == (
        "mu-grpo has no domain test; it has development, staging, production",
        "Name one of these with --domain, or add it to Flyte's own settings",
    )
    flyte.versions = []
    assert states() == (
        ["ok", "ok", "failed"],
        f"{WORKFLOW} is not registered in mu-grpo, development",
        "pyflyte register --copy none -p mu-grpo -d development workflows, with MU_GRPO_DEPLOYMENT set",
    )
    flyte.projects[1]["state"] = "ARCHIVED"
    assert states()[1].startswith("mu-grpo is archived")


def test_flyte_with_a_login_is_reached_and_no_further(flyte: Flyte) -> None:
    flyte.login = True
    found = flyte_checks(flyte.url, "mu-grpo", "development", WORKFLOW, SECONDS)
    assert [one.state for one in found] == ["ok", "not tried", "not tried"]
    assert found[1].found == f"{flyte.url} asks for a login, which is not tried here"
    assert found[2].found == "needs Flyte project"


@pytest.mark.parametrize("answer", [Answer(200, b"<html/>"), Answer(200, {"projects": 3}), Answer(200, {})])
def test_a_server_that_is_not_flytes(answer: Answer, flyte: Flyte) -> None:
    flyte.fixed = dict.fromkeys(("/api/v1/version", "/api/v1/projects"), answer)
    found = flyte_checks(flyte.url, "mu-grpo", "development", WORKFLOW, SECONDS)
    assert [one.state for one in found] == ["ok", "not tried", "not tried"]
    assert "an answer that is none of Flyte's" in found[1].found


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("dns:///flyte.example.com", "dns:///flyte.example.com is no address of http"),
        ("localhost:30080", "localhost:30080 is no address of http"),
        ("http://127.0.0.1:1", "refused"),
        ("http://flyte.invalid", "http://flyte.invalid/healthcheck: "),
    ],
)
def test_addresses_that_lead_nowhere(url: str, found: str) -> None:
    findings = flyte_checks(url, "mu-grpo", "development", WORKFLOW, SECONDS)
    assert [one.state for one in findings] == ["failed", "not tried", "not tried"]
    assert found in findings[0].found
    assert findings[0].fix


def test_a_flyte_that_is_unwell(flyte: Flyte) -> None:
    flyte.fixed["/healthcheck"] = Answer(502)
    found = flyte_checks(flyte.url, "mu-grpo", "development", WORKFLOW, SECONDS)[0]
    assert (found.state, found.found) == ("failed", f"{flyte.url}/healthcheck answers 502 Bad Gateway")
