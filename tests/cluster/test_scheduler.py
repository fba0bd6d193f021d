"""A real scheduler places the pods of each role on the nodes for this role.

tests/platform/test_serialised.py tests that registered tasks request the pod of their role.
"""

from collections.abc import Iterator

import pytest

from tasks.cluster.nodes import role_pod
from tasks.settings.deployment import ROLES, DeploymentSettings, Role
from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane
from tests.k8s.test_placement import POOLS
from tests.preflight.api_server import Objects
from tests.preflight.clusters import NAMESPACE
from tests.preflight.spoiled import WRONG, Wrong
from tests.waiting import until
from tools import ROOT

DEPLOYMENT = DeploymentSettings.read(ROOT / "configs/deployments/gpu-4.yaml")
ROOM: dict[Role, int] = {"cpu": 16, "rollout": 14, "train": 2}
"""Number of pods that fit according to ``mu-grpo preflight`` (tests/preflight/test_command.py)."""
NOWHERE = {name: case for name, case in WRONG.items() if case.row.startswith("nodes for ")}


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Api:
    if not plane.schedules:
        pytest.skip("no real scheduler here: beside kube-apiserver there is no kube-scheduler")
    return Api(plane)


def pod_of(api: Api, role: Role, number: int = 0) -> Object:
    """Return a pod of a role, from the template in the cluster."""
    pod = role_pod(role, DEPLOYMENT, api.get("PodTemplate", DEPLOYMENT.pods[role].template, NAMESPACE))
    pod["metadata"] = {"labels": pod["metadata"]["labels"], "name": f"{role}-{number}", "namespace": NAMESPACE}
    return pod


def await_scheduler(api: Api, pod: Object) -> str:
    """Wait for the scheduler's decision, and return the node of a pod; empty if there is none for it."""

    def looked_at() -> Object | None:
        found = api.get("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
        conditions = {one["type"]: one["status"] for one in found["status"].get("conditions", [])}
        return found if found["spec"].get("nodeName") or conditions.get("PodScheduled") == "False" else None

    return str(until(looked_at)["spec"].get("nodeName", ""))


def scheduled_node(api: Api, pod: Object) -> str:
    answer = api.create(pod)
    assert answer.ok, answer.text
    try:
        return await_scheduler(api, pod)
    finally:
        api.delete(pod)


def test_every_roles_pod_goes_to_its_nodes(api: Api, pool: list[Object]) -> None:
    for role in ROLES:
        assert scheduled_node(api, pod_of(api, role)).startswith(f"{POOLS[role]}-"), role


@pytest.mark.parametrize("case", NOWHERE.values(), ids=NOWHERE)
def test_what_a_preflight_says_can_run_nowhere_is_not_placed(case: Wrong, api: Api, pool: list[Object]) -> None:
    (role,) = [role for role in ROLES if case.row == f"nodes for {role}"]
    spoiled = Objects(pool)
    case.spoil(spoiled)
    with api.changed(pool, spoiled.objects):
        assert scheduled_node(api, pod_of(api, role)) == ""


@pytest.fixture
def wide_quota(api: Api, pool: list[Object]) -> Iterator[None]:
    """Raise the quotas, so that only the nodes limit the pods."""
    wide = Objects(pool)
    for quota in wide.all("ResourceQuota"):
        quota["spec"]["hard"] = {"pods": "1k"}
    with api.changed(pool, wide.objects):
        yield


@pytest.mark.parametrize("role", ROOM)
@pytest.mark.usefixtures("wide_quota")
def test_as_many_fit_as_a_preflight_says(role: Role, api: Api) -> None:
    pods = [pod_of(api, role, number) for number in range(ROOM[role] + 1)]
    try:
        for pod in pods:
            assert api.create(pod).ok
        assert sum(bool(await_scheduler(api, pod)) for pod in pods) == ROOM[role]
    finally:
        for pod in pods:
            api.delete(pod)
