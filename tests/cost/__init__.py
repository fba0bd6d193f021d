"""The paper's setting, whose plan is computed by hand, and the prices of the project."""

from tasks.cluster.shapes import KNOWN
from tasks.settings import RunSettings
from tasks.settings.cost import CostSettings
from tools import ROOT

PRICES = ROOT / "configs/prices.yaml"
COSTS = CostSettings.read(PRICES)
SHAPE = KNOWN["Qwen/Qwen2.5-Math-7B"]
WEIGHTS = 7_615_616_512


def paper(overrides: str = "", algorithm: str = "mu-grpo") -> RunSettings:
    return RunSettings.read(ROOT / f"configs/paper/gpu-4/qwen2.5-math-7b-{algorithm}.yaml", overrides)
