"""Fixtures with a cluster without faults, which each test may change, and with the findings of a preflight."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tasks.cluster.api import Finding, Target
from tasks.cluster.preflight import preflight
from tasks.settings import RunSettings
from tasks.settings.deployment import DeploymentSettings
from tests.preflight.api_server import NAMESPACE, ApiServer
from tests.preflight.clusters import right
from tests.preflight.services import Flyte, Registry
from tools import ROOT

CONFIG = ROOT / "configs/tiny-cpu.yaml"
TAG = "0.1.0"
Findings = dict[str, Finding]
Ask = Callable[..., Findings]


@pytest.fixture
def gpu_pool() -> Iterator[ApiServer]:
    """A cluster with two nodes for generation and one for training, to which no request to change it may be sent."""
    with right("gpu-pool") as server:
        yield server
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    sent = {(one.method, one.path) for one in server.asked if one.method != "GET"}
    assert sent <= {("POST", reviews), ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods")}
    assert all(one.args["dryRun"] == "All" for one in server.asked if one.path.endswith("/pods") and one.get_data())


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        yield server


@pytest.fixture
def flyte() -> Iterator[Flyte]:
    with Flyte() as server:
        yield server


def deployment_of(name: str, folder: Path, **changes: object) -> Path:
    """Write a file of configs/deployments with changes, as a user does for a cluster."""
    values = yaml.safe_load((ROOT / f"configs/deployments/{name}.yaml").read_text())
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values | {"tag": TAG} | changes))
    return path


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """A function that returns the findings of a preflight by check; the store is a folder by default."""

    def found(
        server: ApiServer,
        deployment: str = "gpu-4",
        overrides: str = "",
        changes: dict[str, object] | None = None,
        **target: object,
    ) -> Findings:
        run = RunSettings.read(CONFIG, overrides)
        asked = DeploymentSettings.read(deployment_of(deployment, tmp_path, **(changes or {})))
        kubeconfig = target.pop("kubeconfig", None) or server.kubeconfig(tmp_path)
        findings = preflight(run, asked, Target(kubeconfig=kubeconfig, **{"seconds": 5, **target}))
        names = [one.name for one in findings]
        assert len(set(names)) == len(names)
        assert not [one for one in findings if one.state == "failed" and not one.fix]
        return {one.name: one for one in findings}

    return found
