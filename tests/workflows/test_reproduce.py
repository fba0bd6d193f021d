"""Models x systems x seeds through the real command: shared steps are done once, and all runs are compared."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.errors import SettingsError
from tasks.experiments.runs import load_run
from tasks.experiments.speedup import BARRIER, BATCHES, UNEXPLAINED, split_causes
from tasks.report.ledger import training_clock
from tasks.settings import ExperimentSettings
from tasks.settings.experiment import read_experiment
from tasks.store import Store
from tests.workflows.runs import assert_succeeded, experiment
from tests.workflows.test_decks import deck_of, decks_of, words
from tools.forked import Runner
from tools.runs import steps


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runner, Path, str]:
    folder = tmp_path_factory.mktemp("reproduce")
    config = folder / "experiment.yaml"
    config.write_text(yaml.safe_dump({"store": str(folder / "store"), "experiment": experiment()}, sort_keys=False))
    runner = Runner(folder, config)
    done = assert_succeeded(runner.run("reproduce"))
    return runner, config, done.stdout


def test_every_run_is_there_and_compared(reproduced: tuple[Runner, Path, str]) -> None:
    runner, _, output = reproduced
    store = Store.open(runner.store)
    (made,) = store.manifests("reproduction")
    assert len(made.parents["reports"]) == 3
    result = json.loads((store.path(made.ref) / "result.json").read_text())
    assert result["missing"] == []
    assert {one["baseline"] for one in result["causes"]} == {"grpo", "m2po"}
    folder = store.path(made.ref)
    assert (folder / "report.html").stat().st_size < 5_000_000
    figures, data = ({one.stem for one in folder.glob(f"figures/*.{kind}")} for kind in ("svg", "csv"))
    assert figures == data != set()
    assert {(cell["system"], cell["benchmark"]) for cell in result["cells"]} == {
        (system, benchmark) for system in ("mu_grpo", "grpo", "m2po") for benchmark in ("easy", "hard", "mean")
    }
    assert [(test["baseline"], test["benchmark"]) for test in result["tests"]] == [
        (baseline, benchmark)
        for benchmarks in (["mean"], ["easy", "hard"])
        for baseline in ("grpo", "m2po")
        for benchmark in benchmarks
    ]
    assert all(len(cell["by_seed"]) == 1 for cell in result["cells"])
    assert {one["updates"] for one in result["times"]} == {16}
    assert "mu_grpo minus each baseline" in output


def test_steps_that_runs_share_are_done_once(reproduced: tuple[Runner, Path, str]) -> None:
    """Mu-GRPO and M2PO sample their first stage alike; all three start from one policy and its evaluations."""
    runner, _, _ = reproduced
    store = Store.open(runner.store)
    of_runs = [one for one in store.manifests("policy") if one.facts.get("stage") is not None]
    base = [[one.ref] for one in of_runs if one.facts["stage"] == 0]
    assert len(base) == 1
    first = [one for one in store.manifests("rollouts") if one.parents["policy"] in base]
    assert sorted(one.task for one in first) == ["alternate", "generate"]
    assert len([one for one in store.manifests("average") if one.parents["policy"] in base]) == 1


def test_causes_add_up_to_the_difference_of_two_runs(reproduced: tuple[Runner, Path, str]) -> None:
    """The engine's calls of both runs are known, and the causes of their difference add up to it."""
    store = Store.open(reproduced[0].store)
    reports = {one.facts["algorithm"]: one.ref for one in store.manifests("report")}
    runs = [load_run(store, "tiny", name, 0, reports[name]) for name in ("mu_grpo", "grpo")]
    for run in runs:
        assert run.calls is not None
        generated = run.ledger.seconds["generate"]
        assert 0.5 * generated < sum(one.seconds for one in run.calls) <= generated
        tokens = [one.facts["responses"] * one.facts["response_tokens"] for one in run.history.of_kind("verdicts")]
        assert run.response_tokens == pytest.approx(sum(tokens))
        assert sum(one.needed_F[1] for one in run.calls) == run.response_tokens
    causes = {one.name: one.seconds for one in split_causes(runs, "mu_grpo", ["grpo"])}
    assert {BARRIER, BATCHES, UNEXPLAINED} <= causes.keys()
    ours, theirs = (training_clock(run.history)[-1] for run in runs)
    assert sum(causes.values()) == pytest.approx(theirs - ours, abs=0.01)


