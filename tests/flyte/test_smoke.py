"""The plan ``smoke`` on a Flyte: what it makes, how it looks there, and that nothing of it is done twice."""

from concurrent.futures import Future

import pytest

from tests.flyte.cluster import Cluster, task_of
from tests.flyte.conftest import Artifacts, Smoke
from tests.k8s.policies import BUCKET, wrong

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def test_smoke_makes_the_artifacts_of_a_local_run(smoke: Smoke, tiny_run: Future[Artifacts], cluster: Cluster) -> None:
    assert smoke.seen.phase == "succeeded"
    assert "stage 4" in smoke.output
    there = cluster.artifacts(smoke.store)
    assert all(there.values())
    assert there == tiny_run.result()


def test_the_flyteworkflow_object_stays_small(smoke: Smoke) -> None:
    assert smoke.sizes
    assert max(smoke.sizes) < 64 * 1024, f"{max(smoke.sizes)} bytes"


def test_every_node_has_a_deck(smoke: Smoke, cluster: Cluster) -> None:
    """But for graphs, map tasks, of which Flyte shows none, and the two small steps at the ends."""
    without = []
    for node in cluster.node_closures(smoke.execution.name):
        name, metadata = node.metadata.spec_node_id, node.metadata
        if metadata.is_parent_node or metadata.is_array or name in ("open-run", "close-run"):
            continue
        if not node.closure.deck_uri or not cluster.exists(node.closure.deck_uri):
            without.append(node.id.node_id)
    assert not without


def test_every_key_is_within_the_policies(smoke: Smoke, cluster: Cluster) -> None:
    if cluster.bucket != BUCKET:
        pytest.skip(f"the policies are of the bucket {BUCKET}; this store is in {cluster.bucket}")
    keys = list(cluster.objects())
    assert any(smoke.execution.name in key for key in keys)
    assert not wrong(keys)


def test_a_second_execution_runs_uncached_tasks_alone(smoke: Smoke, again_run: Future[Smoke], cluster: Cluster) -> None:
    again = again_run.result()
    assert {task_of(pod) for pod in cluster.pods(again.execution)} == {"open-run", "close-run"}
    # Flyte keeps the cache of a map task by shard and not by node; that none of them has a pod is seen above.
    mapped = ("benchmarks", "generate")
    other = ("open-run", "close-run", *mapped)
    steps = [node for node in again.seen.nodes if node.path.rpartition(" / ")[2] not in other]
    graphs = {node.path.rpartition(" / ")[0] for node in again.seen.nodes}
    assert not [node.path for node in steps if not node.cached and node.path not in graphs]
    assert cluster.artifacts(smoke.store) == cluster.artifacts(again.store)
