"""Servers that do not answer, do not let in, or are none of Kubernetes': said plainly, and soon."""

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes.config import incluster_config

from tasks.cluster.connection import connect
from tasks.cluster.findings import Patience, Unknown
from tasks.cluster.preflight import Target, preflight
from tasks.settings import RunSettings
from tasks.settings.deployment import DeploymentSettings
from tests.preflight.api_server import NAMESPACE, TOKEN, ApiServer
from tests.preflight.clusters import right
from tests.preflight.conftest import CONFIG, Ask, Findings, reading_alone
from tests.preflight.http_server import Answer
from tools.s3 import free_port

ROLES = [f"pod of {role}" for role in ("cpu", "prefetch", "verify", "rollout", "evaluate", "train")]
UNREAD = {"store": "failed", "image mu-grpo-cpu": "failed"}
"""What is judged without a cluster."""


def nothing_is_tried(found: Findings) -> None:
    """Without an API server the checks that need one are not there."""
    assert not {"permissions", "namespace", "GPUs", "shards", *ROLES} & found.keys()
    assert {name: found[name].state for name in UNREAD} == UNREAD


@pytest.mark.parametrize(
    ("token", "found", "fix"),
    [
        ("another", "the credentials are not accepted (401)", "Log in to the cluster again"),
        (None, "no credentials were given, and system:anonymous may do nothing (403)", "Name a user with credentials"),
    ],
)
def test_who_is_not_known(
    token: str | None, found: str, fix: str, gpu_pool: ApiServer, ask: Ask, tmp_path: Path
) -> None:
    shown = ask(gpu_pool, kubeconfig=gpu_pool.kubeconfig(tmp_path, token))
    assert shown["API server"].state == "failed"
    assert shown["API server"].found == f"{gpu_pool.url}: {found}"
    assert fix in shown["API server"].fix
    nothing_is_tried(shown)
    assert len(gpu_pool.asked) <= 2
    assert TOKEN not in str(shown)


FORBIDDEN = {
    "list nodes": (["GPUs", *ROLES], "nodes"),
    f"list podtemplates in {NAMESPACE}": (ROLES, "podtemplates"),
    f"get secrets/mu-grpo in {NAMESPACE}": (["secrets"], "secrets"),
    "list namespaces": (["namespace"], "namespaces"),
    "list pods": (["shards"], "pods"),
}


@pytest.mark.parametrize("permission", FORBIDDEN)
def test_what_is_forbidden_is_not_tried_and_named(permission: str, gpu_pool: ApiServer, ask: Ask) -> None:
    names, resource = FORBIDDEN[permission]
    gpu_pool.forbid(resource)
    found = ask(gpu_pool)
    for name in names:
        assert found[name].state == "not tried", name
    assert f"may not {permission}" in found[names[0]].found
    assert found[names[0]].fix == f"Ask for the permission to {permission}: k8s/components/preflight has it"
    assert found["permissions"].state == "warning"
    assert permission in found["permissions"].found


