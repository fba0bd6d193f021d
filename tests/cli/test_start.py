"""Launch plans are started as they were registered, and an execution is followed to its end."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from flytekit.core.context_manager import FlyteContext
from flytekit.core.type_engine import TypeEngine
from flytekit.models.literals import LiteralMap

from tasks.cli import start as module
from tasks.cli.start import ChangeReporter, Options, describe_end, start
from tasks.errors import DeploymentError, SettingsError, UserError
from tasks.flyte.remote import Attempt, ExecutionState, Node
from tasks.report.history import EvaluatedPolicy
from tasks.report.summary import RunSummary
from tasks.settings import Given, OperationSettings
from tasks.store import ArtifactRef
from tests.cli.flyte_admin import Admin
from tests.cli.synthetic import run_command, run_refused
from tests.workflows.runs import words
from tools import ROOT
from tools.runs import MU_GRPO
from tools.s3 import free_port
from tools.serialised import Serialised, serialise

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
_TRACE = (
    "Trace:\n\n    Traceback (most recent call last):\n      ...\n    File x\n    Y: z Message: w\n\nMessage:\n\n    "
)
_KILLED = (
    "[2/2] Last Error: USER::Pod failed. No message received from kubernetes.\r\n[f1-x-0] terminated with exit code "
    "(137). Reason [OOMKilled]. Message: \n."
)
_MISSING = "no bucket. Create it, then start the same command again: committed artifacts are kept."
_RECOVERABLE = f"FlyteRecoverableException: USER:Recoverable: error=ArtifactError: {_MISSING}, cause={_MISSING}"


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Serialised:
    folder = tmp_path_factory.mktemp("registered")
    deployment = yaml.safe_load((ROOT / "configs/deployments/development.yaml").read_text())
    tiny = {"config": "configs/tiny-cpu.yaml"}
    deployment["launch_plans"] |= {"single_gpu": tiny, "weekly": {**tiny, "schedule": "0 3 * * 0"}}
    (folder / "deployment.yaml").write_text(yaml.safe_dump(deployment))
    return serialise(folder, folder / "deployment.yaml")


@pytest.fixture
def admin(registered: Serialised) -> Iterator[Admin]:
    with Admin(registered) as running:
        yield running


def options_of(config: Path, port: int) -> Options:
    """Options with a config that names a server of this machine."""
    config.write_text(
        f'admin: {{endpoint: "dns:///localhost:{port}", insecure: true}}\n'
        'console: {endpoint: "http://console.example:8088"}\n'
    )
    return Options(config, "mu-grpo", "development", None, None)


@pytest.fixture
def options(admin: Admin, tmp_path: Path) -> Options:
    return options_of(tmp_path / "flyte.yaml", admin.port)


def inputs(admin: Admin) -> dict[str, Any]:
    types = {"seed": int, "kickoff": datetime, "operation": Given[OperationSettings]}
    found = LiteralMap.from_flyte_idl(admin.created[-1].inputs).literals
    context = FlyteContext.current_context()
    return {name: TypeEngine.to_python_value(context, one, types.get(name, str)) for name, one in found.items()}


def test_a_plan_starts_with_given_inputs(admin: Admin, options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    start("smoke", ["seed=3", "operation={updates_per_checkpoint: 7}", "store=s3://b/c=d"], options, wait=False)
    (request,) = admin.created
    assert (request.spec.launch_plan.name, request.spec.launch_plan.version) == ("smoke", "v2")
    assert not request.spec.overwrite_cache
    given = inputs(admin)
    assert (given["seed"], given["store"]) == (3, "s3://b/c=d")
    assert given["operation"].model_dump() == {"updates_per_checkpoint": 7}
    told = capsys.readouterr().out
    assert "f1 started: smoke, version v2" in told
    assert "http://console.example:8088/console/projects/mu-grpo/domains/development/executions/f1" in told


def test_wrong_settings_that_overrides_correct_are_sent_to_the_workflow(admin: Admin, options: Options) -> None:
    wrong, right = "operation={updates_per_checkpoint: many}", "overrides=operation.updates_per_checkpoint=2"
    start("smoke", [wrong, right], options, wait=False)
    assert f"overrides={inputs(admin)['overrides']}" == right


@pytest.fixture
def east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose Mondays begin on the Sundays of UTC."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("east")
def test_options_reach_flyte(admin: Admin, options: Options) -> None:
    """A date is one of UTC, as in pyflyte and in schedules, so that a Monday is in its own week."""
    chosen = replace(options, version="v1", name="again-1", overwrite_cache=True)
    start("weekly", ["kickoff=2026-11-23"], chosen, wait=False)
    (request,) = admin.created
    assert (request.spec.launch_plan.version, request.name) == ("v1", "again-1")
    assert request.spec.overwrite_cache
    assert inputs(admin)["kickoff"] == datetime(2026, 11, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("plan", "given", "changes", "message"),
    [
        ("smoke", "policy={}", {}, "--set policy: smoke fixes it; allowed: operation, overrides, seed, store."),
        ("smoke", "sed=1", {}, "--set sed: smoke has no such input; allowed: operation, overrides, seed, store."),
        ("smoke", "optimize.preset=grpo", {}, '--set "overrides=optimize.preset=..."'),
        ("smoke", "seed=one", {}, "--set seed: got 'one'; allowed: a whole number."),
        ("smoke", "operation=3", {}, "--set operation: got '3'; allowed: an object"),
        ("smoke", "operation={'tagg':1}", {}, "operation.tagg: unknown field"),
        ("smoke", "seed", {}, "--set: got 'seed'; allowed: name=value"),
        ("smoke", "seed=1 seed=2", {}, "--set seed: given twice"),
        ("weekly", "", {}, "--set kickoff=...: weekly needs it"),
        ("weekly", "kickoff=today", {}, "--set kickoff: got 'today'; allowed: a time, as 2026-11-20"),
        ("smok", "", {}, "these are: single_gpu, smoke, weekly. Name one of them, or register"),
        ("smoke", "", {"version": "v7"}, "--version: smoke has no version v7 in mu-grpo, development"),
        ("smoke", "", {"version": "v7"}, "it has v2, v1"),
        ("smoke", "", {"project": "mine"}, "has no project mine; it has flytesnacks, mu-grpo"),
        ("smoke", "", {"domain": "test"}, "mu-grpo has no domain test; it has development, production"),
        ("smoke", "", {"domain": "production"}, "smoke: no launch plan is registered in mu-grpo, production"),
        ("smoke", "", {"name": "Not_A_Name"}, "refuses: invalid name format: Not_A_Name"),
    ],
)
def test_what_cannot_be_started_is_refused_with_what_is_allowed(
    plan: str, given: str, changes: dict[str, Any], message: str, admin: Admin, options: Options
) -> None:
    with pytest.raises(UserError) as raised:
        start(plan, given.split(" ") if given else [], replace(options, **changes), wait=False)
    assert message in raised.value.message
    assert not admin.created


def test_other_versions_of_flyte(admin: Admin, options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    admin.version = "v1.15.2"
    start("smoke", [], options, wait=False)
    assert "is v1.15.2; the workflows need Flyte 1.16.4 or a newer Flyte 1" in capsys.readouterr().err
    admin.version = "v2.0.1"
    with pytest.raises(DeploymentError, match=r"is v2\.0\.1; the workflows need Flyte 1"):
        start("smoke", [], options, wait=False)
    assert len(admin.created) == 1


def test_a_flyte_that_is_down_is_told_within_seconds(tmp_path: Path) -> None:
    config = options_of(tmp_path / "flyte.yaml", free_port()).config
    run_command("--help")  # The first program waits for the modules that all of them share.
    began = time.monotonic()
    told = run_refused("start", "smoke", "--config", str(config))
    assert time.monotonic() - began < 30
    assert f"{config}: no Flyte answers at localhost:" in told
    assert "Connection refused" in told


def test_a_server_that_is_no_flyte(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(DeploymentError, match="not as the admin of a Flyte 1 does"):
        start("smoke", [], options_of(tmp_path / "flyte.yaml", port), wait=False)
    server.stop(None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a file. Name one that holds admin: {endpoint"),
        ("", "has no admin.endpoint"),
        ("admin: {insecure: true}", "has no admin.endpoint"),
        ("just a text", "flyte.yaml"),
        ("admin: [1", "has no admin.endpoint"),
    ],
)
def test_configs_that_name_no_flyte(text: str | None, message: str, tmp_path: Path) -> None:
    config = tmp_path / "flyte.yaml"
    if text is not None:
        config.write_text(text)
    with pytest.raises(DeploymentError, match=message):
        start("smoke", [], Options(config, "mu-grpo", "development", None, None), wait=False)


def test_without_a_config_the_message_says_how_to_name_one(tmp_path: Path) -> None:
    told = run_refused("start", "smoke", HOME=str(tmp_path), FLYTECTL_CONFIG="")
    assert "no config of Flyte is found. Name a file with --config" in told


def test_a_missing_file_in_the_variable_does_not_lead_to_another_flyte(
    admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flytekit goes on with the file in the home folder."""
    (tmp_path / ".flyte").mkdir()
    options_of(tmp_path / ".flyte/config.yaml", admin.port)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FLYTECTL_CONFIG", str(tmp_path / "none.yaml"))
    with pytest.raises(DeploymentError, match=r"FLYTECTL_CONFIG: .*none\.yaml is not a file"):
        start("smoke", [], Options(None, "mu-grpo", "development", None, None), wait=False)
    assert not admin.created


