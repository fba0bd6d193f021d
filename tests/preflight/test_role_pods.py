"""A role's pod as Flyte merges it, and what Pod Security's profiles refuse in one."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tasks.preflight.records import PodSpec, PodTemplate, Secret
from tasks.preflight.role_pods import role_pods
from tasks.preflight.security import refused
from tasks.settings.deployment import ROLES, DeploymentSettings
from tests.cache_versions import ROOT
from tests.preflight.api_server import SECRET, Object
from tests.preflight.clusters import rendered

GI = 2**30 * 1000


def template(**spec: Any) -> PodTemplate:
    return PodTemplate.model_validate({"metadata": {"name": "mu-grpo-train"}, "template": {"spec": spec}})


def container(name: str, **values: Any) -> Object:
    return {"name": name, "image": "x", **values}


def train(made: PodTemplate, **pod: Any) -> Any:
    deployment = DeploymentSettings.parse({"pods": {"train": {"template": "mu-grpo-train", **pod}}})
    return role_pods(deployment, {"mu-grpo-train": made})["train"]


def test_the_deployments_sizes_lie_over_the_templates_containers() -> None:
    made = train(
        template(
            serviceAccountName="someone",
            priorityClassName="high",
            nodeSelector={"pool": "a"},
            overhead={"cpu": "250m"},
            initContainers=[container("default-init", resources={"requests": {"cpu": "64"}})],
            containers=[
                container(
                    "default",
                    resources={"requests": {"cpu": "1", "hugepages-2Mi": "1Gi"}, "limits": {"example.com/nic": "2"}},
                    securityContext={"allowPrivilegeEscalation": False, "runAsUser": 7},
                ),
                container("primary", securityContext={"runAsUser": 8}),
                container("sidecar", resources={"requests": {"cpu": "64"}}),
            ],
        ),
        **{"cpu": "4", "memory": "8Gi", "ephemeral_storage": "2Gi", "gpus": 2, "accelerator": "nvidia-h200"},
    )
    # Flyte takes neither the template's other containers nor its init containers.
    assert made.ask.requests == {
        "cpu": 4250,
        "memory": 8 * GI,
        "ephemeral-storage": 2 * GI,
        "nvidia.com/gpu": 2000,
        "hugepages-2Mi": GI,
        "example.com/nic": 2000,
        "pods": 1000,
    }
    (own,) = made.spec.containers
    assert (own.security_context.allow_privilege_escalation, own.security_context.run_as_user) == (False, 8)
    assert (made.spec.service_account_name, made.spec.priority_class_name) == ("someone", "high")
    assert made.ask.selector == {"pool": "a"}
    label = "k8s.amazonaws.com/accelerator"
    assert str(made.ask.accelerator) == f"{label}=nvidia-h200"
    assert [(one.key, one.value, one.effect) for one in made.ask.tolerations] == [(label, "nvidia-h200", "NoSchedule")]


def test_a_pod_without_an_accelerator_runs_beside_any() -> None:
    made = train(template(containers=[container("default")]), gpus=1)
    assert made.ask.accelerator is None
    assert str(made.ask.spot) == "mu-grpo/pool NotIn rollout"
    assert not made.ask.tolerations
    assert made.ask.terms is None


def test_roles_without_their_template_have_no_pod() -> None:
    deployment = DeploymentSettings.read(ROOT / "configs/deployments/gpu-4.yaml")
    templates = {
        one["metadata"]["name"]: PodTemplate.model_validate(one)
        for one in rendered("k8s/overlays/gpu-pool")
        if one["kind"] == "PodTemplate"
    }
    assert set(role_pods(deployment, templates)) == set(ROLES)
    del templates["mu-grpo-rollout"]
    assert set(role_pods(deployment, templates)) == set(ROLES) - {"rollout", "evaluate"}


def restricted() -> Object:
    found: Object = copy.deepcopy(
        next(
            one["template"]["spec"]
            for one in rendered("k8s/overlays/gpu-pool")
            if one["kind"] == "PodTemplate" and one["metadata"]["name"] == "mu-grpo-train"
        )
    )
    return found


def own(**context: Any) -> Object:
    spec = restricted()
    spec["containers"][0]["securityContext"] |= context
    return spec


def adding(capability: str) -> Object:
    return own(capabilities={"drop": ["ALL"], "add": [capability]})


def whole(**context: Any) -> Object:
    spec = restricted()
    spec["securityContext"] |= context
    return spec


def volume(**kind: Any) -> Object:
    spec = restricted()
    spec["volumes"].append({"name": "v", **kind})
    return spec


REFUSED: dict[str, tuple[Callable[[], Object], str, bool]] = {
    "host network": (lambda: {**restricted(), "hostNetwork": True}, "hostNetwork true", True),
    "host PID": (lambda: {**restricted(), "hostPID": True}, "hostPID true", True),
    "host IPC": (lambda: {**restricted(), "hostIPC": True}, "hostIPC true", True),
    "host path": (lambda: volume(hostPath={"path": "/"}), "volume v of hostPath", True),
    "privileged": (lambda: own(privileged=True), "privileged true", True),
    "capability": (lambda: adding("SYS_ADMIN"), "capabilities.add SYS_ADMIN", True),
    "unconfined": (lambda: own(seccompProfile={"type": "Unconfined"}), "seccompProfile.type Unconfined", True),
    "host port": (
        lambda: {**restricted(), "containers": [{**restricted()["containers"][0], "ports": [{"hostPort": 80}]}]},
        "hostPort",
        True,
    ),
    "volume": (lambda: volume(nfs={"server": "x", "path": "/"}), "volume v of nfs", False),
    "escalation": (lambda: own(allowPrivilegeEscalation=True), "allowPrivilegeEscalation not false", False),
    "root, allowed": (lambda: own(runAsNonRoot=False), "runAsNonRoot not true", False),
    "root": (lambda: whole(runAsUser=0), "runAsUser 0", False),
    "kept capabilities": (lambda: own(capabilities={"drop": ["CHOWN"]}), "capabilities.drop without ALL", False),
    "usual capability": (lambda: adding("CHOWN"), "capabilities.add CHOWN", False),
    "no seccomp": (
        lambda: whole(seccompProfile={}),
        "seccompProfile.type neither RuntimeDefault nor Localhost",
        False,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_pod_security_refuses_is_named(case: str) -> None:
    spec, field, by_baseline = REFUSED[case]
    pod = PodSpec.model_validate(spec())
    assert refused(pod, "restricted") == [field]
    assert refused(pod, "baseline") == ([field] if by_baseline else [])
    assert refused(pod, "privileged") == []


def test_what_pod_security_takes() -> None:
    taken = [
        restricted(),
        volume(secret={"secretName": "x"}),
        own(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    ]
    for spec in taken:
        assert refused(PodSpec.model_validate(spec), "restricted") == []


def test_a_secret_is_its_keys() -> None:
    found = Secret.model_validate({"metadata": {"name": "mu-grpo"}, "data": {"hub-token": SECRET}})
    assert found.keys == {"hub-token"}
    assert SECRET not in repr(found) + found.model_dump_json()
    with pytest.raises(ValueError, match="Secret") as error:
        Secret.model_validate({"metadata": {}, "data": {"hub-token": SECRET}})
    assert SECRET not in str(error.value)