def test_without_dry_runs_the_nodes_are_still_judged(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.rules = [one for one in gpu_pool.rules if "create" not in one["verbs"]]
    found = ask(gpu_pool)["pod of train"]
    assert found.state == "not tried"
    assert found.found == f"may not create pods in {NAMESPACE}; fits 1 of 5 nodes; room for 2 now"
    assert found.fix == f"Ask for the permission to create pods in {NAMESPACE}: k8s/components/preflight has it"


def test_without_pods_the_nodes_are_still_judged(gpu_pool: ApiServer, ask: Ask) -> None:
    for one in gpu_pool.rules:
        if "list" in one["verbs"]:
            one["resources"] = [kept for kept in one["resources"] if kept != "pods"]
    found = ask(gpu_pool)["pod of train"]
    assert found.state == "warning"
    assert found.found == "fits 1 of 5 nodes; what is free there is not known: may not list pods"
    for node in gpu_pool.all("Node"):
        node["status"]["allocatable"].pop("nvidia.com/gpu", None)
    assert ask(gpu_pool)["pod of train"].state == "failed"


def test_a_server_that_refuses_the_connection(gpu_pool: ApiServer, ask: Ask, tmp_path: Path) -> None:
    kubeconfig = gpu_pool.kubeconfig(tmp_path)
    port = free_port()
    kubeconfig.write_text(kubeconfig.read_text().replace(str(gpu_pool.port), str(port)))
    found = ask(gpu_pool, kubeconfig=kubeconfig)
    assert found["API server"].state == "failed"
    assert found["API server"].found == f"127.0.0.1:{port}: the connection is refused"
    assert "Start the server, or correct the port" in found["API server"].fix
    nothing_is_tried(found)


def test_a_host_that_is_not_known(gpu_pool: ApiServer, ask: Ask, tmp_path: Path) -> None:
    kubeconfig = gpu_pool.kubeconfig(tmp_path)
    kubeconfig.write_text(kubeconfig.read_text().replace("127.0.0.1", "api.cluster.invalid"))
    found = ask(gpu_pool, kubeconfig=kubeconfig)["API server"]
    assert found.found == f"api.cluster.invalid:{gpu_pool.port}: the host is not known"
    assert "Check the spelling of the host" in found.fix


def test_a_server_that_does_not_answer_is_asked_once(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.silent = ("/",)
    found = ask(gpu_pool, patience=Patience(0.5, 1.5))
    assert found["API server"].state == "failed"
    assert found["API server"].found == f"127.0.0.1:{gpu_pool.port}: no answer within 0.5 s"
    assert "--timeout" in found["API server"].fix
    nothing_is_tried(found)
    assert len(gpu_pool.asked) == 1


def test_answers_that_do_not_come_cost_no_more_than_all_may_take(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.silent = ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/")
    found = ask(gpu_pool, patience=Patience(2, 3))
    assert found["API server"].state == "ok"
    assert found["GPUs"].state == "not tried"
    whys = {one.found for one in found.values()}
    assert any(f"127.0.0.1:{gpu_pool.port}: no answer within " in why for why in whys)
    assert f"{gpu_pool.url}: its answers took more than 3 s together" in " ".join(whys)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>Please log in</html>"),
        Answer(200, {"hello": "world"}),
        Answer(404, b"nothing"),
        Answer(200, []),
    ],
)
def test_a_server_of_another_kind(answer: Answer, gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.fixed["/version"] = answer
    found = ask(gpu_pool)
    assert found["API server"].found == f"{gpu_pool.url}: an answer that is none of Kubernetes'"
    assert "not a proxy's or a login page's" in found["API server"].fix
    nothing_is_tried(found)


def test_a_server_that_fails_at_one_list(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.fixed["/api/v1/nodes"] = Answer(503, {"kind": "Status", "message": "etcd is away"})
    found = ask(gpu_pool)["GPUs"]
    assert (found.state, found.found) == ("not tried", f"{gpu_pool.url}: it answers 503 Service Unavailable")
    gpu_pool.fixed["/api/v1/nodes"] = Answer(200, {"metadata": {}, "items": [{"metadata": {}}]})
    assert ask(gpu_pool)["GPUs"].found == f"{gpu_pool.url}: an answer that is none of Kubernetes'"


def test_an_answer_that_is_not_understood_is_not_shown(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.find("Secret", "mu-grpo")["data"] = "s3cr3t-that-is-no-mapping"
    gpu_pool.find("Secret", "mu-grpo")["metadata"]["name"] = {"another": "s3cr3t"}
    gpu_pool.fixed[f"/api/v1/namespaces/{NAMESPACE}/secrets/mu-grpo"] = Answer(200, {"metadata": {}, "data": "s3cr3t"})
    found = ask(gpu_pool)["secrets"]
    assert found.state == "not tried"
    assert "s3cr3t" not in str(found)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine that it signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-apiserver")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=2))
        .add_extension(host, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("certificate")
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return paths


@pytest.fixture
def with_tls(certificate: tuple[Path, Path]) -> Iterator[ApiServer]:
    with right("development", certificate=certificate) as server:
        yield server
    reading_alone(server)


def test_a_certificate_that_is_trusted(
    with_tls: ApiServer, certificate: tuple[Path, Path], ask: Ask, tmp_path: Path
) -> None:
    kubeconfig = with_tls.kubeconfig(tmp_path, **{"certificate-authority": str(certificate[0])})
    assert ask(with_tls, "development", kubeconfig=kubeconfig)["API server"].state == "ok"


def test_a_certificate_that_nobody_trusts(with_tls: ApiServer, ask: Ask) -> None:
    found = ask(with_tls, "development")
    assert found["API server"].state == "failed"
    assert f"127.0.0.1:{with_tls.port}: its TLS certificate is not accepted: self-signed" in found["API server"].found
    assert "certificate-authority-data in the kubeconfig" in found["API server"].fix


def test_https_to_a_server_without_tls(one_machine: ApiServer, ask: Ask, tmp_path: Path) -> None:
    kubeconfig = one_machine.kubeconfig(tmp_path)
    kubeconfig.write_text(kubeconfig.read_text().replace("http://", "https://"))
    found = ask(one_machine, "development", kubeconfig=kubeconfig)["API server"]
    assert f"127.0.0.1:{one_machine.port}: no TLS connection: WRONG_VERSION_NUMBER" in found.found
    assert "http:// and https:// are different addresses" in found.fix


def in_a_pod(monkeypatch: pytest.MonkeyPatch, server: ApiServer, folder: Path, certificate: Path) -> None:
    """What a pod finds in itself; its files lie elsewhere in a test."""
    (folder / "token").write_text(TOKEN)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv("KUBECONFIG", str(folder / "none"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate))


def test_a_pod_asks_as_its_service_account(
    with_tls: ApiServer, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    in_a_pod(monkeypatch, with_tls, tmp_path, certificate[0])
    found = preflight(RunSettings.read(CONFIG), DeploymentSettings(images="registry.example.com/mu-grpo"), Target())
    assert [(one.state, one.found) for one in found[:2]] == [
        ("ok", "this pod's service account"),
        ("ok", f"{with_tls.url}, Kubernetes v1.33.1"),
    ]
    (tmp_path / "token").unlink()
    with pytest.raises(Unknown, match="this pod's service account: Service token file does not exist") as unknown:
        connect(None, None)
    assert "automountServiceAccountToken: true" in unknown.value.fix


def test_kubeconfigs_that_lead_nowhere(one_machine: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def why(path: Path | None = None, context: str | None = None) -> tuple[str, str]:
        with pytest.raises(Unknown) as found:
            connect(path, context)
        return found.value.why, found.value.fix

    missing = tmp_path / "missing"
    assert why(missing) == (f"{missing}: no such file", why(missing)[1])
    assert "Name one with --kubeconfig or KUBECONFIG" in why(missing)[1]
    monkeypatch.setenv("KUBECONFIG", str(missing))
    assert why()[0] == f"{missing}: no kubeconfig here, and this is no pod of a cluster"

    good = one_machine.kubeconfig(tmp_path)
    monkeypatch.setenv("KUBECONFIG", f"{missing}:{good}")
    assert connect(None, None)[1] == f"{good}, context right"
    assert why(good, "wrong") == (f"{good}: no context 'wrong'; there are right", "Name one of these with --context")

    values = yaml.safe_load(good.read_text())

    def written(**changes: object) -> Path:
        path = tmp_path / "changed"
        path.write_text(yaml.safe_dump({key: value for key, value in {**values, **changes}.items() if value}))
        return path

    assert why(written(**{"current-context": None}))[0].endswith("no current context; there are right")
    assert why(written(contexts=None)) == (
        f"{tmp_path / 'changed'}: no context 'right'; there are none",
        "Name another file with --kubeconfig",
    )
    assert "clusters" in why(written(clusters=[{"name": "other", "cluster": {}}]))[0]
    assert "context right: " in why(written(clusters="here"))[0]
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "no-such-program")}
    exec_ = written(users=[{"name": "researcher", "user": {"exec": program}}])
    assert "no-such-program" in why(exec_)[0]
    assert "a program that brings credentials must be installed and logged in" in why(exec_)[1]
    authority = [{"name": "here", "cluster": {"server": "https://x", "certificate-authority": "/none.pem"}}]
    assert "/none.pem" in why(written(clusters=authority))[0]
    for content in ("", "- a list", "a: [", "just words"):
        broken = tmp_path / "broken"
        broken.write_text(content)
        assert why(broken)[0].startswith(f"{broken}: cannot be read: ")
