"""Versions and plans: one registered twice, a schedule, a reproduction, and what docs/cluster.md tells to type."""

import subprocess
from concurrent.futures import Future
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from flytekit.models.filters import Equal

from tests.flyte.cluster import DOMAIN, PROJECT, Cluster, until
from tests.flyte.conftest import PLAN, SMALL_STEP_MINUTES, Pair, Reproduced, deployment
from tests.workflows.runs import assert_succeeded

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def switch(cluster: Cluster, how: str, version: str) -> None:
    """Activates or deactivates the plan with the schedule."""
    place = ("--project", PROJECT, "--domain", DOMAIN)
    assert_succeeded(cluster.run("pyflyte", "launchplan", *place, how, PLAN, version))


def scheduled(cluster: Cluster, version: str) -> list[Any]:
    """The executions that the schedule started, the first one first."""
    filters = [Equal("launch_plan.name", PLAN), Equal("launch_plan.version", version)]
    found, _ = cluster.remote.client.list_executions_paginated(PROJECT, DOMAIN, limit=100, filters=filters)
    return sorted(found, key=lambda one: one.closure.created_at)


@pytest.fixture(scope="module")
def by_schedule(second: str, pair_run: Future[Pair], cluster: Cluster) -> list[Any]:
    """The ended executions of a schedule that was on until two had succeeded."""

    def two_done() -> bool:
        return [one.closure.phase for one in scheduled(cluster, second)].count(4) >= 2  # succeeded

    pair_run.result()  # whose policy is evaluated
    switch(cluster, "--activate", second)
    try:
        until("two executions by schedule", two_done, 900)
    finally:
        switch(cluster, "--deactivate", second)
    until("end of the last one", lambda: all(one.closure.phase >= 4 for one in scheduled(cluster, second)), 600)
    return scheduled(cluster, second)


def test_the_same_version_is_registered_twice(cluster: Cluster) -> None:
    assert_succeeded(cluster.register(cluster.version, deployment()))
    assert cluster.flyte.plan("smoke", cluster.version).name == "smoke"


def test_a_schedule_of_every_minute_never_runs_twice_at_once(by_schedule: list[Any]) -> None:
    assert {one.spec.metadata.mode for one in by_schedule} == {1}  # scheduled
    for earlier, later in pairwise(by_schedule):
        assert earlier.closure.created_at + earlier.closure.duration <= later.closure.created_at + timedelta(seconds=1)


def test_a_reproduction_outlasts_the_time_of_a_small_step(reproduction_run: Future[Reproduced]) -> None:
    execution, seen, seconds = reproduction_run.result()
    assert seconds > 60 * SMALL_STEP_MINUTES
    assert not [node.path for node in seen.nodes if node.phase == "timed_out"]
    assert "grpo" in execution.result()


def test_the_commands_of_the_page_are_right(page_run: list[Future[subprocess.CompletedProcess[str]]]) -> None:
    ended = [assert_succeeded(part.result()) for part in page_run]
    assert any("stage 4" in done.stdout for done in ended)
