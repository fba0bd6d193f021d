"""What the page says, and the data behind its figures."""

import re
from dataclasses import replace

import pytest

from tasks.evaluate.statistics import Interval
from tasks.experiments.figures import make_figures
from tasks.experiments.laboratory import find_parts
from tasks.experiments.page import render_page, write_page
from tasks.formats import MINUS, points, share_with_interval
from tasks.report.ledger import training_clock
from tests.experiments.conftest import BASELINES, MODELS
from tests.report.pages import assert_self_contained, words
from tests.report.test_page_in_browser import assert_allowed, assert_fits

OF_BASELINES = [f"{kind}-{name}" for name in BASELINES.values() for kind in ("causes", "execution")]
KINDS = ["accuracy", "reward", "vetoed", *OF_BASELINES]


def test_the_page_is_self_contained_and_names_what_the_runs_made(page, system_runs):
    assert_self_contained(page)
    for run in system_runs:
        assert run.report in page
        assert run.history.evaluated[-1].policy.digest[:16] in page
    for told in (
        "mu_grpo does not differ significantly from grpo: 84.7 % (54.7 to 100.0) against 84.7 % (54.7 to 100.0), +0.0",
        f"With tiny, mu_grpo does not differ significantly from <b>m2po</b>: {MINUS}",  # It lacks a seed.
        "generation 1.26x (1.26 to 1.26 over seeds)",
        "baseline: no ratio on some seeds",
        "within 2 points",
    ):
        assert told in words(page)
    assert len(page.encode()) < 5_000_000
    assert not re.search("<b>(7B|m2po)", page)
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("low", "high", "p", "verdict"),
    [
        (-0.05, -0.01, 0.004, "falls below"),
        (0.01, 0.05, 0.004, "exceeds"),
        (0.001, 0.009, 0.004, "is within 2.0 points of"),
        (-0.05, 0.01, 0.4, "does not differ significantly from"),
        # One of many tests: the interval is of this one alone, the p is adjusted for their number.
        (0.003, 0.042, 0.162, "does not differ significantly from"),
    ],
)
def test_a_difference_is_significant_or_not(result, system_runs, low, high, p, verdict):
    told = {"difference": Interval((low + high) / 2, low, high), "p_bootstrap": p, "equivalent": "within" in verdict}
    test = result.tests[0].model_copy(update=told)
    runs = [replace(run, seed=run.seed + (run.system == "grpo")) for run in system_runs]  # One common seed of two.
    page = render_page(result.model_copy(update={"tests": [test]}), runs, [], {})
    assert f"mu_grpo {verdict} grpo: {points(test.difference.value)} points" in words(page)


def test_every_figure_is_there_with_its_data(drawn, page):
    expected = {f"{kind}-{model}" for kind in KINDS for model in ("tiny", "b-7b-b")}
    assert set(drawn) == expected | {"laboratory-a"}
    for name, one in drawn.items():
        assert sum(len(series.x) for series in one.series) > 0, name
        assert f'id="figure-{name}"' in page
        assert f"figures/{name}.csv" in page
        assert one.svg.count("<path") > 3, name


def test_settings_are_those_of_all_seeds_written_as_in_a_report(result, system_runs):
    more = {"lora": None, "benchmarks": [{"name": "easy", "problems": 30, "level": None}]}
    runs = []
    for run in system_runs:
        own = {"seed": run.seed, "kappa": 0.12345681 if run.history.updates_per_rollout == 4 else 0.12345678}
        runs.append(replace(run, history=replace(run.history, settings={**run.history.settings, **more, **own})))
    section = words(render_page(result, runs, [], {})).split("All other settings are shared.")[1]
    assert "tiny lora none tiny benchmarks name=easy problems=30" in section
    assert "tiny kappa 0.12345678 0.12345681 0.12345678" in section
    assert "seed" not in section.split("Every run has its own report")[0]


def test_models_whose_names_differ_only_in_other_characters_have_figures_of_their_own(result, system_runs):
    names = dict(zip(MODELS, ("模型甲", "模型乙"), strict=True))
    runs = [replace(run, model=names[run.model]) for run in system_runs]
    drawn = make_figures(result.model_copy(update={"models": list(names.values()), "causes": []}), runs, [])
    assert [one.model for one in drawn.values() if one.title == "Training reward"] == list(names.values())


