import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tasks.report import drawing
from tasks.report.figures import WORDS, make_figures
from tasks.report.history import load_history
from tasks.report.ledger import make_ledger
from tests.report.synthetic import make_run

SVG = "{http://www.w3.org/2000/svg}"


def figures_of(run) -> dict[str, str]:
    history = load_history(run.store, run.evaluations)
    return make_figures(history, make_ledger(history))


def colored(svg: str, color: str) -> list[ET.Element]:
    """Elements that a color of the palette draws or fills."""
    return [one for one in ET.fromstring(svg).iter() if f"var(--{color}," in one.get("style", "")]


def lines(svg: str, color: str) -> list[int]:
    """Number of points of every line of a color."""
    found = [one.get("d", "") for one in colored(svg, color) if one.tag == f"{SVG}path"]
    return [len(re.findall("[ML]", path)) for path in found]


def texts(svg: str) -> list[str]:
    return ["".join(one.itertext()) for one in ET.fromstring(svg).iter(f"{SVG}text")]


def test_every_figure_has_data(mu_grpo):
    figures = figures_of(mu_grpo)
    assert list(figures) == list(WORDS)
    assert 5 in lines(figures["accuracy"], "blue")
    assert 5 in lines(figures["accuracy"], "orange")
    assert lines(figures["reward"], "blue").count(32) == 4
    assert [count for stage in (1, 2, 3, 4) for count in lines(figures["clip_veto"], f"stage-{stage}")].count(32) == 8
    assert lines(figures["ratios"], "orange").count(32) == 4 * 3
    assert lines(figures["ratios"], "blue").count(32) == 4 * 3
    assert lines(figures["length"], "blue").count(32) == 4
    assert [lines(figures["stability"], color).count(32) for color in ("green", "orange", "blue")] == [4, 4, 4]
    assert len(lines(figures["ledger"], "blue")) >= 4


def test_axes_are_labelled_with_units(mu_grpo):
    figures = figures_of(mu_grpo)
    assert {"avg@4, sampled", "greedy", "shows working", "base", "stage 4", "50 %"} <= set(texts(figures["accuracy"]))
    assert "staleness (updates since the responses were generated)" in texts(figures["clip_veto"])
    assert {"entropy (nats per token)", "update"} <= set(texts(figures["stability"]))
    assert "76.0 s, 33 %" in texts(figures["ledger"])


def test_same_data_same_bytes(mu_grpo):
    assert figures_of(mu_grpo) == figures_of(mu_grpo)


def test_figures_fit_into_one_page(mu_grpo):
    """Ids are unique over all figures, every reference has its target, and every color follows the page's."""
    figures = figures_of(mu_grpo)
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
    assert list(figures) == list(WORDS)
    for svg in figures.values():
        assert "nan" not in svg.lower()
        assert len(svg) < 250_000


def test_grpo_has_the_staleness_that_it_has(grpo):
    figures = figures_of(grpo)
    assert [count for stage in (1, 2, 3, 4) for count in lines(figures["clip_veto"], f"stage-{stage}")].count(4) == 4
    assert "vetoed tokens" not in texts(figures["clip_veto"])


def test_base_alone_has_what_there_is(base_only):
    assert list(figures_of(base_only)) == ["accuracy", "ledger"]


def test_binned_means_ignore_nan():
    x, y = drawing.binned(np.arange(5.0), np.array([1.0, np.nan, 3.0, np.nan, np.nan]), points=3)
    assert x.tolist() == [0.5, 2.5, 4.0]
    assert y[:2].tolist() == [1.0, 3.0]
    assert np.isnan(y[2])


def test_rolling_mean_by_hand():
    assert drawing.rolling(np.array([1.0, 2.0, np.nan, 4.0]), 3).tolist() == [1.5, 1.5, 3.0, 4.0]
    assert drawing.rolling(np.array([1.0, 3.0, 5.0]), 9).tolist() == [2.0, 3.0, 4.0]


def test_a_ratio_axis_has_plain_numbers():
    with drawing.style():
        for low, high in ((0.93, 1.08), (0.3, 4), (0.01, 5), (1e-6, 30)):
            _, (axes,) = drawing.panels(1, 2.0)
            axes.plot([0, 1], [low, high])
            drawing.log_axis(axes)
            assert 2 <= len(axes.get_yticks()) <= 6
            assert 1.0 in axes.get_yticks()
