"""The paper's runs: their files are those of the table, and every setting of theirs says where its value comes from."""

from pathlib import Path

import pytest
import yaml

from tasks.settings import RunSettings
from tasks.settings.base import flat
from tasks.settings.experiment import ExperimentSettings
from tools.paper_configs import PAGE, REPRODUCE, written
from tools.paper_table import TABLE, PaperRun, covers, runs

PATHS = [*(run.path for run in runs()), REPRODUCE, PAGE]
GRPO = {"updates_per_rollout", "rollout.engine.gpu_memory_share", "optimize.preset"}
"""Settings in which the baseline differs: mu, the share of GPU memory for generation, and the preset."""
RUNS = pytest.mark.parametrize("run", runs(), ids=lambda run: f"{run.path.parent.name}/{run.path.stem}")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_is_what_the_table_says(path: Path) -> None:
    assert path.read_text() == written()[path], "the table changed: run `make configs` and commit what it writes"


@RUNS
def test_a_file_is_read_as_the_settings_of_its_run(run: PaperRun) -> None:
    assert RunSettings.read(run.path) == run.settings


@RUNS
def test_every_setting_that_decides_a_result_has_a_source(run: PaperRun) -> None:
    values = flat(run.settings.result_values())
    missing = [leaf for leaf in values if not any(covers(setting, leaf) for setting in run.entries)]
    assert not missing, f"{TABLE.name} says nothing about {missing}"


@pytest.mark.parametrize("model", sorted({run.model for run in runs()}))
def test_systems_differ_in_what_handles_staleness_alone(model: str) -> None:
    of_model = {run.system: flat(run.settings.result_values()) for run in runs() if run.model == model}
    ours = of_model["mu_grpo"]
    for system, theirs in of_model.items():
        different = {name for name in ours.keys() | theirs if ours.get(name) != theirs.get(name)}
        objective = {name for name in different if name.startswith("optimize.objective.")}
        assert all(name.startswith(("optimize.objective.gate.", "optimize.objective.veto.")) for name in objective)
        assert different - objective == {"mu_grpo": set(), "m2po": {"optimize.preset"}, "grpo": GRPO}[system]


def test_the_reproduction_has_the_runs_of_the_files() -> None:
    values = yaml.safe_load(REPRODUCE.read_text())
    assert set(values) == {"store", "experiment"}
    experiment = ExperimentSettings.parse(values["experiment"])
    planned = experiment.runs(values["store"])
    files = {(run.model, run.system): run.path for run in runs() if run.hardware == "gpu-4"}
    assert {(one.model, one.system) for one in planned} == set(files)
    assert len(planned) == len(files) * len(experiment.seeds)
    for one in planned:
        assert one.settings == RunSettings.read(files[one.model, one.system], f"seed={one.seed}"), one.name
