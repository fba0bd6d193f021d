"""Prices and assumptions: what may stand in their file."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.errors import SettingsError
from tasks.settings import Settings
from tasks.settings.cost import CostSettings
from tools import ROOT

PRICES = ROOT / "configs/prices.yaml"


def test_the_projects_prices_are_valid_and_say_that_nothing_was_measured() -> None:
    costs = CostSettings.read(PRICES)
    assert {one.throughput.source for one in costs.accelerators.values()} == {"assumed"}
    assert all(0 < one.price.spot < one.price.on_demand for one in costs.accelerators.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accelerators": {"nvidia-h200": {"price": {"spot": -1}}}}, "nvidia-h200.price.spot: got -1; .*equal to 0"),
        ({"accelerators": {"nvidia-h200": {"memory_gb": 0}}}, "memory_gb: got 0; should be greater than 0"),
        ({"accelerators": {"nvidia-h200": {"throughput": {"training_flops": 1.5}}}}, "got 1.5; should be less than"),
        ({"accelerators": {"nvidia-h200": {"throughput": {"source": "guessed"}}}}, "got 'guessed'; should be"),
        ({"assumptions": {"response_share": 0}}, "assumptions.response_share: got 0"),
        ({"assumptions": {"store_gb_per_second": "fast"}}, "store_gb_per_second: got 'fast'"),
        ({"assumptions": {"luck": 1}}, "assumptions.luck: unknown field"),
        ({"cpu_pod_hour": None}, "cpu_pod_hour: got None"),
        ({"storage": {"months": -1}}, "storage.months: got -1"),
    ],
)
def test_a_mistake_names_field_value_and_fix(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        CostSettings.parse(Settings.merge(yaml.safe_load(PRICES.read_text()), change))


@pytest.mark.parametrize("text", ["", "[1]", "a: [", "accelerators: {}"])
def test_a_file_that_holds_no_prices(text: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"prices: .*yaml|cpu_pod_hour: missing"):
        CostSettings.read(path)
