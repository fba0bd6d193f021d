"""Every arm is a run that the settings allow, and asks what its question says; runs that collapse are compared too."""

import pytest

from tasks.experiments import laboratory
from tasks.experiments.questions import FULL, QUESTIONS, QUICK, LaboratorySize
from tasks.settings import RunSettings
from tasks.store import Store
from tests.experiments.planted import study
from tools import ROOT


@pytest.mark.parametrize("size", [FULL, QUICK], ids=lambda size: size.name)
@pytest.mark.parametrize("part", QUESTIONS)
def test_every_arm_is_a_run(part: str, size: LaboratorySize) -> None:
    question = QUESTIONS[part]
    seen = set()
    for arm in question.arms:
        run = RunSettings.read(ROOT / size.config, arm.overrides(size.updates))
        assert run.updates_per_stage == size.updates
        assert run.mu == (arm.mu or size.updates // arm.stages)
        seen.add((run.optimize.model_dump_json(), run.mu))
    assert len(seen) == len(question.arms) == len({arm.name for arm in question.arms})
    assert question.reference in {arm.name for arm in question.arms}


def test_arms_are_compared_with_the_reference_although_runs_collapse(store: Store) -> None:
    low, high = [0.0, 0.25, 0.5] * 20, [0.5, 0.75, 1.0] * 20
    names, studies = [arm.name for arm in QUESTIONS["a"].arms], []
    for name in names:
        collapsed = {"last": 7} if name == QUESTIONS["a"].reference else {}
        studies += [study(store, seed, low, **collapsed) for seed in (2, 4)]
    studies[:2] = study(store, 0, high, peak=0.9), study(store, 1, [0.0, 1.0, 1.0] * 20, last=7)
    studies[-2:] = [study(store, seed, [0.0] * 60) for seed in (2, 4)]
    result = laboratory.LaboratoryResult.load(store, laboratory.compare_arms(store, "a", studies))
    assert (result.updates, result.seeds, result.problems, result.base) == (8, 2, 60, 3 / 16)
    assert [arm.name for arm in result.arms] == names
    first, same, reference = result.arms[0], result.arms[1], result.arms[names.index(result.reference)]
    assert first.by_seed == pytest.approx([0.75, 2 / 3])
    assert (first.stopped, reference.stopped) == (["a gate"], ["a gate"] * 2)
    assert first.accuracy.value == pytest.approx(17 / 24)
    assert first.difference.value == pytest.approx(17 / 24 - 0.25)
    assert (first.best, first.vetoed, first.clipped) == pytest.approx((0.5 * (0.9 + 2 / 3), 0.25 * 0.7, 0.35))
    assert (reference.difference, reference.p, same.difference.value, same.p) == (None, None, 0, 1)
    assert first.p < 0.5
    # All 10,000 draws are below 0, and five arms are compared.
    assert (result.arms[-1].difference.value, result.arms[-1].p) == pytest.approx((-0.25, 5 * 2 / 10_001))
