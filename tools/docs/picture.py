"""The picture of the README: accuracy and time of Mu-GRPO beside GRPO, from the table of docs/results.md.

python -m tools.docs.picture      writes docs/results.svg (make docs)
"""

import re
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tools.docs import DOCS

PICTURE = DOCS / "results.svg"
_NAMES = {"mu_grpo": "Mu-GRPO", "grpo": "GRPO"}
_COLORS = {"mu_grpo": "#3a5fcd", "grpo": "#c05a10"}
_PHASES = {"generate": 1.0, "verify": 0.75, "optimize": 0.5, "other": 0.2}
"""Opacity by phase of training, which is a row of the table; ``other`` is the rest of training."""
_CELL = re.compile(r"(.+? (?:%|s|min))(?: \((.+) to (.+)\))?")
_SIZES = {"%": 1, "s": 1, "min": 60, "h": 3600}


@dataclass(frozen=True)
class Value:
    """A mean over seeds, with the lowest and the highest seed."""

    mean: float
    low: float
    high: float


def results(page: Path = DOCS / "results.md") -> dict[str, dict[str, Value]]:
    """Return the numbers of the table by system, such as ``mu_grpo, mu 16``, and by row."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    systems: dict[str, dict[str, Value]] = {name: {} for name in rows[0][1:]}
    for label, *cells in rows[2:]:
        for values, cell in zip(systems.values(), cells, strict=True):
            if match := _CELL.fullmatch(cell):
                values[label] = Value(*map(_number, match.groups(match[1])))
    return systems


def _number(text: str) -> float:
    """Return percent or seconds: ``1 min 40 s`` is 100."""
    return sum(float(number) * _SIZES[unit] for number, unit in re.findall(r"([\d.]+) (%|s|min|h)", text))


def picture(path: Path = PICTURE) -> None:
    """Draw accuracy over updates, and the seconds of training by phase."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "mu-grpo", "font.size": 10, "axes.linewidth": 0.8}):
        figure = Figure(figsize=(8, 3), layout="constrained", facecolor="white")
        accuracy, time = figure.subplots(1, 2, width_ratios=[1, 1.05])
        for place, (system, values) in enumerate(results().items()):
            key, _, mu = system.partition(", ")
            label = f"{_NAMES.get(key, key)}, {mu.replace('mu', 'μ =')}"
            _accuracy(accuracy, values, label, _COLORS[key])
            _time(time, values, place, _COLORS[key])
        accuracy.set(xlabel="updates", title="held-out accuracy, avg@4", ylim=(20, 90), xticks=range(0, 65, 16))
        accuracy.yaxis.set_major_formatter("{x:.0f} %")
        accuracy.grid(axis="y", alpha=0.25)
        accuracy.legend(frameon=False, loc="lower right")
        time.set(xlabel="seconds on 2 cores", title="time of training", yticks=[0, 1], ylim=(1.6, -0.6))
        time.set_yticklabels([_NAMES.get(system.partition(",")[0], system) for system in results()])
        for axes in (accuracy, time):
            axes.spines[["top", "right"]].set_visible(False)
            axes.title.set_fontsize(10.5)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _accuracy(axes: Axes, values: dict[str, Value], label: str, color: str) -> None:
    points = {
        0 if row == "avg@4, base" else int(row.split()[1]): value
        for row, value in values.items()
        if row.startswith("avg@4")
    }
    updates = sorted(points)
    low, high = [points[at].low for at in updates], [points[at].high for at in updates]
    axes.fill_between(updates, low, high, color=color, alpha=0.15, linewidth=0)
    axes.plot(updates, [points[at].mean for at in updates], color=color, marker="o", markersize=4, label=label)


def _time(axes: Axes, values: dict[str, Value], place: int, color: str) -> None:
    seconds = {phase: values[phase].mean for phase in _PHASES if phase != "other"}
    seconds["other"] = values["training"].mean - sum(seconds.values())
    left = 0.0
    for phase, alpha in _PHASES.items():
        axes.barh(place, seconds[phase], left=left, height=0.55, color=color, alpha=alpha, linewidth=0)
        if seconds[phase] > 5:
            ink = "white" if alpha > 0.8 else "black"
            axes.text(left + seconds[phase] / 2, place, phase, ha="center", va="center", color=ink, fontsize=9)
        left += seconds[phase]
    axes.text(left + 1, place, f"{left:.1f} s", va="center")
    axes.set_xlim(0, max(80, left + 14, axes.get_xlim()[1]))


if __name__ == "__main__":
    picture()
