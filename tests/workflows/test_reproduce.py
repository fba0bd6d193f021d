"""Models x systems x seeds through the real command: shared steps are done once, and all runs are compared."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.errors import SettingsError
from tasks.experiments.runs import load_run, tokens_of
from tasks.experiments.speedup import BARRIER, BATCHES, UNEXPLAINED, split_causes
from tasks.flyte.experiments import open_reproduction
from tasks.report.ledger import training_clock
from tasks.settings import ExperimentSettings
from tasks.settings.experiment import read_experiment
from tests.report.pages import words
from tests.workflows.runs import Finished
from tests.workflows.test_decks import deck_of, decks_of
from tools.docs.experiments import reproduction
from tools.forked import Runner
from tools.runs import CONFIG, steps

ONE = {"evaluate": {"benchmarks": ["held_out"]}}
OTHER = {"optimize": {"preset": "m2po"}, **ONE}
PROGRAMS = {"evaluate": {"benchmarks": ["livecodebench"]}}
ENGINE = {"evaluate": {**ONE["evaluate"], "engine": {"batch_size": 9}}}


def experiment() -> dict[str, Any]:
    """Three systems on two benchmarks, as a file says it."""
    common = yaml.safe_load(CONFIG.read_text())
    policy = {"policy": common.pop("policy")}
    policy["policy"]["tiny"]["warm_start"] |= {"working_updates": 40, "guessing_updates": 20}
    common["prompts"] |= {"prompts_per_stage": 32, "prompts_per_shard": 32}
    common["optimize"] = {"responses_per_update": 64, "learning_rate": 3e-4}
    easy = {"name": "easy", "problems": 20, "source": {"arithmetic": {"levels": [1]}}}
    hard = {"name": "hard", "problems": 10, "source": {"arithmetic": {"levels": [2]}}}
    common["evaluate"] = {"benchmarks": [easy, hard], "samples_per_problem": 2, "max_new_tokens": 16}
    systems: dict[str, Any] = {name: {"optimize": {"preset": name}} for name in ("mu_grpo", "grpo", "m2po")}
    systems["grpo"]["updates_per_rollout"] = 1
    return {"models": {"tiny": policy}, "systems": systems, "common": common, "seeds": [0], "margin": 0.1}


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("reproduce")
    config = folder / "experiment.yaml"
    config.write_text(yaml.safe_dump({"store": str(folder / "store"), "experiment": experiment()}, sort_keys=False))
    runner = Runner(folder, config)
    return Finished(runner, runner.made("reproduce"))


def test_every_run_is_there_and_compared(reproduced: Finished) -> None:
    store = reproduced.store
    (made,) = store.manifests("reproduction")
    assert len(made.parents["reports"]) == 3
    folder = store.path(made.ref)
    result = json.loads((folder / "result.json").read_text())
    assert result["missing"] == []
    assert {one["baseline"] for one in result["causes"]} == {"grpo", "m2po"}
    assert (folder / "report.html").is_file()
    assert (len(result["cells"]), len(result["tests"])) == (3 * 3, 2 * 3)
    last = {one.facts["algorithm"]: store.manifest(one.parents["evaluations"][-1]) for one in store.manifests("report")}
    means = {cell["system"]: cell["by_seed"] for cell in result["cells"] if cell["benchmark"] == "mean"}
    assert means == {system: [pytest.approx(average.facts["accuracy"])] for system, average in last.items()}
    assert {one["updates"] for one in result["times"]} == {16}
    assert "mu_grpo minus each baseline" in reproduced.output
    shown = words(deck_of(decks_of(reproduced.runner), made))
    assert {"tiny", "m2po"} <= set(shown.split())


def test_steps_that_runs_share_are_done_once(reproduced: Finished) -> None:
    """Mu-GRPO and M2PO sample their first stage alike; all three start from one policy and its evaluations."""
    store = reproduced.store
    of_runs = [one for one in store.manifests("policy") if one.facts.get("stage") is not None]
    base = [[one.ref] for one in of_runs if one.facts["stage"] == 0]
    assert len(base) == 1
    first = [one for one in store.manifests("rollouts") if one.parents["policy"] in base]
    assert sorted(one.task for one in first) == ["alternate", "generate"]
    assert len([one for one in store.manifests("average") if one.parents["policy"] in base]) == 1


def test_causes_add_up_to_the_difference_of_two_runs(reproduced: Finished) -> None:
    store = reproduced.store
    reports = {one.facts["algorithm"]: one.ref for one in store.manifests("report")}
    planned = read_experiment(reproduced.runner.config)[0].runs(str(reproduced.runner.store))
    runs = [load_run(store, run, reports[run.system]) for run in planned if run.system in ("mu_grpo", "grpo")]
    for run in runs:
        generated = run.ledger.seconds["generate"]
        assert 0.5 * generated < sum(one.seconds for one in run.calls) <= generated
        files = [tokens_of(store, one.model_copy(update={"facts": {}})) for one in run.history.of_kind("rollouts")]
        assert (run.response_tokens, run.sequence_tokens) == tuple(map(sum, zip(*files, strict=True)))
        assert run.sequence_tokens == run.response_tokens + 5 * 1024  # Prompts such as 12+3= have five tokens.
        assert sum(one.needed_F[1] for one in run.calls) == run.response_tokens
    causes = {one.name: one.seconds for one in split_causes(runs, "mu_grpo", ["grpo"])}
    assert {BARRIER, BATCHES, UNEXPLAINED} <= causes.keys()
    ours, theirs = (training_clock(run.history)[-1] for run in runs)
    assert sum(causes.values()) == pytest.approx(theirs - ours, abs=0.01)


def test_the_command_of_a_run_finds_that_run(reproduced: Finished) -> None:
    runner, _ = reproduced
    (run,) = (one for one in read_experiment(runner.config)[0].runs(str(runner.store)) if one.system == "grpo")
    alone = Runner(runner.folder, runner.folder / "grpo.yaml")
    alone.config.write_text(yaml.safe_dump(run.settings.given()))
    told = alone.made("grpo")
    assert steps(told) == []
    assert "grpo, mu 1, seed 0: 16 updates" in told
    table = CliRunner().invoke(app, ["compare", "--store", str(runner.store)]).stdout
    for part in ("mu_grpo, mu 4", "grpo, mu 1", "m2po, mu 4", "wall-clock"):
        assert part in table


def test_missing_runs_are_named_and_the_others_compared(reproduced: Finished, tmp_path: Path) -> None:
    values = yaml.safe_load(reproduced.runner.config.read_text())
    values["experiment"]["seeds"] = [0, 1]
    longer = tmp_path / "longer.yaml"
    longer.write_text(yaml.safe_dump(values, sort_keys=False))
    page = tmp_path / "page.md"
    page.write_text("# Found\n\n<!-- tables -->\n<!-- end of tables -->\n")
    command = ["reproduction", "--config", str(longer)]
    shown = CliRunner().invoke(app, [*command, "--page", str(tmp_path / "made")])
    assert shown.exit_code == 0, shown.output
    assert "3 runs are missing: tiny, mu_grpo, seed 1; tiny, grpo, seed 1; tiny, m2po, seed 1" in shown.output
    reproduction(longer, page)
    assert "| tiny | mean of all |" in page.read_text()
    assert "](page/accuracy-tiny.svg)" in page.read_text()
    assert "tiny, m2po, seed 1" in (tmp_path / "made/report.html").read_text()
    nowhere = CliRunner().invoke(app, [*command, "rollout.max_new_tokens=15"])
    assert "none of the 6 runs is there" in str(nowhere.exception)


def test_a_second_reproduction_by_file_and_overrides_does_nothing(reproduced: Finished, tmp_path: Path) -> None:
    values = yaml.safe_load(reproduced.runner.config.read_text())
    del values["experiment"]["common"]["optimize"]["responses_per_update"]
    runner = Runner(reproduced.runner.folder, tmp_path / "experiment.yaml")
    runner.config.write_text(yaml.safe_dump(values, sort_keys=False))
    told = runner.made("reproduce", "--overrides", "optimize.responses_per_update=64")
    assert steps(told) == []
    assert told.splitlines()[-10:] == reproduced.output.splitlines()[-10:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": "mu"}, "reference: 'mu' is not one of the systems; allowed: mu_grpo, grpo, m2po"),
        ({"seeds": [1, 1]}, "seeds: .* repeats a seed"),
        ({"margin": 0}, "experiment.margin: got 0"),
        ({"systems": {"mu_grpo": {}}}, "experiment.systems"),
        ({"common": {**experiment()["common"], "optimize": {"responses_per_update": 7}}}, "model 'tiny' .*optimize"),
        ({"systems": {**experiment()["systems"], "m2po": OTHER}}, "held_out, and easy, hard with 'mu_grpo'; allowed"),
        ({"laboratory": {"parts": ["a"], "updates": 4}}, "laboratory: evaluations: 16 does not divide the 4"),
        ({"laboratory": {"parts": ["a"]}}, "evaluate.benchmarks: 2 in the laboratory"),
        ({"laboratory": {"parts": ["a"], "changes": PROGRAMS}}, "answer_type code with verify.kind math"),
        ({"laboratory": {"parts": ["a"], "changes": ENGINE}}, "evaluate.engine: transformers in the laboratory"),
        ({"laboratory": {"parts": ["c"], "updates": 4, "evaluations": 4, "changes": ONE}}, "8 stages': updates_per_"),
    ],
    ids=["reference", "seeds", "margin", "systems", "run", "benchmarks", "curve", "two", "judge", "engine", "arm"],
)
def test_a_mistake_is_a_message_before_anything_runs(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    values = {**experiment(), **change}
    with pytest.raises(SettingsError, match=message):
        open_reproduction(store=str(tmp_path), experiment=ExperimentSettings.parse(values), overrides="")


@pytest.mark.parametrize(("common", "overrides"), [({}, "seed=1"), ({"seed": 1}, ""), ({}, "store=elsewhere")])
def test_what_tells_runs_apart_is_refused_elsewhere(common: dict[str, Any], overrides: str, tmp_path: Path) -> None:
    """Three runs of one seed would be compared as runs of three seeds."""
    values = {**experiment(), "common": {**experiment()["common"], **common}}
    with pytest.raises(SettingsError, match=rf"{overrides or 'seed=1'} in common, .*; allowed: no "):
        ExperimentSettings.parse(values).runs(str(tmp_path), overrides)