def test_the_command_of_a_run_finds_that_run(reproduced: tuple[Runner, Path, str]) -> None:
    runner, config, _ = reproduced
    (run,) = (one for one in read_experiment(config)[0].runs(str(runner.store)) if one.system == "grpo")
    alone = Runner(runner.folder, runner.folder / "grpo.yaml")
    alone.config.write_text(yaml.safe_dump(run.settings.given()))
    done = assert_succeeded(alone.run("grpo"))
    assert steps(done.stdout) == []
    assert "grpo, mu 1, seed 0: 16 updates" in done.stdout
    table = CliRunner().invoke(app, ["compare", "--store", str(runner.store)]).stdout
    for part in ("mu_grpo, mu 4", "grpo, mu 1", "m2po, mu 4", "wall-clock"):
        assert part in table


def test_the_deck_of_a_reproduction_is_its_page(reproduced: tuple[Runner, Path, str]) -> None:
    runner, _, _ = reproduced
    (made,) = Store.open(runner.store).manifests("reproduction")
    shown = words(deck_of(decks_of(runner), made))
    assert "tiny" in shown
    assert "m2po" in shown


def test_a_second_reproduction_does_nothing(reproduced: tuple[Runner, Path, str]) -> None:
    runner, _, output = reproduced
    again = assert_succeeded(runner.run("reproduce"))
    assert steps(again.stdout + again.stderr) == []
    assert again.stdout.splitlines()[-10:] == output.splitlines()[-10:]


def test_missing_runs_are_named_and_the_others_compared(reproduced: tuple[Runner, Path, str], tmp_path: Path) -> None:
    _, config, _ = reproduced
    values = yaml.safe_load(config.read_text())
    values["experiment"]["seeds"] = [0, 1]
    longer = tmp_path / "longer.yaml"
    longer.write_text(yaml.safe_dump(values, sort_keys=False))
    page = tmp_path / "page.md"
    page.write_text("# Found\n\n<!-- tables -->\n<!-- end of tables -->\n")
    shown = CliRunner().invoke(
        app, ["reproduction", "--config", str(longer), "--docs", str(page), "--page", str(tmp_path / "made")]
    )
    assert shown.exit_code == 0, shown.output
    assert "3 runs are missing: tiny, mu_grpo, seed 1; tiny, grpo, seed 1; tiny, m2po, seed 1" in shown.output
    assert "| tiny | mean of all |" in page.read_text()
    assert "](page/accuracy-tiny.svg)" in page.read_text()
    assert "tiny, m2po, seed 1" in (tmp_path / "made/report.html").read_text()
    nowhere = CliRunner().invoke(app, ["reproduction", "--config", str(longer), "rollout.max_new_tokens=15"])
    assert "none of the 6 runs is there" in str(nowhere.exception)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": "mu"}, "reference: 'mu' is not one of the systems; allowed: mu_grpo, grpo, m2po"),
        ({"seeds": [1, 1]}, "seeds: .* repeats a seed"),
        ({"margin": 0}, "experiment.margin: got 0"),
        ({"systems": {"mu_grpo": {}}}, "experiment.systems"),
        (
            {"common": {**experiment()["common"], "optimize": {"responses_per_update": 7}}},
            "model 'tiny' with system 'mu_grpo': .*optimize",
        ),
    ],
    ids=["reference", "seeds", "margin", "systems", "run"],
)
def test_a_mistake_is_a_message_before_anything_runs(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        ExperimentSettings.parse({**experiment(), **change}).runs(str(tmp_path))