def test_an_execution_is_followed_to_its_result(
    admin: Admin, options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    accuracy = {"value": 0.5, "low": 0.4, "high": 0.6}
    numbers = {"accuracy": accuracy, "pass": {"8": accuracy}, "response_tokens": 9.5, "truncated": 0.0, "problems": 64}
    policy = {"policy": ArtifactRef(kind="policy", digest="a"), "stage": 1, "updates": 16, "evaluations": []}
    evaluated = [EvaluatedPolicy(**numbers, **policy, k=8)]
    times = {"ledger": {"generate": 12.0}, "wall_clock": 60.0, "training": 50.0}
    summary = RunSummary(algorithm="mu_grpo", updates_per_rollout=16, seed=0, evaluated=evaluated, **times)
    kind = TypeEngine.to_literal_type(RunSummary)
    literal = TypeEngine.to_literal(FlyteContext.current_context(), summary, RunSummary, kind)
    admin.outputs.literals["o0"].CopyFrom(literal.to_flyte_idl())
    admin.node("open-run", "SUCCEEDED")
    admin.node("prompts", "SUCCEEDED", cached=True)
    admin.node("stage-1", "RUNNING")
    admin.node("n3", "RUNNING", inside="stage-1")
    admin.attempt("n3", "INITIALIZING", "ImagePullBackOff:\n  Back-off pulling image x", age=60)
    # flytekit asks four times before it gives up, so this is two questions.
    admin.tell("f1", "RUNNING", "RUNNING", *["ABORTING"] * 8, "RUNNING", "SUCCEEDED")
    start("smoke", [], options, wait=True)
    told = words(capsys.readouterr().out)
    assert told.count("Look at its database and its log. Retrying for") == 1
    for change in ("open-run succeeded in 0.0 s", "prompts found in the cache", "stage-1 running"):
        assert told.count(change) == 1
    assert told.count("stage-1 / n3 generate waits: ImagePullBackOff: Back-off pulling image x") == 1
    assert "mu_grpo, mu 16, seed 0: 16 updates in 60.0 s" in told


@pytest.mark.parametrize(
    ("on_node", "on_attempt", "message"),
    [
        (f"{_TRACE}GateError: nothing to learn", "", "verify: GateError: nothing to learn"),
        ("", f"{_TRACE}GateError: nothing to learn", "verify: GateError: nothing to learn"),
        (f"[4/4] Last Error: USER::{_TRACE}{_RECOVERABLE}", "", f"verify: ArtifactError: {_MISSING} Finished"),
        (_KILLED, "", "verify: [2/2] Last Error: USER::[f1-x-0] terminated with exit code"),
    ],
)
def test_a_failure_names_the_node_and_its_error(
    on_node: str, on_attempt: str, message: str, admin: Admin, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.node("stage-1", "FAILED", message="failed inside")
    admin.node("verify", "FAILED", inside="stage-1", message=on_node)
    admin.attempt("verify", "FAILED", "", age=0, message=on_attempt)
    for execution in ("f1", "f2"):
        admin.tell(execution, "FAILED", message="a node failed")
    with pytest.raises(UserError) as raised:
        start("smoke", [], options, wait=True)
    told = words(raised.value.message)
    assert f"f1 failed in stage-1 / {message}" in told
    assert "/executions/f1" in told
    assert words(capsys.readouterr().out).count("OOMKilled") == on_node.count("OOMKilled")
    told = run_refused("start", "smoke", "--config", str(options.config), "--wait")
    assert f"f2 failed in stage-1 / {message}" in told


def test_ctrl_c_leaves_it_going_and_says_how_to_follow_it_again(admin: Admin, options: Options) -> None:
    admin.node("open-run", "RUNNING")
    admin.tell("mine", "RUNNING")
    command = [MU_GRPO, "start", "smoke", "--config", str(options.config), "--wait", "--name", "mine"]
    own = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=own)
    first = [process.stdout.readline() for _ in range(3)]
    assert first[0] == "mine exists already and is not started again\n"
    assert "open-run" in first[2]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "mine is still running. To follow it again: mu-grpo start smoke --name mine --wait --config" in rest
    assert not admin.created


def test_a_name_that_is_taken_is_not_started_with_other_inputs_or_versions(admin: Admin, options: Options) -> None:
    admin.tell("mine", "RUNNING")
    for plan, given, version in (("smoke", ["seed=1"], None), ("weekly", [], None), ("smoke", [], "v1")):
        with pytest.raises(SettingsError, match="--name: mine is an execution of smoke, version v2, already"):
            start(plan, given, replace(options, name="mine", version=version), wait=False)
    assert not admin.created


def node(path: str, phase: str, *attempts: Attempt, error: str = "") -> Node:
    return Node(path, phase, 3.0, False, error, attempts)


def pod(phase: str, reason: str = "", ago: float = 60, number: int = 0, error: str = "") -> Attempt:
    return Attempt(number, phase, reason, (NOW - timedelta(seconds=ago)).replace(tzinfo=None), error)


def told(reporter: ChangeReporter, *nodes: Node) -> list[str]:
    return [words(line) for line in reporter.lines(ExecutionState("running", nodes, ""), NOW)]


def test_a_pod_that_waits_is_told_when_its_reason_changes() -> None:
    reporter = ChangeReporter()
    assert not told(reporter, node("a", "queued", pod("initializing", "ContainerCreating", ago=3)))
    assert not told(reporter, node("a", "running", pod("queued", ago=3)))
    pulling, unplaced = pod("initializing", "ErrImagePull"), pod("queued", "0/1 nodes are available")
    assert told(reporter, node("a", "queued", pulling)) == ["a waits: ErrImagePull"]
    assert told(reporter, node("a", "queued", unplaced)) == ["a waits: 0/1 nodes are available"]
    assert not told(reporter, node("a", "queued", pulling))
    assert told(reporter, node("a", "running", pod("running", "Started"))) == ["a running"]
    for ago, lines in ((3, 0), (60, 1), (70, 0)):  # Until Flyte gives it a pod: another execution does the same work.
        waiting = replace(node("b", "queued"), since=(NOW - timedelta(seconds=ago)).replace(tzinfo=None))
        assert len(told(reporter, waiting)) == lines


def test_an_attempt_that_failed_is_told_and_the_next_one_goes_on() -> None:
    reporter = ChangeReporter()
    killed = pod("failed", error="[1/1] currentAttempt done. pod was deleted\nmore")
    first = "a attempt 1 failed: [1/1] currentAttempt done. pod was deleted"
    assert told(reporter, node("a", "running", killed)) == [first, "a running"]
    assert not told(reporter, node("a", "running", killed, pod("running", number=1)))
    mapped = replace(pod("running"), failed_shards=((3, 0), (3, 1)))
    failed = [f"b shard 3, attempt {number} failed; see the log of its pod" for number in (1, 2)]
    assert told(reporter, node("b", "running", mapped)) == [*failed, "b running"]


def test_the_innermost_node_that_failed_is_named_unless_somebody_ended_the_execution() -> None:
    nodes = tuple(node(path, "failed", error=f"in {path[-1]}") for path in ("s", "s / t", "u"))
    assert describe_end(ExecutionState("failed", nodes, "all")).startswith("failed in s / t:\nin t\n")
    assert describe_end(ExecutionState("aborted", nodes, "by somebody")) == "aborted: by somebody"
    assert describe_end(ExecutionState("timed_out", (), "too late")) == "timed out: too late"
