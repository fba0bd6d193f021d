"""Runs that lose pods, are terminated, or whose store goes away: they end as runs that nothing disturbed."""

from concurrent.futures import Future

import pytest

from tasks.flyte.remote import Execution
from tasks.store import ArtifactRef
from tests.flyte.cluster import Cluster, can_stop, commands_of, foreign, take_away, until
from tests.flyte.conftest import SMALL, Artifacts

OUTAGES = {"STORE": "prepare-policy", "DATABASE": "map-generate"}
"""What is taken away, and the task that runs then."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def attempts(cluster: Cluster, execution: Execution, path: str) -> int:
    """How often a node was tried."""
    (node,) = [one for one in execution.state().nodes if one.path == path]
    return len(node.attempts)


def test_deleted_and_killed_pods_are_replaced_by_resuming_ones(small_run: Future[Artifacts], cluster: Cluster) -> None:
    execution = cluster.start("workflows.mu_grpo.mu_grpo_1", **SMALL)
    store = cluster.store_of(execution.name)
    cluster.delete(cluster.running(execution, "prepare-policy"))
    generating = cluster.running(execution, "map-generate")
    cluster.kill(generating)
    with cluster.watched(store) as written:
        training = cluster.running(execution, "optimize")
        first = until("state of the training", lambda: sorted(written), 300)
        cluster.delete(training)
        cluster.ended(execution)
    assert attempts(cluster, execution, "base-policy") == 2
    assert attempts(cluster, execution, "stage-1 / optimize") == 2
    # Flyte deletes the pod of a failed attempt in a map task; the next one's name ends with the next number.
    assert f"{generating.metadata.name.removesuffix('0')}1" in {pod.metadata.name for pod in cluster.pods(execution)}
    assert first
    assert not {key: times for key, times in written.items() if len(times) > 1}, "a state was made again"
    there = cluster.artifacts(store)
    assert not foreign(there, small_run.result())
    assert len(there["policy"]) == 2


@pytest.fixture(scope="module")
def outlasted(recovered_run: Future[tuple[Execution, str]], cluster: Cluster) -> dict[str, set[ArtifactRef]]:
    """What a run made whose store was away for a minute, and then its database: those that can be stopped."""
    recovered_run.result()  # Flyte terminates and recovers nothing while its database is away.
    execution = cluster.start("workflows.mu_grpo.mu_grpo_1", **SMALL)
    for what, task in OUTAGES.items():
        if can_stop(what):
            cluster.running(execution, task)
            take_away(what, 60)
    cluster.ended(execution)
    return cluster.artifacts(cluster.store_of(execution.name))


@pytest.mark.parametrize("what", OUTAGES)
def test_an_outage_of_a_minute_ends_no_execution(
    what: str, small_run: Future[Artifacts], request: pytest.FixtureRequest
) -> None:
    if not can_stop(what):
        pytest.skip(f"{' and '.join(commands_of(what))} name no commands that stop and start the {what.lower()}")
    there = request.getfixturevalue("outlasted")
    assert not foreign(there, small_run.result())
    assert len(there["policy"]) == 2


def test_an_execution_terminated_in_its_second_stage_is_recovered(
    recovered_run: Future[tuple[Execution, str]], small_run: Future[Artifacts], cluster: Cluster
) -> None:
    execution, store = recovered_run.result()
    seen = cluster.ended(execution)
    stage_1 = [node for node in seen.nodes if node.path.startswith("stage-1 / ") and "evaluate" not in node.path]
    assert stage_1 or any(node.path == "stage-1" and node.phase == "recovered" for node in seen.nodes)
    assert all(node.cached or node.phase == "recovered" for node in stage_1)
    assert cluster.artifacts(store) == small_run.result()
