"""What tests of a Flyte share: what is registered, a run here, and runs there that several tests look at."""

import json
import os
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tasks.flyte.remote import Execution, ExecutionState
from tasks.settings.deployment import DeploymentSettings
from tasks.store import ArtifactRef, Store
from tests.flyte.cluster import Cluster, made, missing, until
from tests.workflows.runs import assert_succeeded
from tools import ROOT
from tools.runs import CONFIG, Runner

CHANGES = "optimize.responses_per_update=16 operation.updates_per_checkpoint=1"
"""Of the smallest run, so that a training can be interrupted between two of its states."""
_SMALL = {name: json.dumps(values) for name, values in yaml.safe_load(CONFIG.read_text()).items()}
SMALL = {**_SMALL, "overrides": CHANGES}
"""The smallest run as inputs of a plan."""
Artifacts = dict[str, set[ArtifactRef]]
Pair = tuple[list[ExecutionState], str]
"""Two ended executions and their store."""
Reproduced = tuple[Execution, ExecutionState, float]
"""An execution, its end, and the seconds that it took."""
SMALL_STEP_MINUTES = 4
"""The time-out of a step of the role cpu in the second version; Flyte counts waiting for a free core, too."""
PLAN = "nightly_evaluation"


def deployment() -> Path:
    return ROOT / os.environ.get("MU_GRPO_DEPLOYMENT", "configs/deployments/development.yaml")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A Flyte with the workflows registered in a version of its own."""
    found = Cluster(f"t{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("flyte"), DeploymentSettings.read(deployment()))
    assert_succeeded(found.register(found.version, deployment()))
    return found


@dataclass
class Smoke:
    """The plan ``smoke``, started and followed by the command."""

    execution: Execution
    store: str
    output: str
    seen: ExecutionState
    sizes: list[int] = field(default_factory=list)
    """Of Flyte's record in the cluster, in bytes, as long as it ran."""


def follow(cluster: Cluster, name: str, store: str) -> Smoke:
    """Starts ``smoke`` by the command and follows it to its end."""
    words = ["mu-grpo", "start", "smoke", "--version", cluster.version, "--name", name, "--wait"]
    sizes: list[int] = []
    ended = threading.Event()

    def measure() -> None:
        while not ended.wait(2):
            if resource := cluster.resource(name):
                sizes.append(len(json.dumps(resource)))

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    done = cluster.run(*words, "--set", f"store={store}")
    ended.set()
    thread.join()
    assert_succeeded(done)
    execution = cluster.flyte.find(name)
    return Smoke(execution, store, done.stdout, execution.state(), sizes)


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """The runs that the chosen tests wait for, side by side: one alone leaves a cluster idle half the time."""
    if variable := missing():
        pytest.skip(f"{variable} is not set: tests/flyte asks a Flyte, and the cluster that it runs in")
    here = ("small_run", "tiny_run")
    there = ("smoke_run", "pair_run", "recovered_run", "reproduction_run", "page_run", "again_run")
    chosen = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    for name in (*here, *there):
        if name in chosen:
            request.getfixturevalue(name)


@pytest.fixture(scope="session")
def beside() -> Iterator[Executor]:
    """Follows several executions on the cluster at once."""
    with ThreadPoolExecutor(16) as executor:
        yield executor


