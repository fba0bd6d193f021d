"""The table beside a figure has the numbers that are drawn, which are those that the run noted."""

import csv
import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.artifacts import Store
from tasks.report import drawing
from tasks.report.drawing import COLUMNS, Picture, Series
from tasks.report.figures import Drawn, all_figures
from tasks.report.history import History, load_history
from tasks.report.ledger import make_ledger
from tasks.report.run_figures import timeline
from tests.report.clock import Clock, process
from tests.report.svg import paths
from tests.report.synthetic import SyntheticRun
from tools import ROOT

Table = dict[tuple[str, str], list[dict[str, float]]]


def read(text: str) -> Table:
    """Rows by panel and series."""
    found: Table = {}
    for row in csv.DictReader(io.StringIO(text)):
        assert tuple(row) == COLUMNS
        numbers = {name: float(row[name]) if row[name] else np.nan for name in COLUMNS[2:]}
        found.setdefault((row["panel"], row["series"]), []).append(numbers)
    return found


def column(table: Table, panel: str, series: str, name: str = "y") -> list[float]:
    return [row[name] for row in table[panel, series]]


@pytest.fixture(scope="module")
def tables(drawn: dict[str, Drawn]) -> dict[str, Table]:
    return {name: read(figure.csv) for name, figure in drawn.items()}


@pytest.fixture(scope="module")
def history(mu_grpo: SyntheticRun) -> History:
    return load_history(mu_grpo.store, mu_grpo.evaluations)


def test_every_figure_of_a_report_has_its_table_beside_it(mu_grpo, mu_grpo_report):
    folder = mu_grpo.store.path(mu_grpo_report) / "figures"
    names = {path.stem for path in folder.glob("*.svg")}
    assert names == {path.stem for path in folder.glob("*.csv")} == set(all_figures()) - {"benchmarks"}
    for name in names:
        assert any(
            np.isfinite(row["y"]) for rows in read((folder / f"{name}.csv").read_text()).values() for row in rows
        )


def test_every_table_is_explained():
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8").split("## Figures as tables")[1]
    assert set(all_figures()) <= set(re.findall(r"`([^`]+)`", page))


def test_numbers_of_updates_are_those_of_the_metrics(tables, history):
    update = history.updates["update"].tolist()
    assert column(tables["reward"], "", "reward", "x") == update
    assert column(tables["reward"], "", "reward") == history.updates["reward"].tolist()
    for number in (1, 4):
        rows = history.updates["stage"] == number
        panel = f"stage {number}"
        assert column(tables["kl"], panel, "kl_k3") == history.updates["kl_k3"][rows].tolist()
        assert column(tables["kl"], panel, "kl_k3", "x") == list(range(32))
    # What is null in the metrics is an empty cell.
    position = column(tables["triggers"], "stage 1", "trigger_position")
    assert np.isnan(position).tolist() == [True] + 31 * [False]


def test_accuracies_have_their_intervals(tables, history):
    for policy, row in zip(history.evaluated, tables["accuracy"]["", "greedy"], strict=True):
        assert policy.greedy is not None
        assert row == {
            "x": policy.stage,
            "y": policy.greedy.value,
            "low": policy.greedy.low,
            "high": policy.greedy.high,
        }


def test_histograms_are_rows_per_bin(tables, history):
    bins = tables["advantages"]["stage 2", "all"]
    assert [row["x"] for row in bins] == np.arange(-4.0, 4.5, 0.5).tolist()
    assert sum(row["y"] for row in bins) == pytest.approx(1)
    counts = history.histograms["advantage_histogram_kept"][history.updates["stage"] == 2].sum(axis=0)
    tokens = history.updates["tokens"][history.updates["stage"] == 2].sum()
    assert column(tables["advantages"], "stage 2", "kept") == (counts / tokens).tolist()


def test_accuracy_is_drawn_over_the_seconds_of_training(tables, history):
    """Two shards of 9 and 10 s, 2.5 s of checks and 15.5 s of updates; and of each its loading and storage."""
    x = column(tables["accuracy_over_time"], "", "avg@4", "x")
    of_a_stage = (0.4 + 9 + 0.5) + (0.4 + 10 + 0.5) + (0.1 + 2.5 + 0.5) + (0.5 + 15.5 + 0.5)
    assert x == pytest.approx([stage * of_a_stage for stage in range(5)])
    assert column(tables["accuracy_over_time"], "", "avg@4") == [one.accuracy.value for one in history.evaluated]


def test_the_time_line_holds_every_step(tables, history):
    ledger = make_ledger(history)
    rows = {series: rows for (_, series), rows in tables["timeline"].items()}
    assert {name: len(bars) for name, bars in rows.items()} == {
        "prepare": 6,
        "generate": 8,
        "verify": 4,
        "optimize": 4,
        "evaluate": 5,
    }
    ends = [row["x"] + row["y"] for bars in rows.values() for row in bars]
    assert max(ends) == pytest.approx(ledger.wall_clock)
    assert sum(row["y"] for row in rows["optimize"]) == pytest.approx(4 * 16.5)


def timeline_of(run: SyntheticRun) -> Table:
    history = load_history(run.store, run.evaluations)
    with drawing.style():
        return read(timeline(history).csv())


def test_a_time_line_leaves_out_what_nobody_worked(tmp_path):
    clock = Clock()
    run = SyntheticRun(Store.open(tmp_path), clock)
    with process(clock, "first"):
        run.base()
    clock.now += 86_400
    with process(clock, "second"):
        run.stages(1)
    bars = timeline_of(run)["", "evaluate"]
    assert bars[0]["x"] + bars[0]["y"] < bars[1]["x"] < 100


def test_alternating_steps_have_a_row_of_their_own(grpo):
    rows = {series: len(bars) for (_, series), bars in timeline_of(grpo).items()}
    assert rows == {"prepare": 6, "alternate": 4, "evaluate": 5}


def coordinates(path: str) -> np.ndarray:
    return np.array([[float(x), float(y)] for x, y in re.findall(r"[ML] (\S+) (\S+)", path)])


@pytest.mark.parametrize(
    ("figure", "series", "color"),
    [
        ("accuracy_over_time", ("", "avg@4"), "blue"),
        ("ess", ("stage 3", "ess"), "blue"),
        ("kl", ("stage 2", "kl_k3"), "orange"),
    ],
)
def test_what_is_drawn_is_what_the_table_says(figure, series, color, figures, tables):
    """On a page x grows with the table's and y falls with it, by one factor each."""
    rows = tables[figure][series]
    drawn = [coordinates(path) for path in paths(figures[figure], color)]
    numbers = np.array([[row["x"], row["y"]] for row in rows])
    fits = []
    for line in [one for one in drawn if len(one) == len(numbers)]:
        slope = np.ptp(line, axis=0) / np.ptp(numbers, axis=0)
        expected = line[0] + (numbers - numbers[0]) * slope * [1, -1]
        fits.append(float(np.abs(line - expected).max()))
    assert min(fits) < 0.05


@given(st.lists(st.floats(allow_infinity=False, width=64), min_size=1, max_size=8))
def test_no_digit_is_lost(values):
    one = Series.of('a, "panel"', "s", range(len(values)), values)
    rows = list(csv.DictReader(io.StringIO(Picture("", [one]).csv())))
    assert [row["panel"] for row in rows] == [one.panel] * len(values)
    for row, value in zip(rows, values, strict=True):
        assert (row["y"] == "") if np.isnan(value) else float(row["y"]) == value
