"""Prices and assumptions: what may stand in their file."""

from typing import Any

import pytest
import yaml

from tasks.errors import SettingsError
from tasks.settings import Settings
from tasks.settings.cost import CostSettings
from tools import ROOT

PRICES = ROOT / "configs/prices.yaml"


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
        ({"storage": {"gb_month": None}}, "storage.gb_month: got None"),
        ({"storage": {"months": -1}}, "storage.months: got -1"),
    ],
)
def test_a_mistake_names_field_value_and_fix(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        CostSettings.parse(Settings.merge(yaml.safe_load(PRICES.read_text()), change))
