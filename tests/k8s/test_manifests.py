"""What kustomize makes of k8s/: valid, and right in what only an API server would otherwise tell."""

import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tasks.cluster.api import Permission, required_permissions
from tasks.flyte.training import SHUTDOWN_SECONDS
from tasks.process.interruption import CALL_SECONDS
from tasks.settings import OperationSettings
from tasks.settings.deployment import ROLES, DeploymentSettings, quantity
from tests.preflight.clusters import NAMESPACE, rendered
from tools import ROOT

Document = dict[str, Any]
OVERLAYS = {"demo": ["demo"], "development": ["development"], "gpu-pool": ["gpu-1", "gpu-4", "gpu-8"]}
BUILT_IN = re.compile(r"^(v1|[a-z]+/v\d|[a-z.]+\.k8s\.io/v1)$")
CHECKPOINT_BYTES_PER_WEIGHT, SLOW_STORE = 12, 200e6


@pytest.fixture(scope="module", params=sorted(OVERLAYS))
def overlay(request: pytest.FixtureRequest) -> tuple[str, list[Document]]:
    return request.param, rendered(f"k8s/overlays/{request.param}")


def named(documents: list[Document], kind: str) -> dict[str, Document]:
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def test_every_manifest_matches_its_schema(overlay: tuple[str, list[Document]]) -> None:
    built_in = [document for document in overlay[1] if BUILT_IN.match(document["apiVersion"])]
    assert len(built_in) >= 15
    for document in built_in:
        kubernetes_validate.validate(document, "1.33", strict=True)


