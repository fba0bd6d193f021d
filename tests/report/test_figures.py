import re

import numpy as np
import pytest

from tasks.report import drawing
from tasks.report.figures import all_figures
from tasks.report.updates import binned, rolling
from tests.report.svg import figures_of, lines
from tests.report.synthetic import make_run


def test_every_figure_has_data(figures):
    assert list(figures) == [name for name in all_figures() if name != "benchmarks"]
    assert 5 in lines(figures["accuracy_over_time"], "blue")
    assert 5 in lines(figures["accuracy"], "blue")
    assert 5 in lines(figures["accuracy"], "orange")
    assert lines(figures["reward"], "blue").count(32) == 4
    assert lines(figures["ratios"], "orange").count(32) == 4 * 3
    assert lines(figures["ratios"], "blue").count(32) == 4 * 3
    for color in ("blue", "orange"):
        assert lines(figures["ratio_histograms"], color).count(40) == 4
    assert lines(figures["length"], "blue").count(32) == 4
    assert [lines(figures["stability"], color).count(32) for color in ("green", "orange", "blue")] == [4, 4, 4]
    assert len(lines(figures["ledger"], "blue")) >= 4


def test_same_data_same_bytes(mu_grpo, figures):
    assert figures_of(mu_grpo) == figures


def test_figures_fit_into_one_page(figures):
    """Ids are unique over all figures, every reference has its target, and every color follows the page's."""
    ids = [name for svg in figures.values() for name in re.findall(r' id="([^"]+)"', svg)]
    assert len(ids) == len(set(ids))
    for svg in figures.values():
        targets = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
        assert targets <= set(re.findall(r' id="([^"]+)"', svg))
        assert "<image" not in svg
        bare = re.sub(r"var\(--[\w-]+, #\w{6}\)", "", svg)
        assert set(re.findall(r"(?:fill|stroke): (#\w+)", bare)) <= {"#000000", "#ffffff"}


@pytest.mark.parametrize(
    "fields",
    [
        {"stages": 1},
        {"stages": 64, "updates_per_stage": 8, "updates_per_rollout": 8},
        {"stages": 2, "updates_per_stage": 1024, "updates_per_rollout": 1024},
        {"stages": 3, "nulls": True},
        {"stages": 2, "updates_per_stage": 1, "updates_per_rollout": 1},
    ],
    ids=["one stage", "64 stages", "long stages", "nulls", "one update"],
)
def test_runs_of_other_shapes(tmp_path, fields):
    figures = figures_of(make_run(tmp_path, **fields))
    assert list(figures) == [name for name in all_figures() if name != "benchmarks"]
    for svg in figures.values():
        assert "nan" not in svg.lower()
        assert len(svg) < 250_000


def test_base_alone_has_what_there_is(base_only):
    assert list(figures_of(base_only)) == ["accuracy", "steps", "ledger"]


def test_binned_means_ignore_nan():
    x, y = binned(np.arange(5.0), np.array([1.0, np.nan, 3.0, np.nan, np.nan]), points=3)
    assert x.tolist() == [0.5, 2.5, 4.0]
    assert y[:2].tolist() == [1.0, 3.0]
    assert np.isnan(y[2])


def test_rolling_mean_by_hand():
    assert rolling(np.array([1.0, 2.0, np.nan, 4.0]), 3).tolist() == [1.5, 1.5, 3.0, 4.0]
    assert rolling(np.array([1.0, 3.0, 5.0]), 9).tolist() == [2.0, 3.0, 4.0]


def test_a_ratio_axis_has_plain_numbers():
    with drawing.style():
        for low, high in ((0.93, 1.08), (0.3, 4), (0.01, 5), (1e-6, 30)):
            _, (axes,) = drawing.panels(1, 2.0)
            axes.plot([0, 1], [low, high])
            drawing.log_axis(axes)
            assert 2 <= len(axes.get_yticks()) <= 6
            assert 1.0 in axes.get_yticks()
