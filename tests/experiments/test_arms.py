"""Every arm is a run that the settings allow, and asks what its question says."""

from pathlib import Path

import pytest

from tasks.experiments.arms import QUESTIONS, QUICK_UPDATES, UPDATES, Part
from tasks.settings import PRESETS, RunSettings

CONFIGS = Path(__file__).parents[2] / "configs"
FORMS = {"laboratory.yaml": UPDATES, "laboratory-quick.yaml": QUICK_UPDATES}


@pytest.mark.parametrize("config", FORMS)
@pytest.mark.parametrize("part", QUESTIONS)
def test_every_arm_is_a_run(part: Part, config: str) -> None:
    question = QUESTIONS[part]
    seen = set()
    for arm in question.arms:
        run = RunSettings.read(CONFIGS / config, arm.overrides(FORMS[config]))
        assert run.updates_per_stage == FORMS[config]
        assert run.mu == (arm.mu or FORMS[config] // arm.stages)
        seen.add((run.optimize.model_dump_json(), run.mu))
    assert len(seen) == len(question.arms) == len({arm.name for arm in question.arms})
    assert question.reference in {arm.name for arm in question.arms}


def test_the_last_question_has_every_preset() -> None:
    assert [arm.name for arm in QUESTIONS["d"].arms] == list(PRESETS)


def test_the_threshold_sweeps_both_directions() -> None:
    vetoes = [
        RunSettings.read(CONFIGS / "laboratory.yaml", arm.overrides(UPDATES)).optimize.objective.veto
        for arm in QUESTIONS["c"].arms
    ]
    below = {veto.kappa for veto in vetoes if veto.scope != "off" and veto.direction == "below"}
    above = {veto.kappa for veto in vetoes if veto.scope != "off" and veto.direction == "above"}
    assert below == {0.5, 0.2, 0.1, 1e-2, 1e-3, 1e-4}
    assert above == {1.2, 1.5, 2.0, 3.0, 5.0}
