"""Every arm is a run that the settings allow, and asks what its question says; runs that collapse are compared too."""

import pytest

from tasks.experiments import laboratory
from tasks.experiments.arms import FULL, QUESTIONS, QUICK, LaboratorySize, Part
from tasks.settings import RunSettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import CURVE_FILE
from tasks.store.tables import CURVE, write_table
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


def study(store: Store, seed: int, last: int) -> ArtifactRef:
    """A study of 8 updates, evaluated after every second, or one that collapsed after ``last`` of them."""
    rest = {"accuracy": 0.5, "problem_accuracy": [0.0, 1.0], "working": None, "response_tokens": 1.0}
    with store.write("study", settings={}, parents={}, seed=seed) as draft:
        write_table(draft.path / CURVE_FILE, [{"update": update, **rest} for update in (0, 2, 4, 6, last)], CURVE)
        draft.facts.update(stopped="" if last == 8 else "a gate")
    return draft.ref


def test_a_collapse_does_not_shorten_the_runs_of_a_part(store: Store) -> None:
    question, studies = QUESTIONS["a"], []
    for arm in question.arms:
        last = 7 if arm.name == question.reference else 8
        studies += [study(store, len(studies), 7), study(store, len(studies) + 1, last)]
    assert laboratory.LaboratoryResult.load(store, laboratory.compare_arms(store, "a", studies)).updates == 8
