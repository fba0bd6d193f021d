from dataclasses import replace
from html import escape

import numpy as np
import pytest

from tasks.report.figures import make_figures, over_staleness, words_of
from tasks.report.history import History, load_history
from tasks.report.update_figures import PANELS, histogram_counts, shown_stages
from tasks.report.updates import thinned
from tasks.train.histogram import ADVANTAGE_EDGES
from tests.report.svg import figures_of, lines, panels, texts
from tests.report.synthetic import SyntheticRun, make_run, page_of

NEW_COLUMNS = "histogram|gate|trigger|^ess|veto_fraction_negative|reject|kl_k1|ratio_max"


def history_of(run: SyntheticRun) -> History:
    return load_history(run.store, run.evaluations)


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> SyntheticRun:
    """More stages than panels, and more updates than points."""
    return make_run(tmp_path_factory.mktemp("many"), 10, updates_per_stage=512, updates_per_rollout=512)


@pytest.fixture(scope="module")
def many_figures(many) -> dict[str, str]:
    return figures_of(many)


def test_a_panel_per_stage_with_every_line(figures):
    for name in over_staleness():
        assert panels(figures[name]) == ["stage 1", "stage 2", "stage 3", "stage 4"]
        assert texts(figures[name]).count("staleness (updates)") == 2
    drawn = {
        "clip_veto": {"blue": 1, "green": 1, "orange": 1},
        "ratios_negative": {"orange": 3, "muted": 1},
        "ratios_positive": {"blue": 3, "muted": 1},
        "ess": {"blue": 1},
        "kl": {"blue": 1, "orange": 1},
    }
    for name, colors in drawn.items():
        for color, count in colors.items():
            assert lines(figures[name], color).count(32) == 4 * count, (name, color)
    # Without a trigger, as in the first update, there is no place where one falls.
    assert lines(figures["triggers"], "orange").count(32) == 4
    assert lines(figures["triggers"], "blue").count(31) == 4


def test_alternating_runs_have_the_staleness_that_they_have(grpo):
    """Thirty-two updates of a stage share four ages."""
    figures = figures_of(grpo)
    for name in ("clip_veto", "ess"):
        assert lines(figures[name], "blue").count(4) == 4


def test_without_a_veto_nothing_speaks_of_it(grpo):
    figures = figures_of(grpo)
    assert "triggers" not in figures
    assert "vetoed" not in " ".join(text for svg in figures.values() for text in texts(svg))
    assert "veto" not in " ".join(words_of(history_of(grpo))[name].title for name in figures)


def test_some_of_many_stages(many, many_figures):
    history = history_of(many)
    assert shown_stages(history) == [1, 2, 4, 5, 6, 7, 9, 10]
    words = words_of(history)
    for name in ("advantages", *over_staleness()):
        assert len(panels(many_figures[name])) == PANELS
        assert words[name].caption.endswith("Shown are 8 of 10 stages: the first, the last and evenly spaced ones.")
        assert escape(words[name].caption) in many_figures[name]
    assert "Shown are" not in words["reward"].caption
    assert page_of(many).count("Shown are 8 of 10 stages") == 2 * len(
        ("advantages", "ratio_histograms", *over_staleness())
    )


def test_long_stages_stay_light(many, many_figures):
    for name, svg in many_figures.items():
        assert len(svg.encode()) < 150_000, name
    history = history_of(many)
    random = np.random.default_rng(0)
    noise = {name: np.exp(random.normal(size=len(column))) for name, column in history.updates.items()}
    kept = {name: history.updates[name] for name in ("stage", "update", "staleness")}
    noisy = make_figures(replace(history, updates={**noise, **kept}))
    for name in over_staleness():
        assert 20_000 < len(noisy[name].svg.encode()) < 150_000, name


def test_thinning_by_hand():
    x = np.array([3.0, 0.0, 1.0, 2.0, 0.0, 4.0])
    y = np.array([7.0, 1.0, 4.0, np.nan, 3.0, 5.0])
    assert [column.tolist() for column in thinned(x, y, 9)] == [[0.0, 1.0, 3.0, 4.0], [2.0, 4.0, 7.0, 5.0]]
    # Two values of x to a point: 0 (twice) and 1, then 3 and 4.
    assert [column.tolist() for column in thinned(x, y, 2)] == [[0.0, 3.5], [3.0, 6.0]]
    assert thinned(x, y, 2, np.max)[1].tolist() == [4.0, 7.0]
    assert [len(column) for column in thinned(x, np.full(6, np.nan), 2)] == [0, 0]


def test_histograms_are_sums_over_the_stage(mu_grpo):
    history = history_of(mu_grpo)
    assert history.histograms["advantage_histogram"].shape == (128, len(ADVANTAGE_EDGES) - 1)
    for stage in (1, 4):
        rows = history.updates["stage"] == stage
        counts, kept = histogram_counts(history, "advantage_histogram", "advantage_histogram_kept")[stage]
        assert counts.sum() == history.updates["tokens"][rows].sum() == 32 * 16 * 24
        assert counts[[5, 7, 8, 10]].tolist() == [32 * 24 * responses for responses in (2, 6, 2, 6)]
        assert kept[8:].tolist() == counts[8:].tolist()
        assert kept[7] == history.histograms["advantage_histogram_kept"][rows, 7].sum() < counts[7]


def test_old_artifacts_have_what_they_can_have(tmp_path):
    run = make_run(tmp_path, 2, absent=NEW_COLUMNS)
    figures = figures_of(run)
    assert not {"advantages", "ratio_histograms", "triggers", "ess"} & set(figures)
    assert {"clip_veto", "ratios_negative", "ratios_positive", "kl", "stability", "length"} <= set(figures)
    assert "vetoed, of tokens with A < 0" not in texts(figures["clip_veto"])
    assert [len(lines(figures["kl"], color)) > 0 for color in ("orange", "blue")] == [True, False]
    assert 'id="figure-clip_veto"' in page_of(run)


def test_without_staleness_there_is_no_such_section(tmp_path):
    run = make_run(tmp_path, 1, absent="staleness|histogram")
    assert not {"advantages", "ratio_histograms", *over_staleness()} & set(figures_of(run))
    assert 'id="staleness"' not in page_of(run)


def test_a_stage_without_histograms_has_no_panel(tmp_path):
    """As when an older stage comes from the cache."""
    run = make_run(tmp_path, 1, absent="histogram|^ess$")
    run.absent = "nothing"
    run.stages(1)
    figures = figures_of(run)
    assert panels(figures["advantages"]) == ["stage 2, 3.6 % vetoed"]
    assert panels(figures["ess"]) == ["stage 1", "stage 2"]
    assert lines(figures["ess"], "blue").count(32) == 1
