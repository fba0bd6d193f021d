"""Where a pod of every role may run once Flyte has merged the template, the deployment and its own settings."""

import pytest
import yaml

from tasks.cluster.nodes import match_node, requests, role_pod
from tasks.settings.deployment import ROLES, DeploymentSettings, Role
from tests.k8s.flyte_values import values
from tests.k8s.test_manifests import named
from tests.preflight.api_server import Object
from tests.preflight.clusters import objects_of, rendered
from tools import ROOT

POOLS: dict[Role, str] = {
    **dict.fromkeys(("cpu", "prefetch", "verify"), "cpu"),
    **dict.fromkeys(("rollout", "evaluate"), "gpu-rollout"),
    "train": "gpu-train",
}
"""Nodes of each role on a GPU pool, by the beginning of their names."""


def places(deployment: DeploymentSettings) -> dict[Role, set[str]]:
    """Return the pools whose nodes could hold a role's pod if they were empty."""
    objects, found = objects_of("gpu-pool"), dict[Role, set[str]]()
    templates = named(objects, "PodTemplate")
    for role in ROLES:
        spec = role_pod(role, deployment, templates[deployment.pods[role].template])["spec"]
        matches = [match_node(one, spec, []) for one in objects if one["kind"] == "Node"]
        found[role] = {match.node.rpartition("-")[0] for match in matches if match.if_empty}
    return found


@pytest.mark.parametrize("name", ["gpu-1", "gpu-4", "gpu-8"])
def test_every_role_has_its_nodes_and_no_others(name: str) -> None:
    deployment = DeploymentSettings.read(ROOT / f"configs/deployments/{name}.yaml")
    assert places(deployment) == {role: {pool} for role, pool in POOLS.items()}


def test_the_last_attempt_of_what_may_be_interrupted_goes_to_a_node_on_demand() -> None:
    deployment = DeploymentSettings.read(ROOT / "configs/deployments/gpu-4.yaml")
    pods = {role: pod.model_copy(update={"interruptible": False}) for role, pod in deployment.pods.items()}
    found = places(deployment.model_copy(update={"pods": pods}))
    assert found["rollout"] == found["evaluate"] == found["train"] == {"gpu-train"}


def test_every_roles_pod_has_the_flavor_of_its_pool() -> None:
    """Kueue takes the first flavor with labels and taints under which the pod may run."""
    documents = rendered("k8s/components/kueue")
    flavors, queues = named(documents, "ResourceFlavor"), named(documents, "ClusterQueue")
    order = [one["name"] for one in queues["mu-grpo"]["spec"]["resourceGroups"][0]["flavors"]]
    deployment = DeploymentSettings.read(ROOT / "configs/deployments/gpu-4.yaml")
    templates = named(objects_of("gpu-pool"), "PodTemplate")

    def allows(name: str, spec: Object) -> bool:
        flavor = flavors[name].get("spec", {})
        labels = {**flavor.get("nodeLabels", {}), deployment.accelerator_label: "nvidia-h200"}
        room = dict.fromkeys(requests(spec), "9T")
        node = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": room}}
        return match_node({**node, "spec": {"taints": flavor.get("nodeTaints", [])}}, spec, []).if_empty > 0

    for role, pool in POOLS.items():
        spec = role_pod(role, deployment, templates[deployment.pods[role].template])["spec"]
        assert next(one for one in order if allows(one, spec)) == f"mu-grpo-{pool.removeprefix('gpu-')}", role


def test_deployments_agree_with_flytes_settings() -> None:
    deployment = DeploymentSettings()
    found = values("values.yaml")["configuration"]["inline"]["plugins"]["k8s"]
    key, _, value = deployment.spot_label.partition("=")
    toleration = {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
    assert found["interruptible-tolerations"] == [toleration]
    for name, operator in (("interruptible", "In"), ("non-interruptible", "NotIn")):
        assert found[f"{name}-node-selector-requirement"] == {"key": key, "operator": operator, "values": [value]}
    assert found["gpu-device-node-label"] == deployment.accelerator_label
    template = found["default-pod-template-name"]
    assert yaml.safe_load((ROOT / "k8s/base/pod-templates/cpu.yaml").read_text())["metadata"]["name"] == template