def test_the_page_is_written_with_the_data_of_its_figures(tmp_path, result, system_runs, drawn):
    cells = [cell for cell in result.cells if cell.model == "tiny"]
    few = result.model_copy(update={"models": ["tiny"], "cells": cells})
    write_page(tmp_path, few, [run for run in system_runs if run.model == "tiny"], [])
    assert "mu_grpo" in (tmp_path / "report.html").read_text(encoding="utf-8")
    written = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("figures/*.csv")}
    assert written == {name: figure.csv() for name, figure in drawn.items() if name.endswith("-tiny")}
    lacking = {"by_seed": [0.5], "base": 0.11}  # A run of the first system is missing.
    cells = [cell.model_copy(update=lacking if cell.system == "mu_grpo" else {}) for cell in cells]
    text = str(few.model_copy(update={"cells": cells, "causes": []}))
    assert "11.0 %" not in text
    assert "by cause" not in text


def test_tables_of_many_systems_keep_their_numbers_in_a_terminal(result):
    systems = [f"system_{number}" for number in range(8)]
    one = result.cells[0]
    cells = [one.model_copy(update={"system": system}) for system in systems]
    text = str(result.model_copy(update={"systems": systems, "cells": cells}))
    assert text.count(share_with_interval(one.accuracy)) == 8
    assert text.count(" total ") == 1
    assert "…" not in text


def run_of(system_runs, system):
    return next(run for run in system_runs if (run.model, run.system, run.seed) == ("tiny", system, 0))


def test_accuracy_is_drawn_over_the_time_of_training(drawn, system_runs):
    run = run_of(system_runs, "mu_grpo")
    curves = {one.name: one for one in drawn["accuracy-tiny"].series}
    own, other = (curves[f"mu_grpo, seed {seed}"] for seed in (0, 1))
    assert own.x.tolist() == list(training_clock(run.history))
    assert own.y.tolist() == [policy.accuracy.value for policy in run.history.evaluated] != other.y.tolist()
    assert curves["mu_grpo"].y == pytest.approx((own.y + other.y) / 2)


def test_an_execution_line_has_the_seconds_of_the_phases(drawn, system_runs):
    series = drawn["execution-grpo-tiny"].series
    for system in ("mu_grpo", "grpo"):
        run = run_of(system_runs, system)
        for lane in ("generate", "optimize", "verify", "switch"):
            seconds = sum(one.y.sum() for one in series if (one.panel, one.name) == (system, lane))
            assert seconds == pytest.approx(run.ledger.seconds.get(lane, 0.0), rel=0.05), (system, lane)
        assert sum(one.y.sum() for one in series if (one.panel, one.name) == (system, "load, save")) > 0


def test_a_waterfall_falls_from_the_baseline_to_the_reference(drawn, result, system_runs):
    runs = [run for run in system_runs if run.model == "tiny"]
    for baseline, name in BASELINES.items():
        bars = drawn[f"causes-{name}-tiny"].series
        # Seeds that only one system has are left out: m2po has the first alone.
        seeds = {run.seed for run in runs if run.system == baseline}
        for place, system in ((0, baseline), (-1, "mu_grpo")):
            own = [training_clock(run.history)[-1] for run in runs if run.system == system and run.seed in seeds]
            assert bars[place].name == system
            assert bars[place].y == pytest.approx(sum(own) / len(own))
        causes = [one for one in result.causes if (one.model, one.baseline) == ("tiny", baseline)]
        assert [(one.name, one.x[0]) for one in bars[1:-1]] == [(one.name, one.seconds) for one in causes]


@pytest.mark.whole
def test_a_browser_shows_every_figure_and_nothing_too_wide(page, tmp_path):
    assert_fits(page, tmp_path, figures=len(KINDS) * len(MODELS) + 1)
    assert_allowed(page, tmp_path)


def test_a_page_has_the_parts_of_its_reproduction_or_else_the_latest(store, laboratory):
    def write(kind, parents, title=""):
        with store.write(kind, settings={}, parents=parents, seed=0) as draft:
            laboratory[0].model_copy(update={"title": title, "problems": 8}).save(draft.path)
            draft.facts.update(part="a")
        return draft.ref

    reports = [write("report", {})]
    write("reproduction", {"reports": reports, "laboratory": [write("laboratory", {}, "its own")]})
    write("laboratory", {}, "later")
    assert [[one.title for one in find_parts(store, of)] for of in (reports, [])] == [["its own"], ["later"]]
