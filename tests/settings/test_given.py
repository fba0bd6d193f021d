"""A file and overrides pass or fail alike, whether a command reads them or a workflow is given them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.errors import SettingsError
from tasks.flyte.uncached import open_run
from tasks.settings import Given, PolicySettings, RunSettings
from tasks.settings.experiment import ExperimentSettings
from tools.runs import CONFIG
from workflows.grpo import grpo
from workflows.laboratory import arm
from workflows.mu_grpo import mu_grpo
from workflows.retrain import retrain
from workflows.weekly import weekly

OBJECTIVE = {"gate": {"low": 0.2, "high": 1.3}}


def read(values: dict[str, Any], overrides: str, folder: Path) -> RunSettings:
    """As plan, preflight and laboratory do."""
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(values))
    return RunSettings.read(file, overrides)


def workflow(values: dict[str, Any], overrides: str, graph: PythonFunctionWorkflow) -> RunSettings:
    """As ``pyflyte run --inputs-file`` does: Flyte's inputs from the file's JSON, then the first task."""
    context, sections = FlyteContextManager.current_context(), {}
    types = {**graph.python_interface.inputs, **open_run.python_interface.inputs}
    for name in ("policy", "prompts", "rollout", "verify", "optimize", "evaluate"):
        given = graph.python_interface.inputs[name].model_validate_json(json.dumps(values[name]), strict=False)
        literal = TypeEngine.to_literal(context, given, type(given), TypeEngine.to_literal_type(type(given)))
        sections[name] = TypeEngine.to_python_value(context, literal, types[name])
    made = open_run(
        **sections, store=values["store"], seed=values.get("seed", 0), updates_per_rollout=0, overrides=overrides
    )
    return made.run.settings


def experiment(values: dict[str, Any], overrides: str) -> RunSettings:
    """As a reproduction does."""
    systems: dict[str, Any] = {"mu_grpo": {}, "other": {}}
    asked = ExperimentSettings.parse({"models": {"tiny": {}}, "systems": systems, "common": values, "seeds": [0]})
    return asked.runs(values["store"], overrides)[0].settings


def outcome(door: Callable[[], RunSettings]) -> RunSettings | str:
    try:
        return door()
    except SettingsError as error:
        return error.message.removeprefix("model 'tiny' with system 'mu_grpo': ")


@pytest.mark.parametrize("graph", [mu_grpo, grpo, retrain, arm, weekly], ids=lambda graph: graph.name)
def test_every_workflow_takes_inputs_that_overrides_correct(graph: PythonFunctionWorkflow, tmp_path: Path) -> None:
    values = {**yaml.safe_load(CONFIG.read_text()), "store": str(tmp_path / "store")}
    values["rollout"]["temperature"] = 0.7
    assert workflow(values, "rollout.temperature=1.0", graph).rollout.temperature == 1


@pytest.mark.parametrize(
    ("changes", "overrides", "right"),
    [
        ({"prompts.prompts_per_stage": None}, "prompts.prompts_per_stage=64", True),
        ({"prompts.prompts_per_stage": None}, "", False),
        ({"optimize.responses_per_update": 24}, "optimize.responses_per_update=64", True),
        ({"optimize.responses_per_update": 24}, "seed=1", False),
        ({"rollout.temperature": 0.7}, "rollout.temperature=1", True),
        ({"rollout.nonsense": 1}, "seed=1", False),
        ({"verify.kind": "code"}, "prompts.arithmetic.as_code=true", True),
        ({"optimize.preset": "none_such"}, "optimize.preset=grpo", True),
        ({"optimize.preset": "grpo", "optimize.objective": OBJECTIVE}, "optimize.preset=relaxed", True),
        ({"optimize.objective": {"gate": {"low": 1.0, "high": 1.0}}}, "optimize.objective.gate.high=4", True),
        ({"prompts.arithmetic": None, "prompts.source": "dapo"}, "prompts.source.answer=gold", False),
        ({"evaluate.benchmarks": ["none_such"]}, "evaluate.benchmarks=[held_out]", True),
        ({"optimize.objective": {"veto": {"scope": False}}}, "", True),  # YAML reads off as false.
        ({}, "optimize.objective.veto.scope=off", True),
        ({}, "seed=-1", False),
        ({}, "prompts.held_out_share=none", False),
    ],
)
def test_mistakes_are_reported_alike(changes: dict[str, Any], overrides: str, right: bool, tmp_path: Path) -> None:
    values: dict[str, Any] = {**yaml.safe_load(CONFIG.read_text()), "store": str(tmp_path / "store")}
    for name, value in changes.items():
        section, field = name.split(".")
        values[section] = {key: old for key, old in values[section].items() if key != field}
        values[section] |= {} if value is None else {field: value}
    doors = [
        outcome(lambda: read(values, overrides, tmp_path)),
        outcome(lambda: workflow(values, overrides, mu_grpo)),
        outcome(lambda: experiment(values, overrides)),
    ]
    assert doors[0] == doors[1] == doors[2]
    assert isinstance(doors[0], RunSettings) is right


def test_a_section_that_has_no_fields_is_named() -> None:
    with pytest.raises(SettingsError, match="policy: got 'tiny'; allowed: fields with values"):
        Given[PolicySettings].model_validate_json('"tiny"')
