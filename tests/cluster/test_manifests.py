"""A real API server accepts k8s/ without changes, and its accounts have only the permissions that they need."""

from typing import Any

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane
from tests.preflight.api_server import Objects
from tests.preflight.clusters import NAMESPACE, rendered

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:mu-grpo"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
KINDS = ("pods", "secrets", "configmaps", "nodes", "podtemplates", "serviceaccounts", "resourcequotas", "namespaces")
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


def may(api: Api, account: str, verb: str, resource: str) -> bool:
    """Return whether the server's authorizer allows an action to the account of a pod."""
    action = {"verb": verb, "resource": resource, "namespace": NAMESPACE}
    user = {"user": account, "groups": ["system:serviceaccounts", "system:authenticated"]}
    review = {"kind": "SubjectAccessReview", "metadata": {}, "spec": {**user, "resourceAttributes": action}}
    return bool(api.create(review).json()["status"]["allowed"])


@pytest.mark.parametrize("name", ["step", "prefetch"])
def test_accounts_of_pods_may_do_nothing(name: str, plane: ControlPlane, pool: list[Object]) -> None:
    api = Api(plane)
    assert [(verb, one) for verb in VERBS for one in KINDS if may(api, f"{ACCOUNT}-{name}", verb, one)] == []


def test_what_names_no_sizes_is_given_those_of_the_limit_range(plane: ControlPlane, pool: list[Object]) -> None:
    template = Objects(pool).find("PodTemplate", "mu-grpo-cpu")["template"]
    metadata = {**template["metadata"], "name": "sizeless", "namespace": NAMESPACE}
    api, pod = Api(plane), {"kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    made = api.create(pod).json()
    api.delete(pod)
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "256Mi"},
        "limits": {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
    }
