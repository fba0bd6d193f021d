"""The registered form of every task and of the stages: all that a cluster is told of them."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from flyteidl.core import tasks_pb2
from flytekit import FlyteContext
from flytekit.core.type_engine import TypeEngine
from flytekit.models.literals import Literal

from tasks.cluster.preflight import roles_of, workflow_of
from tasks.errors import SettingsError
from tasks.process.provenance import code
from tasks.settings import EngineSettings, Given, OptimizeSettings, RunSettings
from tasks.settings.deployment import ROLES, DeploymentSettings, Role, quantity
from tasks.settings.experiment import read_experiment
from tools.cache_versions import ROOT, declared, version
from tools.serialised import Serialised, function_of, serialise
from workflows import launch_plans
from workflows.evaluation import evaluation
from workflows.launch_plans import PLANS

JUDGING = ("prepare_benchmark", "prepare_training_set", "verify", "evaluate", "alternate", "study")
UNROLLED = ("stages_from", "every_run", "every_question")
MAPPED = ("generate", "evaluate", "verify", "prepare_benchmark")
ROLE_OF: dict[str, Role] = {
    **{"generate": "rollout", "verify": "verify", "evaluate": "evaluate"},
    **dict.fromkeys(("prepare_policy", "prepare_benchmark", "prepare_training_set"), "prefetch"),
    **dict.fromkeys(("open_run", "open_evaluation"), "prefetch"),  # They look up commits on the hub.
    **dict.fromkeys(("optimize", "alternate", "study"), "train"),
}
Kind = tasks_pb2.Resources
Registered = tuple[DeploymentSettings, Serialised]


@pytest.fixture(scope="module", params=["development", "gpu-4"])
def registered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Registered:
    path = ROOT / f"configs/deployments/{request.param}.yaml"
    return DeploymentSettings.read(path), serialise(tmp_path_factory.mktemp("package"), path)


def role_of(name: str) -> Role:
    return ROLE_OF.get(function_of(name), "cpu")


def test_every_task_has_its_roles_pod_which_knows_the_code_of_its_image(registered: Registered) -> None:
    deployment, found = registered
    roles = set()
    for name, spec in found.tasks.items():
        role = role_of(name)
        roles.add(role)
        pod, template = deployment.pods[role], spec.template
        assert template.container.image == deployment.image(role, colocated=function_of(name) == "alternate")
        (named,) = (one.value for one in template.container.env if one.key == "MU_GRPO_CODE")
        assert named.split()[0] == code().split()[0]
        gpus = [one.value for one in template.container.env if one.key == "MU_GRPO_GPUS"]
        assert gpus == ([str(pod.gpus)] if pod.gpus else [])
        assert list(template.container.command) == []  # the image's own entrypoint, an init, starts the arguments
        expected = {Kind.CPU: pod.cpu, Kind.MEMORY: pod.memory, Kind.EPHEMERAL_STORAGE: pod.ephemeral_storage}
        expected |= {Kind.GPU: str(pod.gpus)} if pod.gpus else {}
        for asked in (template.container.resources.requests, template.container.resources.limits):
            amounts = {entry.name: quantity(entry.value) for entry in asked}
            assert amounts == {kind: quantity(amount) for kind, amount in expected.items()}
        assert template.metadata.pod_template_name == pod.template
        assert template.metadata.retries.retries == pod.retries
        assert template.metadata.interruptible == pod.interruptible
        assert template.metadata.timeout.seconds == (0 if function_of(name) in UNROLLED else 60 * pod.timeout_minutes)
        assert template.extended_resources.gpu_accelerator.device == pod.accelerator
        assert template.extended_resources.shared_memory.size_limit == (pod.shared_memory or "")
    assert roles == set(ROLES)


@pytest.mark.parametrize("overrides", ["", "updates_per_rollout=4"])
def test_a_workflow_has_the_pods_that_a_preflight_looks_for(registered: Registered, overrides: str) -> None:
    _, found = registered
    run = RunSettings.read(ROOT / "configs/tiny-cpu.yaml", overrides)
    assert {role_of(task) for task in tasks_of(found, workflow_of(run))} == set(roles_of(run))


def tasks_of(found: Serialised, workflow: str) -> Iterator[str]:
    """Yield the names of the tasks of a workflow and of its sub-workflows."""
    for node in found.workflows[workflow].template.nodes:
        if node.WhichOneof("target") == "workflow_node":
            yield from tasks_of(found, node.workflow_node.sub_workflow_ref.name)
        elif node.id not in ("start-node", "end-node"):
            yield (node.array_node.node if node.HasField("array_node") else node).task_node.reference_id.name


def test_secrets_are_asked_for_where_they_are_used_alone(registered: Registered) -> None:
    deployment, found = registered
    asked = {
        (role_of(name), secret.group, secret.key, secret.env_var)
        for name, spec in found.tasks.items()
        for secret in spec.template.security_context.secrets
    }
    secrets = deployment.secrets
    allowed = {("prefetch", secrets.name, secrets.hub_token, "HF_TOKEN")} if secrets.hub_token else set()
    if secrets.tracker_key:
        allowed |= {(role, secrets.name, secrets.tracker_key, "WANDB_API_KEY") for role in ("train", "evaluate")}
    assert asked == allowed


def test_cached_tasks_have_their_cache_version(registered: Registered) -> None:
    _, found = registered
    cached = {name: spec for name, spec in found.tasks.items() if spec.template.metadata.discoverable}
    assert {function_of(name) for name in cached} == declared().keys()
    for name, spec in cached.items():
        own, function, metadata = version(function_of(name)), function_of(name), spec.template.metadata
        if function in JUDGING:
            assert re.fullmatch(rf"{own}-latex2sympy2-extended-.+-math-verify-.+-sympy-.+", metadata.discovery_version)
        else:
            assert metadata.discovery_version == own, name
        assert metadata.cache_serializable == (function not in MAPPED), name
        assert not metadata.cache_ignore_input_vars, name  # The records' keys leave out what decides nothing.
        assert metadata.generates_deck.value


def test_a_run_is_a_dozen_nodes_of_which_four_are_stages(registered: Registered) -> None:
    _, found = registered
    graph = {node.id: node for node in found.workflows["workflows.mu_grpo.mu_grpo"].template.nodes}
    before = {name: set(node.upstream_node_ids) for name, node in graph.items()}
    stages = [f"stage-{number}" for number in (1, 2, 3, 4)]
    ends = {"open-run", "benchmarks", "training-set", "base-policy", "evaluate-base", "report", "close-run"}
    assert graph.keys() == {*stages, *ends}
    stage = found.workflows[graph["stage-1"].workflow_node.sub_workflow_ref.name].template
    inner = {node.id: set(node.upstream_node_ids) - {"start-node"} for node in stage.nodes}
    after = {"generate": {"prompts"}, "verify": {"generate"}, "optimize": {"generate", "verify"}}
    assert inner == {"prompts": set(), **after, "evaluate": {"optimize"}}
    for earlier, later in pairwise(["open-run", "base-policy", *stages, "report", "close-run"]):
        assert earlier in before[later]
    assert {"evaluate-base", *stages} <= before["report"]


def written(config: Path) -> dict[str, Any]:
    """The inputs of workflows that a file gives."""
    if "experiment" in yaml.safe_load(config.read_text()):
        return {"experiment": read_experiment(config)[0]}
    return dict(RunSettings.read(config))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "every day"}, r"launch_plans\.weekly\.schedule: got 'every day'; allowed: a cron expression"),
        ({"config": "none.yaml"}, r"launch_plans\.weekly\.config: .*none\.yaml: No such file"),
        ({"config": "configs/tiny-cpu-grpo.yaml"}, r"weekly\.config: updates_per_rollout: got 4 in a plan"),
    ],
)
def test_a_wrong_launch_plan_is_refused(changes: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"config": "configs/tiny-cpu.yaml", "schedule": "0 3 * * 0", **changes}
    deployment = DeploymentSettings.parse({"store": "s3://bucket", "launch_plans": {"weekly": plan}})
    monkeypatch.setattr(launch_plans, "DEPLOYMENT", deployment)
    with pytest.raises(SettingsError, match=message):
        launch_plans._launch_plan("weekly")


def test_launch_plans_fix_what_decides_a_result(registered: Registered) -> None:
    deployment, found = registered
    assert deployment.launch_plans.keys() == found.launch_plans.keys() - found.workflows.keys()
    for name, chosen in deployment.launch_plans.items():
        graph, fixed = PLANS[name]
        spec = found.launch_plans[name].spec
        assert spec.workflow_id.name == graph.name
        assert spec.fixed_inputs.literals.keys() == fixed.keys()
        for one, expected in written(ROOT / chosen.config).items():
            if one not in fixed:
                continue
            literal = Literal.from_flyte_idl(spec.fixed_inputs.literals[one])
            assert TypeEngine.to_python_value(FlyteContext.current_context(), literal, type(expected)) == expected
        open_inputs = {one for one, given in spec.default_inputs.parameters.items() if given.required}
        assert open_inputs == ({"kickoff"} if chosen.schedule and "kickoff" in graph.python_interface.inputs else set())
        assert spec.default_inputs.parameters["store"].default.scalar.primitive.string_value == deployment.store
        assert spec.max_parallelism == deployment.max_parallelism
        schedule = spec.entity_metadata.schedule
        assert schedule.cron_schedule.schedule == chosen.schedule
        assert schedule.kickoff_time_input_arg == ("kickoff" if open_inputs else "")
        assert spec.concurrency_policy.max == (1 if chosen.schedule else 0)
        mails = [list(one.email.recipients_email) for one in spec.entity_metadata.notifications]
        assert mails == ([deployment.notify] if deployment.notify else [])


def test_a_stored_policy_is_evaluated_by_the_engine_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = DeploymentSettings.read(ROOT / "configs/deployments/gpu-1.yaml")
    monkeypatch.setattr(launch_plans, "DEPLOYMENT", deployment)
    config = ROOT / deployment.launch_plans["nightly_evaluation"].config
    found = launch_plans._inputs(evaluation, config)["evaluate"]
    assert found.engine == RunSettings.read(config).evaluation_engine != EngineSettings()


def test_a_preset_in_the_overrides_of_a_launch_plan_brings_its_own_row(registered: Registered) -> None:
    deployment, found = registered
    for name in deployment.launch_plans.keys() & {"smoke", "paper_7b"}:
        config = ROOT / deployment.launch_plans[name].config
        literal = Literal.from_flyte_idl(found.launch_plans[name].spec.fixed_inputs.literals["optimize"])
        given = TypeEngine.to_python_value(FlyteContext.current_context(), literal, Given[OptimizeSettings])
        values = {**RunSettings.read(config).given(), "optimize": given.model_dump(mode="json")}
        started = RunSettings.merged(values, "optimize.preset=relaxed")
        assert started.optimize == RunSettings.read(config, "optimize.preset=relaxed").optimize
