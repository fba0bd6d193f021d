"""The page of what benchmarks kept: on values that nobody measured."""

from pathlib import Path

import pytest

from tasks.errors import DataError
from tools.benchmarks.document import write_page
from tools.benchmarks.measurement import Measurement, Ratio

MACHINE = {"cores": 2, "torch": "2.13", "when": "2026-01-02"}
GPU = "<!-- gpu -->\nfrom a GPU\n<!-- end of gpu -->\n"


def measured(name: str = "one", machine: dict[str, object] = MACHINE) -> Measurement:
    ways = {"ours": [3000.0, 4000.0, 5000.0], "theirs": [2.0, 2.0, 2.5]}
    bars = [Ratio("ours", "theirs", [1.4, 1.5, 1.7], 1.6), Ratio("ours", "1 s", [0.5, 0.5, 0.6], 1.0, at_most=True)]
    return Measurement(name, "Some work.", "x/s", ways, bars, facts={"rows": 12345}, machine=machine)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "docs/performance.md"
    path.parent.mkdir()
    path.write_text(f"# Performance\n\n<!-- cpu -->\nfrom before\n<!-- end of cpu -->\n\n{GPU}")
    return path


def test_the_page_is_written_from_kept_results_and_keeps_its_gpu_part(page: Path, tmp_path: Path) -> None:
    measured().write(tmp_path / "kept")
    measured("two", machine=MACHINE | {"torch": "2.14", "when": "2026-01-03"}).write(tmp_path / "kept")
    write_page(page, tmp_path / "kept")
    text = page.read_text()
    assert "<!-- cpu -->\nMeasured 2026-01-02 to 2026-01-03: cores 2, torch 2.13 and 2.14." in text
    assert text.endswith(f"<!-- end of cpu -->\n\n{GPU}")
    assert "from before" not in text


def test_a_page_without_marks_is_left_alone(page: Path, tmp_path: Path) -> None:
    page.write_text("# Mine\n")
    with pytest.raises(DataError, match="cpu"):
        write_page(page, tmp_path / "nothing")
    assert page.read_text() == "# Mine\n"


def test_a_regression_is_one_of_a_ratio_in_its_direction_or_of_a_bar_on_a_unit() -> None:
    kept, worse, slower = measured(), measured(), measured()
    worse.ratios[:] = [Ratio("ours", "theirs", [1.4], 1.6), Ratio("ours", "1 s", [0.9], 1.0, at_most=True)]
    assert worse.regressions(kept) == ["one: ours / theirs is 1.4, the baseline is 1.5; allowed: 5 % worse"]
    assert worse.regressions(None) == []
    slower.ratios[:] = [Ratio("ours", "theirs", [1.43], 1.6), Ratio("ours", "1 s", [1.2], 1.0, at_most=True)]
    assert slower.regressions(kept) == ["one: ours / 1 s is 1.2, the baseline is 0.5; required: at most 1"]
    assert slower.regressions(slower) == []
