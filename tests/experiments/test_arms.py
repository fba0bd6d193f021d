"""Every arm is a run that the settings allow, and asks what its question says."""

import pytest

from tasks.experiments.arms import FULL, QUESTIONS, QUICK, LaboratorySize, Part
from tasks.settings import RunSettings
from tools import ROOT


@pytest.mark.parametrize("size", [FULL, QUICK], ids=lambda size: size.name)
@pytest.mark.parametrize("part", QUESTIONS)
def test_every_arm_is_a_run(part: Part, size: LaboratorySize) -> None:
    question = QUESTIONS[part]
    seen = set()
    for arm in question.arms:
        run = RunSettings.read(ROOT / size.config, arm.overrides(size.updates))
        assert run.updates_per_stage == size.updates
        assert run.mu == (arm.mu or size.updates // arm.stages)
        seen.add((run.optimize.model_dump_json(), run.mu))
    assert len(seen) == len(question.arms) == len({arm.name for arm in question.arms})
    assert question.reference in {arm.name for arm in question.arms}
