"""Servers that do not answer, refuse the login, or are not Kubernetes are reported clearly and quickly."""

import json
from pathlib import Path

import pytest
import yaml

from tests.preflight.api_server import NAMESPACE, TOKEN, ApiServer, Object
from tests.preflight.conftest import Ask, Findings
from tests.preflight.services import Answer

_EXEC = "client.authentication.k8s.io/v1"
_TOKEN = json.dumps({"apiVersion": _EXEC, "kind": "ExecCredential", "status": {"token": TOKEN}})
PLUGIN = {"apiVersion": _EXEC, "command": "echo", "args": [_TOKEN], "interactiveMode": "Never"}


def silent(found: Findings) -> tuple[str, str]:
    """Check that only the checks that need no API server ran, and return the finding on the server and its fix."""
    images = {f"image mu-grpo-{kind}" for kind in ("cpu", "rollout", "train")}
    assert set(found) == {"API server", "store", "Flyte", "workflow"} | images
    assert found["API server"].state == found["store"].state == found["image mu-grpo-cpu"].state == "failed"
    assert TOKEN not in str(found)
    return found["API server"].found, found["API server"].fix


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("token", "another", "Unauthorized"), ("token", None, "system:anonymous"), ("trusted", False, "certificate")],
)
def test_a_refused_login_is_explained(
    option: str, value: object, message: str, gpu_pool: ApiServer, ask: Ask, tmp_path: Path
) -> None:
    found, fix = silent(ask(gpu_pool, kubeconfig=gpu_pool.kubeconfig(tmp_path, **{option: value})))
    assert message in found
    assert "log in again" in fix


def test_a_server_that_does_not_answer_is_asked_once(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.silent = True
    found, fix = silent(ask(gpu_pool, seconds=0.5))
    assert found.startswith(f"{gpu_pool.url}: ")
    assert "timed out" in found
    assert "--timeout" in fix
    assert len(gpu_pool.asked) == 1


@pytest.mark.parametrize("content", [b"<html>Please log in</html>", b'{"hello": "world"}', b"[]"])
def test_a_server_that_is_not_kubernetes(content: bytes, gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.fixed["/version"] = Answer(200, content)
    found, fix = silent(ask(gpu_pool))
    assert found == "the answer does not come from an API server"
    assert "not a proxy's or a login page's" in fix


def test_a_missing_kubeconfig_or_context(gpu_pool: ApiServer, ask: Ask, tmp_path: Path) -> None:
    found, _ = silent(ask(gpu_pool, kubeconfig=tmp_path / "none"))
    assert f"{tmp_path}/none: Invalid kube-config file. No configuration found" in found
    assert "name wrong in" in ask(gpu_pool, context="wrong")["API server"].found


@pytest.mark.parametrize("user", [{"exec": PLUGIN}, {"tokenFile": "token"}], ids=["plugin", "file"])
def test_a_login_without_a_token_in_the_kubeconfig(user: Object, gpu_pool: ApiServer, ask: Ask, tmp_path: Path) -> None:
    """The command lines of clouds log in by plugins; a file of a token ends with a line break, as kubectl allows."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    kubeconfig = gpu_pool.kubeconfig(tmp_path)
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"] = user
    kubeconfig.write_text(yaml.safe_dump(content))
    assert ask(gpu_pool, kubeconfig=kubeconfig)["API server"].state == "ok"


def test_what_is_forbidden_is_not_tried_and_named(gpu_pool: ApiServer, ask: Ask) -> None:
    for one in gpu_pool.rules:
        one["resources"] = [kept for kept in one["resources"] if kept not in ("secrets", "namespaces")]
        one["verbs"] = [verb for verb in one["verbs"] if verb != "create"]
    found = ask(gpu_pool)
    needs = {"namespace": "list namespaces", "secrets": f"get secrets/mu-grpo in {NAMESPACE}"}
    needs["pod of train"] = f"create pods in {NAMESPACE}"
    assert found["permissions"].state == "warning"
    for row, permission in needs.items():
        assert (found[row].state, found[row].found) == ("not tried", f"may not {permission}")
        assert found[row].fix == f"Ask for the permission to {permission}: k8s/components/preflight has it"
        assert permission in found["permissions"].found
    assert found["nodes for train"].found == "fits 1 of 5 nodes; room for 2 now"


def test_without_the_pods_of_others_nodes_are_still_judged(gpu_pool: ApiServer, ask: Ask) -> None:
    for one in gpu_pool.rules:
        if "list" in one["verbs"]:
            one["resources"] = [kept for kept in one["resources"] if kept != "pods"]
    found = ask(gpu_pool)
    assert found["nodes for train"].found == "fits 1 of 5 nodes; their free resources are unknown"
    assert "may not list pods" in found["permissions"].found


def test_nodes_that_cannot_be_read(gpu_pool: ApiServer, ask: Ask) -> None:
    away = {"kind": "Status", "message": "etcd is away", "reason": "ServiceUnavailable"}
    gpu_pool.fixed["/api/v1/nodes"] = Answer(503, away)
    told = ask(gpu_pool)
    assert told["nodes"].state == "not tried"
    assert "ServiceUnavailable" in told["nodes"].found
    assert told["secrets"].state == "ok"
    gpu_pool.fixed = {f"/api/v1/namespaces/{NAMESPACE}/pods": Answer(503, away)}
    assert ask(gpu_pool)["pod of train"].state == "not tried"


def test_without_the_nodes_pods_are_still_judged(gpu_pool: ApiServer, ask: Ask) -> None:
    for one in gpu_pool.rules:
        one["resources"] = [kept for kept in one["resources"] if kept != "nodes"]
    gpu_pool.remove("PodTemplate", "mu-grpo-train")
    found = ask(gpu_pool)
    assert found["pod of train"].state == "failed"
    assert (found["pod of cpu"].state, found["nodes for cpu"].state) == ("ok", "not tried")
