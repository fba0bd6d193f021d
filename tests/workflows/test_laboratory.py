"""The laboratory through its command: runs side by side, a comparison, a page, and nothing twice."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tasks.errors import SettingsError
from tasks.experiments.laboratory import compare_arms
from tasks.experiments.questions import QUICK
from tasks.flyte.uncached import open_run
from tests.report.pages import words
from tests.workflows.runs import Finished, assert_succeeded
from tests.workflows.test_decks import deck_of, decks_of, tabs
from tools.forked import Runner, run
from tools.runs import steps

ARM = "optimize.preset=relaxed updates_per_rollout=4"


def laboratory(runner: Runner, program: list[str], *options: str) -> str:
    """Run part a of the laboratory, and return what the command printed."""
    prompts = "prompts.prompts_per_stage=64 prompts.prompts_per_shard=64 evaluate.problems=8"
    responses = "rollout.responses_per_prompt=4 optimize.responses_per_update=4"
    warm = "policy.tiny.warm_start.working_updates=40 policy.tiny.warm_start.guessing_updates=20"
    changes = f"store={runner.store} {prompts} {responses} {warm}"
    command = [*program, "laboratory", "a", "--quick", "--overrides", changes, *options]
    return assert_succeeded(run(command, runner.environment)).stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    runner = Runner(tmp_path_factory.mktemp("laboratory"))
    return Finished(runner, laboratory(runner, ["mu-grpo"]))


def test_every_arm_is_compared(finished: Finished) -> None:
    end = finished.output.partition("a. The clipping dilemma")[2]
    for arm in ("[0.8, 1.2], mu 4", "[0, 5], one stage", "[0, 5] and veto, one stage"):
        assert arm in end
    assert "1 seed, 64 updates, 8 held-out problems" in " ".join(end.split())
    (result,) = finished.store.manifests("laboratory")
    assert len(result.parents["studies"]) == 6


def test_runs_and_their_comparison_have_decks(finished: Finished) -> None:
    decks = decks_of(finished.runner)
    (result,) = finished.store.manifests("laboratory")
    assert re.search(r"\[0, 5\] and veto, one stage \d+\.\d % \(\d", words(deck_of(decks, result)))
    # Forked runs give their decks the same random names, so that not all of them are left.
    studies = [words(deck) for deck in decks if tabs(deck) == ["study"]]
    assert studies
    for text in studies:
        assert "Over its updates" in text
        assert re.search(r" best \d", text)
        assert "responses_per_update 4" in text


@pytest.mark.parametrize("override", ["seed=1", "updates_per_rollout=8"])
def test_an_override_of_what_is_compared_is_refused(tmp_path: Path, override: str) -> None:
    """All seeds of an arm would be one run, which would be compared as several; all arms would be one arm."""
    values = yaml.safe_load(Path(QUICK.config).read_text())
    types = open_run.python_interface.inputs
    sections = {name: types[name].model_validate(value) for name, value in values.items() if name != "store"}
    common = {"operation": types["operation"](), "seed": 0, "updates_per_rollout": 0, "arm": ARM}
    with pytest.raises(SettingsError, match=f"overrides: '{override}' in the laboratory replaces the seed"):
        open_run(**sections, **common, store=str(tmp_path), overrides=override)


def test_a_second_run_trains_nothing(finished: Finished) -> None:
    runner, output = finished
    page = runner.folder / "a.md"
    page.write_text("<!-- part a -->\n<!-- end of part a -->\n")
    (result,) = finished.store.manifests("laboratory")
    later = compare_arms(finished.store, "a", result.parents["studies"][::-1])  # of other runs of this part
    again = laboratory(runner, ["-m", "tools.docs.experiments"], "--page", str(page))
    shutil.rmtree(finished.store.root / later.folder)
    assert [steps(log.read_text()) for log in (runner.store / "logs").iterdir()] == [[]] * 7  # of the comparison, too
    assert (runner.folder / "a/a.svg").read_text() == (runner.store / result.ref.folder / "curves.svg").read_text()
    assert "| [0, 5] and veto, one stage | " in page.read_text()
    assert again[again.index("a. The") :] == output[output.index("a. The") :] + f"wrote {page}\n"
