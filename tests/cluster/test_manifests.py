"""A real API server accepts k8s/ without changes, and its accounts have only the permissions that they need."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Api, Object, until
from tests.cluster.control_plane import ControlPlane
from tests.k8s.flyte_values import values as flyte_values
from tests.preflight.api_server import Objects
from tests.preflight.clusters import NAMESPACE, rendered

POD_SECURITY = (1, 25)
"""The first version of Kubernetes that enforces Pod Security labels."""
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:mu-grpo"
SERVERS_OWN = {"stringData"}
"""Fields that the server converts into others."""


def within(sent: Any, stored: Any, place: str = "") -> list[str]:
    """Return the fields of a sent object that the stored object lacks or has with another value."""
    if isinstance(sent, dict):
        return [
            wrong
            for key, value in sent.items()
            if key not in SERVERS_OWN
            for wrong in within(value, (stored or {}).get(key), f"{place}.{key}")
        ]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [wrong for number, (a, b) in pairs for wrong in within(a, b, f"{place}[{number}]")]
    return [] if sent == stored or (not sent and stored is None) else [f"{place}: {sent!r} became {stored!r}"]


@pytest.mark.parametrize("overlay", ["development", "gpu-pool"])
def test_an_overlay_is_taken_as_it_is(overlay: str, plane: ControlPlane) -> None:
    """The command of docs/cluster.md applies an overlay to a cluster that has only Kubernetes' own objects."""
    plane.kubectl("apply", "-k", f"k8s/overlays/{overlay}")
    api, sent = Api(plane), rendered(f"k8s/overlays/{overlay}")
    assert len(sent) > 15
    for one in sent:
        stored = api.get(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", ""))
        assert within(one, stored) == [], one["metadata"]["name"]
    again = plane.kubectl("apply", "-k", f"k8s/overlays/{overlay}").splitlines()
    # kubectl always reports a secret that is given as text as changed.
    assert [line for line in again if not line.endswith(" unchanged") and not line.startswith("secret/")] == []


def test_flyte_leaves_the_labels_of_pod_security(plane: ControlPlane, tmp_path: Path) -> None:
    """Flyte patches a namespace as kubectl does, which removes applied fields that Flyte's template lacks."""
    base, template = "k8s/base/namespace.yaml", tmp_path / "namespace.yaml"
    plane.kubectl("apply", "-f", base)

    def after(*texts: str) -> str | None:
        for text in texts:
            template.write_text(text.replace("{{ namespace }}", NAMESPACE))
            plane.kubectl("apply", "-f", str(template))
        labels = Api(plane).get("Namespace", NAMESPACE)["metadata"].get("labels", {})
        return labels.get("pod-security.kubernetes.io/enforce")

    templates = flyte_values("values.yaml")["clusterResourceTemplates"]["inline"]
    assert after(templates["namespace.yaml"], templates["pod-security.yaml"]) == "restricted"
    # The template of Flyte's own charts.
    assert after('{apiVersion: v1, kind: Namespace, metadata: {name: "{{ namespace }}"}}') is None
    plane.kubectl("apply", "-f", base)


def may(api: Api, account: str, verb: str, resource: str) -> bool:
    """Return whether the server's authorizer allows an action to the account of a pod."""
    action = {"verb": verb, "resource": resource, "namespace": NAMESPACE}
    user = {"user": account, "groups": ["system:serviceaccounts", "system:authenticated"]}
    review = {"kind": "SubjectAccessReview", "metadata": {}, "spec": {**user, "resourceAttributes": action}}
    return bool(api.create(review).json()["status"]["allowed"])


VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
KINDS = ("pods", "secrets", "configmaps", "nodes", "podtemplates", "serviceaccounts", "resourcequotas", "namespaces")


@pytest.mark.parametrize("name", ["step", "prefetch"])
def test_accounts_of_pods_may_do_nothing(name: str, plane: ControlPlane, pool: list[Object]) -> None:
    api = Api(plane)
    assert [(verb, one) for verb in VERBS for one in KINDS if may(api, f"{ACCOUNT}-{name}", verb, one)] == []


def plain(pool: list[Object], template: str, name: str, **resources: str) -> Object:
    """Return a pod of a template, with sizes if they are given."""
    found = Objects(pool).find("PodTemplate", template)["template"]
    (container,) = found["spec"]["containers"]
    if resources:
        sizes = {key.replace("_", "-").replace("gpu", "nvidia.com/gpu"): value for key, value in resources.items()}
        container["resources"] = {"requests": sizes, "limits": sizes}
    metadata = {**found["metadata"], "name": name, "namespace": NAMESPACE}
    return {"kind": "Pod", "metadata": metadata, "spec": found["spec"]}


def test_pods_have_no_token(plane: ControlPlane, pool: list[Object]) -> None:
    api, pod = Api(plane), plain(pool, "mu-grpo-cpu", "tokenless")
    answer = api.create(pod)
    assert answer.ok, answer.text
    made = answer.json()
    api.delete(pod)
    assert made["spec"]["serviceAccountName"] == "mu-grpo-step"
    assert [one["name"] for one in made["spec"]["volumes"]] == ["scratch"]
    assert [one["name"] for one in made["spec"]["containers"][0]["volumeMounts"]] == ["scratch"]


def test_what_names_no_sizes_is_given_those_of_the_limit_range(plane: ControlPlane, pool: list[Object]) -> None:
    api, pod = Api(plane), plain(pool, "mu-grpo-cpu", "sizeless")
    made = api.create(pod).json()
    api.delete(pod)
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "256Mi"},
        "limits": {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
    }


def test_the_quota_stops_what_exceeds_it(plane: ControlPlane, pool: list[Object]) -> None:
    """The quota of 20 GPUs admits five trainings with 4 GPUs each, and no sixth."""
    if not plane.controls:
        pytest.skip("no controllers here to count what a quota has left")
    api = Api(plane)
    until(lambda: (api.get("ResourceQuota", "mu-grpo", NAMESPACE) or {})["status"].get("hard"))
    sizes = {"cpu": "1", "memory": "1Gi", "ephemeral_storage": "1Gi", "gpu": "4"}
    pods = [plain(pool, "mu-grpo-train", f"train-{number}", **sizes) for number in range(6)]
    try:
        answers = [api.create(pod) for pod in pods]
    finally:
        for pod in pods:
            api.delete(pod)
    assert [one.status_code for one in answers] == [201] * 5 + [403]
    message = answers[-1].json()["message"]
    assert "exceeded quota: mu-grpo, requested: requests.nvidia.com/gpu=4" in message


def test_pod_security_refuses_what_is_not_restricted(plane: ControlPlane, pool: list[Object], tmp_path: Path) -> None:
    if plane.version < POD_SECURITY:
        pytest.skip(f"Kubernetes {plane.git_version} does not enforce Pod Security; 1.25 does")
    api, pod = Api(plane), plain(pool, "mu-grpo-cpu", "insecure")
    assert api.create(pod).ok
    api.delete(pod)
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "allowPrivilegeEscalation" in api.create(pod).json()["message"]
