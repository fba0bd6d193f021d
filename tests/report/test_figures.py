"""Figures show the numbers that a run noted, and the table beside a figure has them all."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

from tasks.formats import DASH
from tasks.report.drawing import COLUMNS, Chart, Look, Panel, Series, style, thin_out
from tasks.report.examples import pick_groups
from tasks.report.figures import all_figures
from tasks.report.history import History
from tasks.report.ledger import make_ledger
from tasks.store import ArtifactRef
from tests.report.pages import figures_of, paths, texts, words
from tests.report.synthetic import SyntheticRun, history_of, make_run, report_of
from tools import ROOT

ALL = [name for name in all_figures() if name != "benchmarks"]
OVER_STALENESS = [name for name, figure in all_figures().items() if figure.over == "staleness"]
Table = dict[tuple[str, str], list[dict[str, float]]]


def read(text: str) -> Table:
    """Rows by panel and series."""
    assert "nan" not in text  # What is absent is an empty cell.
    found: Table = {}
    for row in csv.DictReader(io.StringIO(text)):
        assert tuple(row) == COLUMNS
        numbers = {name: float(row[name]) if row[name] else np.nan for name in COLUMNS[2:]}
        found.setdefault((row["panel"], row["series"]), []).append(numbers)
    return found


def column(table: Table, panel: str, series: str, name: str = "y") -> list[float]:
    return [row[name] for row in table[panel, series]]


def tables_of(report: Path) -> dict[str, Table]:
    return {path.stem: read(path.read_text(encoding="utf-8")) for path in report.glob("figures/*.csv")}


@pytest.fixture(scope="module")
def tables(mu_grpo: SyntheticRun, mu_grpo_report: ArtifactRef) -> dict[str, Table]:
    return tables_of(mu_grpo.store.path(mu_grpo_report))


@pytest.fixture(scope="module")
def history(mu_grpo: SyntheticRun) -> History:
    return history_of(mu_grpo)


def test_every_figure_is_a_file_with_a_table_that_is_explained(mu_grpo, mu_grpo_report):
    folder = mu_grpo.store.path(mu_grpo_report) / "figures"
    names = {path.stem for path in folder.glob("*.svg")}
    assert names == {path.stem for path in folder.glob("*.csv")} == set(ALL)
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8").split("## Figures as tables")[1]
    assert set(all_figures()) <= set(re.findall(r"`([^`]+)`", page))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"stages": 8, "updates_per_stage": 25, "updates_per_rollout": 25}, "after 200 updates in 8 stages."),
        ({"stages": 1, "updates_per_stage": 512, "updates_per_rollout": 512}, "after 512 updates in 1 stage."),
        ({"stages": 2, "nulls": True}, f"stage 2 64 76.2 % 63.9 to 85.4 {DASH} {DASH} 22.5 2.5 %"),
        ({"stages": 2, "updates_per_stage": 1, "updates_per_rollout": 1}, "after 2 updates"),
    ],
)
def test_runs_of_other_shapes(tmp_path, fields, told):
    """Also with more updates than points."""
    run = make_run(tmp_path, **fields)
    report = report_of(run)
    figures = figures_of(report)
    for name in OVER_STALENESS:
        shown = [text for text in texts(figures[name]) if text.startswith("stage ")]
        assert (len(shown), shown[0], shown[-1]) == (run.stage, "stage 1", f"stage {run.stage}")
    assert len([text for text in texts(figures["timeline"]) if text.startswith("stage ")]) == run.stage
    assert set(figures) == set(ALL)
    for svg in figures.values():
        assert "nan" not in svg.lower()
        assert len(svg) < 250_000
    page = (report / "report.html").read_text(encoding="utf-8")
    assert told in words(page)
    assert len(page.encode()) < 2_000_000


def test_a_run_of_the_base_policy_alone_has_its_figures(tmp_path):
    report = report_of(make_run(tmp_path, 0))
    assert list(figures_of(report)) == ["accuracy", "timeline"]
    page = (report / "report.html").read_text(encoding="utf-8")
    assert 'id="tokens"' not in page
    for text in ("There is no second evaluation yet.", "No stage is finished yet", "33.8 %"):
        assert text in words(page)


def test_thinning_worked_numbers():
    x = np.array([3.0, 0.0, 1.0, 2.0, 0.0, 4.0])
    y = np.array([7.0, 1.0, 4.0, np.nan, 3.0, 5.0])
    assert [column.tolist() for column in thin_out(x, y, 2 * y, points=9)] == [
        [0.0, 1.0, 3.0, 4.0],
        [2.0, 4.0, 7.0, 5.0],
        [4.0, 8.0, 14.0, 10.0],
    ]
    # Two values of x to a point: 0 (twice) and 1, then 3 and 4.
    assert [column.tolist() for column in thin_out(x, y, points=2)] == [[1 / 3, 3.5], [8 / 3, 6.0]]
    assert [len(column) for column in thin_out(x, np.full(6, np.nan), points=2)] == [0, 0]


@pytest.mark.parametrize(("shape", "scale", "empty"), [("steps", "log", np.nan), ("filled", "percent", 0.0)])
def test_a_bin_without_tokens_is_drawn_empty(shape, scale, empty):
    """Also beside others, and on a logarithmic axis."""
    bins = Series("", "tokens", range(5), [0.5, 0.0, 0.25, 0.0, 0.25], look=Look(**{shape: True}))
    with style():
        (axes,) = Chart([bins], {"": Panel("", scale)}, "log-ratio").draw().axes
    (drawn,) = axes.patches
    assert drawn.get_data().values.tolist() == pytest.approx([0.5, empty, 0.25, empty, 0.25], nan_ok=True)
    assert drawn.get_data().edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5]


@pytest.mark.parametrize(
    ("rewards", "limits"), [([0.5, 1.0], (0, 1.12)), ([-0.5, 1.0], (-0.56, 1.12)), ([-1.0], (-1.12, 0))]
)
def test_an_axis_from_zero_shows_negative_values_too(rewards, limits):
    with style():
        series = Series("", "reward", range(len(rewards)), rewards)
        (axes,) = Chart([series], {"": Panel("mean reward", "zero")}, "update").draw().axes
    assert axes.get_ylim() == pytest.approx(limits)


def test_histograms_are_shares_of_the_tokens_of_a_stage(tables, history):
    assert history.histograms["advantage_histogram"].shape == (128, 17)
    for stage in ("stage 1", "stage 4"):
        assert column(tables["advantages"], stage, "advantage_histogram", "x") == np.arange(-4.0, 4.5, 0.5).tolist()
        shares = np.array(column(tables["advantages"], stage, "advantage_histogram"))
        assert shares[[5, 7, 8, 10]].tolist() == [responses / 16 for responses in (2, 6, 2, 6)]
        kept = np.array(column(tables["advantages"], stage, "advantage_histogram_kept"))
        assert kept[8:].tolist() == shares[8:].tolist()
        assert kept[7] < shares[7]
        assert len(column(tables["ratio_histograms"], stage, "ratio_histogram_negative")) == 31


def test_a_stage_is_shown_with_its_veto_and_its_limits_though_later_stages_have_others(run, figures):
    """As after `retrain` with another preset. The limits are those of the ratio of a token, by the sign of A."""
    limits = {"mu_grpo": ([2.0], [5.0]), "relaxed": ([], [5.0]), "rec_twoside_is": ([0.8, 1.2], [0.8, 1.2])}
    limits |= {"rec_ring_nois": ([0.8, 1.2, 3.0], [0.4, 0.8, 1.2]), "bapo": ([3.0], []), "gspo": ([], [])}
    with run.process("one"):
        run.base()
        for run.preset in limits:
            run.stages(1)
    report, history = report_of(run), history_of(run)
    tables = tables_of(report)
    assert {panel for panel, _ in tables["triggers"]} == {"stage 1"}
    assert {panel for panel, name in tables["clip_veto"] if name != "clip_fraction"} == {"stage 1"}
    assert {panel for panel, name in tables["advantages"] if name == "advantage_histogram"} == {"stage 1"}
    panels = [all_figures()[f"ratios_{sign}"].chart(history).panels.values() for sign in ("negative", "positive")]
    assert [(one.limits, other.limits) for one, other in zip(*panels, strict=True)] == [*limits.values()]
    drawn = [figures_of(report)["ratios_negative"], figures_of(report)["ratios"], figures["ratios"]]
    assert [one.count("stroke-dasharray: 1.2,1.98") for one in drawn] == [7 + 1, 0, 2 + 1]  # one in the legend
    first, last = pick_groups(run.store, history)
    assert [sum(token.kind == "trigger" for token in worst["tokens"]) for _, worst in (first, last)] == [1, 0]
    assert re.search(r"mu_grpo → relaxed → .*above 2\)", words((report / "report.html").read_text(encoding="utf-8")))


def test_tables_have_the_numbers_of_the_run(tables, history):
    update = history.updates["update"].tolist()
    assert column(tables["reward"], "", "reward", "x") == update
    assert column(tables["reward"], "", "reward") == history.updates["reward"].tolist()
    for number in (1, 4):
        rows = history.updates["stage"] == number
        panel = f"stage {number}"
        assert column(tables["kl"], panel, "kl_k3") == history.updates["kl_k3"][rows].tolist()
        assert column(tables["kl"], panel, "kl_k3", "x") == list(range(32))
        band = [column(tables["ratios_negative"], panel, "ratio_p50_negative", end) for end in ("low", "high")]
        assert band == [history.updates[f"ratio_{name}_negative"][rows].tolist() for name in ("p01", "p99")]
    # What is null in the metrics is an empty cell.
    position = column(tables["triggers"], "stage 1", "trigger_position")
    assert np.isnan(position).tolist() == [True] + 31 * [False]
    for policy, row in zip(history.evaluated, tables["accuracy"]["", "greedy"], strict=True):
        greedy = policy.greedy
        assert row == {"x": policy.stage, "y": greedy.value, "low": greedy.low, "high": greedy.high}


def test_accuracy_is_drawn_over_the_seconds_of_training(tables, history):
    """Two shards of 9 and 10 s, 2.5 s of checks and 15.5 s of updates; and of each its loading and storage."""
    x = column(tables["accuracy_over_time"], "", "avg@4", "x")
    of_a_stage = (0.4 + 9 + 0.5) + (0.4 + 10 + 0.5) + (0.1 + 2.5 + 0.5) + (0.5 + 15.5 + 0.5)
    assert x == pytest.approx([stage * of_a_stage for stage in range(5)])
    assert column(tables["accuracy_over_time"], "", "avg@4") == [one.accuracy.value for one in history.evaluated]


def test_the_time_line_holds_every_step(tables, history, grpo):
    rows = tables["timeline"]
    bars = {task: sum(len(made) for (_, name), made in rows.items() if name == task) for _, task in rows}
    once = {"prepare_benchmark": 1, "prepare_policy": 1, "prepare_prompts": 4}
    assert bars == {**once, "generate": 8, "verify": 4, "optimize": 4, "evaluate": 5}
    ends = [row["x"] + row["y"] for made in rows.values() for row in made]
    assert max(ends) == pytest.approx(make_ledger(history).wall_clock)
    assert [row["y"] for row in rows["stage 2", "optimize"]] == pytest.approx([16.5])
    of_a_stage = {task for stage, task in tables_of(report_of(grpo))["timeline"] if stage == "stage 1"}
    assert of_a_stage == {"prepare_prompts", "alternate", "evaluate"}


@pytest.mark.parametrize(
    ("figure", "series", "color"),
    [("accuracy_over_time", ("", "avg@4"), "blue"), ("kl", ("stage 2", "kl_k3"), "orange")],
)
def test_what_is_drawn_is_what_the_table_says(figure, series, color, figures, tables):
    """On a page x grows with the table's and y falls with it, by one factor each."""
    rows = tables[figure][series]
    points = [re.findall(r"[ML] (\S+) (\S+)", path) for path in paths(figures[figure], color)]
    numbers = np.array([[row["x"], row["y"]] for row in rows])
    fits = []
    for line in [np.array(one, float) for one in points if len(one) == len(numbers)]:
        slope = np.ptp(line, axis=0) / np.ptp(numbers, axis=0)
        expected = line[0] + (numbers - numbers[0]) * slope * [1, -1]
        fits.append(float(np.abs(line - expected).max()))
    assert min(fits) < 0.05
