"""A preflight on a real API server finds what stops a run, with the same messages as on the simulated one."""

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane
from tests.preflight.api_server import SECRET, Objects
from tests.preflight.clusters import NAMESPACE
from tests.preflight.conftest import Ask, Findings
from tests.preflight.spoiled import REFUSED, WRONG, Wrong, rows_not_ok, small_quota
from tests.waiting import until

SUPPORTED = (1, 28)


def asked(plane: ControlPlane, ask: Ask, **target: object) -> Findings:
    """Run a preflight as a user who has the component's roles and no others."""
    return ask(plane, kubeconfig=plane.kubeconfig("researcher"), **target)


def wrong(plane: ControlPlane, found: Findings) -> dict[str, str]:
    """Return the rows that are not ok, and check the row of the server's version."""
    rows = rows_not_ok(found)
    assert (rows.pop("API server", "ok") == "failed") == (plane.version < SUPPORTED)
    return rows


def test_a_right_cluster(plane: ControlPlane, pool: list[Object], ask: Ask) -> None:
    found = asked(plane, ask)
    assert not wrong(plane, found)
    assert found["API server"].found.endswith(f"Kubernetes {plane.git_version}")
    if plane.version < SUPPORTED:
        assert found["API server"].fix == "Upgrade the cluster to 1.28 or newer"
    assert found["permissions"].found == "all 6 required permissions"
    assert found["secrets"].found == "mu-grpo: hub-token, wandb-api-key"
    assert found["nodes for rollout"].found == "fits 2 of 5 nodes; room for 14 now"
    assert found["nodes for train"].found == "fits 1 of 5 nodes; room for 2 now"
    assert SECRET not in str(found)


@pytest.mark.parametrize("case", [*WRONG.values(), *REFUSED.values()], ids=[*WRONG, *REFUSED])
def test_a_fault_is_named_with_its_fix_and_there_is_none_after_the_repair(
    case: Wrong, plane: ControlPlane, pool: list[Object], ask: Ask
) -> None:
    if case in REFUSED.values() and (not plane.controls or plane.version < SUPPORTED):
        pytest.skip(f"Kubernetes {plane.git_version}, controllers {plane.controls}: not all of admission is here")
    by_quota, spoiled = case.spoil is small_quota, Objects(pool)
    case.spoil(spoiled)
    with Api(plane).changed(pool, spoiled.objects):
        until(lambda: not by_quota or counted(plane, "2"))
        found = asked(plane, ask)[case.row]
    assert found.state == "failed"
    assert case.found in found.found
    assert case.fix in found.fix
    until(lambda: not by_quota or counted(plane, "20"))
    assert not wrong(plane, asked(plane, ask)), "the fix is not enough"


def counted(plane: ControlPlane, gpus: str) -> bool:
    """Return True if the controllers have counted the quota."""
    quota = Api(plane).get("ResourceQuota", "mu-grpo", NAMESPACE)
    return bool(quota) and quota["status"].get("hard", {}).get("requests.nvidia.com/gpu") == gpus
