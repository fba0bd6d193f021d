"""The plan ``smoke`` on a Flyte: what it makes, how it looks there, and that nothing of it is done twice."""

from concurrent.futures import Future

import pytest

from tests.flyte.cluster import Cluster, task_of
from tests.flyte.conftest import Artifacts, Smoke

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def test_smoke_makes_the_artifacts_of_a_local_run(smoke: Smoke, tiny_run: Future[Artifacts], cluster: Cluster) -> None:
    assert smoke.seen.phase == "succeeded"
    assert "stage 4" in smoke.output
    there = cluster.artifacts(smoke.store)
    assert all(there.values())
    assert there == tiny_run.result()
    # Flyte keeps an execution as one object of Kubernetes, whose size has a limit.
    assert 0 < max(smoke.sizes, default=0) < 64 * 1024, f"{smoke.sizes} bytes"


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
