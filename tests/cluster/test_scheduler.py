"""Where a real scheduler puts pods is where the project says that they go: those of the tasks, and any others."""

from collections.abc import Iterator

import pytest
from flyteidl.admin import task_pb2

from tasks.settings.deployment import ROLES, Role
from tests.cluster.api import Api, Object, until
from tests.cluster.control_plane import ControlPlane
from tests.cluster.flyte_pods import pod_of
from tests.k8s.test_placement import POOLS
from tests.platform.test_serialised import role_of
from tests.preflight.api_server import Objects
from tests.preflight.clusters import NAMESPACE
from tests.preflight.spoiled import WRONG, Wrong, not_ready, occupied
from tools import ROOT
from tools.serialised import function_of, serialise

ROOM: dict[Role, int] = {"cpu": 16, "rollout": 14, "train": 2}
"""Room as ``mu-grpo preflight`` tells it of the same cluster (tests/preflight/test_right_clusters.py)."""
NOWHERE = {
    name: case
    for name, case in WRONG.items()
    # Taints for a node's state are what the scheduler looks at; a controller sets them, which does not run here.
    if case.row.startswith("nodes for ") and case.spoil is not not_ready
}


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Api:
    """Of a cluster that places pods."""
    if not plane.schedules:
        pytest.skip("no real scheduler here: beside kube-apiserver there is no kube-scheduler")
    return Api(plane)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, task_pb2.TaskSpec]:
    """What is registered for the paper's machine, by function."""
    found = serialise(tmp_path_factory.mktemp("package"), ROOT / "configs/deployments/gpu-4.yaml").tasks
    return {function_of(name): task for name, task in found.items()}


def made(api: Api, name: str, task: task_pb2.TaskSpec, last: bool = False) -> Object:
    """The task's pod, from the template that the cluster holds."""
    template = api.get("PodTemplate", task.template.metadata.pod_template_name, NAMESPACE)
    assert template is not None
    return pod_of(name.replace("_", "-"), task, template, last)


def settled(api: Api, pod: Object) -> str:
    """The node of a pod once the scheduler has looked at it; empty when it found none."""

    def looked_at() -> Object | None:
        found = api.get("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
        assert found is not None
        conditions = {one["type"]: one["status"] for one in found["status"].get("conditions", [])}
        return found if found["spec"].get("nodeName") or conditions.get("PodScheduled") == "False" else None

    return str(until(looked_at)["spec"].get("nodeName", ""))


def placed(api: Api, pod: Object) -> str:
    """The node that a pod is given, from which it is taken again."""
    answer = api.create(pod)
    assert answer.ok, answer.text
    try:
        return settled(api, pod)
    finally:
        api.delete(pod)


def test_every_tasks_pod_goes_to_its_roles_nodes(
    api: Api, pool: list[Object], tasks: dict[str, task_pb2.TaskSpec]
) -> None:
    for name, task in tasks.items():
        assert placed(api, made(api, name, task)).startswith(f"{POOLS[role_of(name)]}-"), name
    assert {role_of(name) for name in tasks} == set(ROLES)


def test_the_last_attempt_of_what_may_be_interrupted_goes_to_a_node_on_demand(
    api: Api, pool: list[Object], tasks: dict[str, task_pb2.TaskSpec]
) -> None:
    for name in ("generate", "evaluate"):
        assert placed(api, made(api, name, tasks[name], last=True)) == "gpu-train-1"


@pytest.mark.parametrize("case", NOWHERE.values(), ids=NOWHERE)
def test_what_a_preflight_says_can_run_nowhere_is_not_placed(
    case: Wrong, api: Api, pool: list[Object], tasks: dict[str, task_pb2.TaskSpec]
) -> None:
    (name,) = [name for name in tasks if role_of(name) == case.row.removeprefix("nodes for ")][:1]
    spoiled = Objects(pool)
    case.spoil(spoiled)
    with api.changed(pool, spoiled.objects):
        assert placed(api, made(api, name, tasks[name])) == ""


@pytest.fixture
def wide_quota(api: Api, pool: list[Object]) -> Iterator[None]:
    """Room is asked of the nodes alone."""
    wide = Objects(pool)
    wide.find("ResourceQuota", "mu-grpo")["spec"]["hard"] = {"pods": "1k"}
    with api.changed(pool, wide.objects):
        yield


@pytest.mark.parametrize("role", ROOM)
@pytest.mark.usefixtures("wide_quota")
def test_as_many_fit_as_a_preflight_says(role: Role, api: Api, tasks: dict[str, task_pb2.TaskSpec]) -> None:
    (name,) = [name for name in tasks if role_of(name) == role][:1]
    pods = [made(api, f"{name}_{number}", tasks[name]) for number in range(ROOM[role] + 1)]
    try:
        for pod in pods:
            assert api.create(pod).ok
        assert sum(bool(settled(api, pod)) for pod in pods) == ROOM[role]
    finally:
        for pod in pods:
            api.delete(pod)


def test_a_pod_waits_for_room(api: Api, pool: list[Object], tasks: dict[str, task_pb2.TaskSpec]) -> None:
    busy, pod = Objects(pool), made(api, "optimize", tasks["optimize"])
    occupied(busy, "gpu-train-1", 5)
    try:
        with api.changed(pool, busy.objects):
            assert api.create(pod).ok
            assert settled(api, pod) == ""
        until(lambda: settled(api, pod) == "gpu-train-1")
    finally:
        api.delete(pod)
