"""The picture of the steps: what it shows, that it is the workflow's, and what its steps took in a run."""

import xml.etree.ElementTree as ET

import pytest

from tasks.report.history import load_history
from tasks.report.steps import Card, draw_run
from tasks.store import Store
from tests.report.clock import Clock, process
from tests.report.pages import SVG, texts
from tests.report.synthetic import SyntheticRun
from tools.graphs import PICTURE, columns, picture


def seconds_of(run: SyntheticRun) -> dict[tuple[str, str], tuple[float, float]]:
    """Artifacts and seconds by stage and task."""
    shown = draw_run(load_history(run.store, run.evaluations)).series
    return {(one.panel, one.name): (one.x[0], one.y[0]) for one in shown}


def svg_of(run: SyntheticRun) -> str:
    return draw_run(load_history(run.store, run.evaluations)).svg


def test_the_readme_shows_the_workflow() -> None:
    """`make graph` renews it."""
    assert PICTURE.read_text(encoding="utf-8") == picture()
    assert "docs/mu_grpo.svg" in (PICTURE.parents[1] / "README.md").read_text()
    assert "prefers-color-scheme: dark" in picture()
    assert "http" not in picture().replace('xmlns="http://www.w3.org/2000/svg"', "")
    cards = [card for some in columns().values() for card in some]
    assert cards == [Card.of_task(card.name) for card in cards], "steps.py maps other tasks than the workflow"
    assert [card.name for card in columns()["stage 4"]] == [
        "prepare_prompts",
        "generate",
        "verify",
        "optimize",
        "evaluate",
    ]


def test_every_step_is_drawn_and_said(mu_grpo: SyntheticRun) -> None:
    svg = svg_of(mu_grpo)
    said = ET.fromstring(svg).find(f"{SVG}desc").text
    for stage in (1, 2, 3, 4):
        assert f"stage {stage}" in texts(svg)
        assert f"stage {stage}: prepare_prompts, 0.5 s; generate (2), 20.8 s; verify, 3.1 s; optimize, 16.5 s" in said
    assert said.startswith("before the stages: prepare_benchmark (1), 0.5 s; prepare_policy, 31.5 s; evaluate (1)")


def test_steps_take_what_their_artifacts_took(mu_grpo: SyntheticRun) -> None:
    steps = seconds_of(mu_grpo)
    for stage in ("stage 1", "stage 4"):
        assert steps[stage, "generate"] == pytest.approx((2, 0.4 + 9 + 0.5 + 0.4 + 10 + 0.5))
        assert steps[stage, "verify"] == pytest.approx((1, 0.1 + 2.5 + 0.5))
        assert steps[stage, "optimize"] == pytest.approx((1, 0.5 + 1.5 + 14 + 0.5))
        assert steps[stage, "evaluate"] == pytest.approx((1, 0.3 + 4 + 0.7 + 0.5))
    assert steps["", "prepare_policy"] == pytest.approx((1, 31.5))


def test_a_step_that_alternates_is_one(grpo: SyntheticRun) -> None:
    """It makes shards, verdicts and a policy, one after the other."""
    seconds = 0.5 * 2 + 0.5 + 0.5 + 1.5 + 14.0 + 24.0 + 2.6 + 6.0 + 0.5
    assert seconds_of(grpo)["stage 3", "alternate"] == pytest.approx((4, seconds))


class SideBySide(SyntheticRun):
    """Both shards are generated at once."""

    def _write(self, kind, *content, **facts):
        started = self.clock.now
        ref = super()._write(kind, *content, **facts)
        if kind == "rollouts":
            self.clock.now = started
        return ref


class Interrupted(SyntheticRun):
    """An earlier attempt made all the updates, and the last one only wrote the policy."""

    def _pass(self, draft, **phases):
        super()._pass(draft, **({} if "logp" in phases else phases))
        draft.earlier.update(phases)


@pytest.mark.parametrize(
    ("kind", "step", "seconds"),
    [(SideBySide, "generate", 0.4 + 10 + 0.5), (Interrupted, "optimize", 0.5 + 1.5 + 14 + 0.5)],
)
def test_time_counts_once_and_that_of_an_interrupted_attempt_counts(tmp_path, kind, step, seconds) -> None:
    clock = Clock()
    run = kind(Store.open(tmp_path), clock)
    with process(clock, "one"):
        run.base().stages(1)
    assert seconds_of(run)["stage 1", step][1] == pytest.approx(seconds)