@pytest.fixture(scope="session")
def here() -> Iterator[Executor]:
    """Makes runs on this machine, one at a time."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="session")
def tiny_run(here: Executor, tmp_path_factory: pytest.TempPathFactory) -> Future[Artifacts]:
    """What the run of configs/tiny-cpu.yaml makes on this machine."""
    return here.submit(_make_here, tmp_path_factory.mktemp("tiny"), ROOT / "configs/tiny-cpu.yaml", "mu_grpo")


@pytest.fixture(scope="session")
def small_run(here: Executor, tmp_path_factory: pytest.TempPathFactory) -> Future[Artifacts]:
    """What the smallest run makes on this machine in two stages; one stage makes a part of it."""
    return here.submit(_make_here, tmp_path_factory.mktemp("small"), CONFIG, "mu_grpo_2", "--overrides", CHANGES)


def _make_here(folder: Path, config: Path, workflow: str, *options: str) -> Artifacts:
    runner = Runner(folder, config)
    # As in pods: with another number of threads the last bits of log-probabilities differ.
    words = ["env", "-u", "OMP_NUM_THREADS", *runner.command(workflow, *options)]
    assert_succeeded(subprocess.run(words, cwd=folder, env=runner.environment, capture_output=True, text=True))
    return made(Store.open(runner.store))


@pytest.fixture(scope="session")
def smoke_run(cluster: Cluster, beside: Executor) -> Future[Smoke]:
    """``smoke``, for the first time in its store."""
    name = f"{cluster.version}-smoke"
    run = beside.submit(follow, cluster, name, cluster.store_of(name))
    execution = until("smoke", lambda: cluster.flyte.find(name), 120)
    cluster.running(execution, "prepare-policy")  # The longest step of all gets a core before other runs begin.
    return run


@pytest.fixture(scope="session")
def smoke(smoke_run: Future[Smoke]) -> Smoke:
    """``smoke`` when it has ended."""
    return smoke_run.result()


@pytest.fixture(scope="session")
def again_run(smoke_run: Future[Smoke], cluster: Cluster, beside: Executor) -> Future[Smoke]:
    """``smoke`` once more in its store."""
    return beside.submit(lambda: follow(cluster, f"{cluster.version}-again", smoke_run.result().store))


@pytest.fixture(scope="session")
def page_run(
    smoke_run: Future[Smoke], cluster: Cluster, beside: Executor
) -> list[Future[subprocess.CompletedProcess[str]]]:
    """The three parts with which docs/cluster.md registers and starts, side by side in the store of ``smoke``."""
    page = (ROOT / "docs/cluster.md").read_text()
    section = page.partition("\n## Register and start\n")[2].partition("\n## ")[0]
    commands = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    assert len(commands) == 3

    def run(part: str) -> subprocess.CompletedProcess[str]:
        store = smoke_run.result().store
        here = cluster.changed_deployment(f"page-{commands.index(part)}", store=store)
        given = {"VERSION": f"{cluster.version}-page", "STORE": store}
        return cluster.run("bash", "-euxc", part, deployment=here, **given)

    return [beside.submit(run, part) for part in commands]


@pytest.fixture(scope="session")
def pair_run(cluster: Cluster, beside: Executor) -> Future[Pair]:
    """The smallest run of one stage, twice at once in the same store."""

    def run() -> Pair:
        store = cluster.store_of("pair")
        both = [cluster.start("workflows.mu_grpo.mu_grpo_1", **SMALL, store=store) for _ in range(2)]
        return [cluster.ended(execution) for execution in both], store

    return beside.submit(run)


@pytest.fixture(scope="session")
def recovered_run(cluster: Cluster, beside: Executor) -> Future[tuple[Execution, str]]:
    """The smallest run of two stages, terminated in its second; the execution that recovers it, and its store."""

    def run() -> tuple[Execution, str]:
        execution = cluster.start("workflows.mu_grpo.mu_grpo_2", **SMALL)

        def in_stage_2() -> bool:
            return any(one.path == "stage-2 / generate" and one.phase == "running" for one in execution.state().nodes)

        until("second stage", in_stage_2, 1800)
        cluster.terminate(execution)
        cluster.ended(execution, "aborted")
        return cluster.recover(execution, f"{execution.name}r"), cluster.store_of(execution.name)

    return beside.submit(run)


@pytest.fixture(scope="session")
def second(cluster: Cluster) -> str:
    """A version that evaluates a policy of the pair every minute, and whose small steps have little time."""
    version, pods = f"{cluster.version}-2", cluster.deployment.model_dump(mode="json")["pods"]
    pods["cpu"]["timeout_minutes"] = SMALL_STEP_MINUTES
    plans = {
        PLAN: {"config": "tools/small.yaml", "schedule": "* * * * *"},
        "reproduction": {"config": "tests/flyte/reproduce.yaml", "schedule": "0 0 1 1 *"},
    }
    changed = cluster.changed_deployment("second", store=cluster.store_of("pair"), pods=pods, launch_plans=plans)
    assert_succeeded(cluster.register(version, changed))
    return version


@pytest.fixture(scope="session")
def reproduction_run(second: str, pair_run: Future[Pair], cluster: Cluster, beside: Executor) -> Future[Reproduced]:
    """The plan ``reproduction``, once the pair has ended: among all runs its small steps would wait too long."""

    def run() -> Reproduced:
        pair_run.result()
        execution, began = cluster.start("reproduction", second), time.monotonic()
        return execution, cluster.ended(execution), time.monotonic() - began

    return beside.submit(run)
