"""Where a pod of every role may run once Flyte has merged the template, the deployment and its own settings."""

import pytest
import yaml

from tasks.cluster.api import Object
from tasks.cluster.nodes import look_at
from tasks.cluster.pods import role_pod
from tasks.settings.deployment import ROLES, DeploymentSettings, Role
from tests.k8s.test_flyte import values
from tests.preflight.clusters import rendered
from tools import ROOT

LARGE = {"cpu": "192", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": "110"}
GPUS = {"nvidia.com/gpu": "8"}
H200 = {"k8s.amazonaws.com/accelerator": "nvidia-h200"}


def node(name: str, labels: dict[str, str], gpus: bool, pool: str = "") -> Object:
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}] if gpus else []
    if pool:
        taints.append({"key": "mu-grpo/pool", "value": pool, "effect": "NoSchedule"})
        labels = {**labels, "mu-grpo/pool": pool}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "allocatable": {**LARGE, **(GPUS if gpus else {})},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


NODES = [node("cpu", {}, False), node("spot", H200, True, "rollout"), node("train", H200, True, "train")]
MAY: dict[Role, set[str]] = {
    "cpu": {"cpu"},
    "prefetch": {"cpu"},
    "verify": {"cpu"},
    "rollout": {"spot"},
    "evaluate": {"spot"},
    "train": {"train"},
}


def places(deployment: DeploymentSettings) -> dict[Role, set[str]]:
    templates = {
        one["metadata"]["name"]: one for one in rendered("k8s/overlays/gpu-pool") if one["kind"] == "PodTemplate"
    }
    pods = {role: role_pod(role, deployment, templates[deployment.pod(role).template]) for role in ROLES}
    return {
        role: {one["metadata"]["name"] for one in NODES if look_at(one, pods[role]["spec"], []).ever} for role in ROLES
    }


@pytest.mark.parametrize("name", ["gpu-1", "gpu-4", "gpu-8"])
def test_every_role_has_its_nodes_and_no_others(name: str) -> None:
    assert places(DeploymentSettings.read(ROOT / f"configs/deployments/{name}.yaml")) == MAY


def test_the_last_attempt_of_what_may_be_interrupted_goes_to_a_node_on_demand() -> None:
    deployment = DeploymentSettings.read(ROOT / "configs/deployments/gpu-4.yaml")
    pods = {role: pod.model_copy(update={"interruptible": False}) for role, pod in deployment.pods.items()}
    found = places(deployment.model_copy(update={"pods": pods}))
    assert found == {**MAY, "rollout": {"train"}, "evaluate": {"train"}}


def test_what_a_deployment_says_of_flytes_settings_is_what_they_say() -> None:
    deployment = DeploymentSettings()
    found = values("values.yaml")["configuration"]["inline"]["plugins"]["k8s"]
    key, _, value = deployment.spot_label.partition("=")
    assert found["interruptible-tolerations"] == [
        {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
    ]
    for name, operator in (("interruptible", "In"), ("non-interruptible", "NotIn")):
        assert found[f"{name}-node-selector-requirement"] == {"key": key, "operator": operator, "values": [value]}
    assert found["gpu-device-node-label"] == deployment.accelerator_label
    template = found["default-pod-template-name"]
    assert yaml.safe_load((ROOT / "k8s/base/pod-templates/cpu.yaml").read_text())["metadata"]["name"] == template
