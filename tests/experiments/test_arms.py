"""Every arm is a run that the settings allow, and asks what its question says."""

import pytest

from tasks.experiments.arms import FULL, QUESTIONS, QUICK, Form, Part
from tasks.settings import RunSettings
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