def test_every_pod_meets_the_restricted_pod_security_standard(overlay: tuple[str, list[Document]]) -> None:
    found = {name: one["template"]["spec"] for name, one in named(overlay[1], "PodTemplate").items()}
    found |= {name: one["spec"]["template"]["spec"] for name, one in named(overlay[1], "Deployment").items()}
    assert len(found) >= 5
    for name, pod in found.items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            volumes = {volume["name"] for volume in pod["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
        assert all("hostPath" not in volume for volume in pod["volumes"])
    for namespace in named(overlay[1], "Namespace").values():
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_accounts_and_priorities_of_pods_exist(overlay: tuple[str, list[Document]]) -> None:
    documents = overlay[1]
    accounts, priorities = named(documents, "ServiceAccount"), named(documents, "PriorityClass")
    for name, template in named(documents, "PodTemplate").items():
        spec = template["template"]["spec"]
        assert spec["serviceAccountName"] in accounts
        assert spec["priorityClassName"] in priorities
        # Flyte takes it over, and the server would make it Always for an image without a tag.
        assert {one["imagePullPolicy"] for one in spec["containers"]} == {"IfNotPresent"}
        assert template["template"]["metadata"]["labels"]["mu-grpo/role"] == name.removeprefix("mu-grpo-")
        for toleration in spec.get("tolerations", []):
            assert toleration["operator"] in ("Exists", "Equal")
            assert ("value" in toleration) == (toleration["operator"] == "Equal")
    order = [priorities[f"mu-grpo-{name}"]["value"] for name in ("train", "step", "evaluate", "rollout")]
    assert order == sorted(set(order), reverse=True)


def test_deployments_find_their_templates_and_fit_the_quota(overlay: tuple[str, list[Document]]) -> None:
    name, documents = overlay
    hard = named(documents, "ResourceQuota")["mu-grpo"]["spec"]["hard"]
    limits = {key: quantity(value) for key, value in hard.items()}
    for deployment in OVERLAYS[name]:
        found = DeploymentSettings.read(ROOT / f"configs/deployments/{deployment}.yaml")
        for role in ROLES:
            assert found.pods[role].template in named(documents, "PodTemplate")
        # The widest moment of a run: a training beside the shards of an evaluation.
        together = [found.pods["train"], found.pods["evaluate"], found.pods["rollout"], found.pods["verify"]]
        assert sum(quantity(pod.cpu) for pod in together) <= limits["requests.cpu"]
        assert sum(quantity(pod.memory) for pod in together) <= limits["requests.memory"]
        assert sum(quantity(pod.ephemeral_storage) for pod in together) <= limits["requests.ephemeral-storage"]
        assert sum(pod.gpus for pod in together) <= limits["requests.nvidia.com/gpu"]


def test_network_policies_allow_the_named_traffic_alone(overlay: tuple[str, list[Document]]) -> None:
    policies = named(overlay[1], "NetworkPolicy")
    assert policies["default-deny"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}

    def selects(policy: Document, role: str) -> bool:
        selector = policy["spec"]["podSelector"]
        labels = selector.get("matchLabels", {})
        return labels in ({}, {"mu-grpo/role": role}) and all(
            one["key"] == "mu-grpo/role" and (one["operator"] == "Exists" or role in one.get("values", []))
            for one in selector.get("matchExpressions", [])
        )

    reaches = {
        role: {name for name, policy in policies.items() if selects(policy, role) and policy["spec"].get("egress")}
        for role in ROLES
    }
    for role in ("verify", "cpu", "rollout", "evaluate"):
        assert reaches[role] == {"allow-dns", "allow-store"}
    (tracker,) = rendered("k8s/components/tracker")
    assert [role for role in ROLES if selects(tracker, role)] == ["evaluate", "train"]
    assert reaches["prefetch"] == {"allow-dns", "allow-store", "allow-hub"}
    assert [role for role, reached in reaches.items() if "allow-hub" in reached] == ["prefetch"]
    for rule in (*policies["allow-hub"]["spec"]["egress"], *tracker["spec"]["egress"]):
        for peer in rule["to"]:  # The cluster itself is neither, also where its pods have shared addresses.
            assert {"10.0.0.0/8", "100.64.0.0/10"} <= {*peer["ipBlock"]["except"]}


def test_a_checkpoint_of_7b_fits_into_the_grace_period(overlay: tuple[str, list[Document]]) -> None:
    train = named(overlay[1], "PodTemplate")["mu-grpo-train"]["template"]
    grace, seconds = train["spec"]["terminationGracePeriodSeconds"], 7e9 * CHECKPOINT_BYTES_PER_WEIGHT / SLOW_STORE
    assert grace > 2 * seconds
    # The processes of a group are killed by torch, before the pod is.
    assert 1.9 * seconds < SHUTDOWN_SECONDS <= grace - 60
    assert train["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


@pytest.mark.parametrize(("name", "weights"), [("gpu-1", 7.62e9), ("gpu-4", 7.62e9), ("gpu-8", 32.76e9)])
def test_the_disk_of_training_holds_its_policies_and_checkpoints(name: str, weights: float) -> None:
    """The policy that it reads, the one that it writes, and the checkpoints that are kept with one being written."""
    pod = DeploymentSettings.read(ROOT / f"configs/deployments/{name}.yaml").pods["train"]
    states = 2 + OperationSettings().checkpoints_kept + 1
    assert quantity(pod.ephemeral_storage) > states * weights * CHECKPOINT_BYTES_PER_WEIGHT


@pytest.mark.parametrize("role", ["rollout", "evaluate"])
def test_a_call_of_an_engine_ends_within_the_grace_period(overlay: tuple[str, list[Document]], role: str) -> None:
    template = named(overlay[1], "PodTemplate")[f"mu-grpo-{role}"]["template"]
    assert template["spec"]["terminationGracePeriodSeconds"] - 20 >= CALL_SECONDS


def test_the_optional_parts_of_the_overlay_need_only_their_marks_removed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    folder = tmp_path / "k8s/overlays/gpu-pool"
    text = (folder / "kustomization.yaml").read_text()
    changed, number = re.subn(r"^( +)# (?=- |  path: |  value: )", r"\1", text, flags=re.MULTILINE)
    assert number == 7
    (folder / "kustomization.yaml").write_text(changed)
    documents = rendered(str(folder))
    assert "allow-tracker" in named(documents, "NetworkPolicy")
    assert named(documents, "PrometheusRule")
    assert named(documents, "ClusterQueue")
    for account in named(documents, "ServiceAccount").values():
        assert account["imagePullSecrets"] == [{"name": "registry"}]
        assert account["metadata"]["annotations"]


def test_kueue_is_an_optional_component() -> None:
    documents = rendered("k8s/components/kueue")
    assert {one["apiVersion"] for one in documents} == {"kueue.x-k8s.io/v1beta2"}  # the only one that Kueue 0.20 serves
    flavors = named(documents, "ResourceFlavor")
    (group,) = named(documents, "ClusterQueue")["mu-grpo"]["spec"]["resourceGroups"]
    assert {one["name"] for one in group["flavors"]} == set(flavors)
    for flavor in group["flavors"]:
        # Kueue admits no pod that asks for a resource which is not covered.
        assert [one["name"] for one in flavor["resources"]] == group["coveredResources"]
        assert set(group["coveredResources"]) == {"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"}
    assert named(documents, "LocalQueue")["default"]["spec"]["clusterQueue"] == "mu-grpo"


def test_the_preflight_role_grants_exactly_its_permissions() -> None:
    granted = set[Permission]()
    for role in rendered("k8s/components/preflight"):
        kubernetes_validate.validate(role, "1.33", strict=True)
        for rule in role.get("rules", []):
            assert rule["apiGroups"] == [""]
            for verb, resource, name in product(rule["verbs"], rule["resources"], rule.get("resourceNames", [""])):
                granted.add(Permission(verb, resource, role["metadata"].get("namespace", ""), name))
    assert granted == set(required_permissions(NAMESPACE, "mu-grpo").values())
