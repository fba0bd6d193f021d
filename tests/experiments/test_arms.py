"""Every arm is a run that the settings allow, and asks what its question says."""

import pytest

from tasks.experiments.arms import FULL, QUESTIONS, QUICK, Form, Part
from tasks.settings import PRESETS, RunSettings
from tools import ROOT


@pytest.mark.parametrize("form", [FULL, QUICK], ids=lambda form: form.name)
@pytest.mark.parametrize("part", QUESTIONS)
def test_every_arm_is_a_run(part: Part, form: Form) -> None:
    question = QUESTIONS[part]
    seen = set()
    for arm in question.arms:
        run = RunSettings.read(ROOT / form.config, arm.overrides(form.updates))
        assert run.updates_per_stage == form.updates
        assert run.mu == (arm.mu or form.updates // arm.stages)
        seen.add((run.optimize.model_dump_json(), run.mu))
    assert len(seen) == len(question.arms) == len({arm.name for arm in question.arms})
    assert question.reference in {arm.name for arm in question.arms}


def test_the_last_question_has_every_preset() -> None:
    assert [arm.name for arm in QUESTIONS["d"].arms] == list(PRESETS)


def test_the_threshold_sweeps_both_directions() -> None:
    runs = [RunSettings.read(ROOT / FULL.config, arm.overrides(FULL.updates)) for arm in QUESTIONS["c"].arms]
    vetoes = [veto for run in runs if (veto := run.optimize.objective.veto).scope != "off"]
    assert {veto.kappa for veto in vetoes if veto.direction == "below"} == {0.5, 0.2, 0.1, 1e-2, 1e-3, 1e-4}
    assert {veto.kappa for veto in vetoes if veto.direction == "above"} == {1.2, 1.5, 2.0, 3.0, 5.0}
