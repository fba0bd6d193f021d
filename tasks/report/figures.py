"""The figures of a run, each as SVG and as a table of what it shows. A figure without data is left out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from tasks.report import drawing, run_figures, steps, update_figures
from tasks.report.drawing import Picture
from tasks.report.history import History
from tasks.report.update_figures import Panel

_MAKERS: dict[str, Callable[[History], Picture | None]] = {
    "accuracy_over_time": run_figures.accuracy_over_time,
    "accuracy": run_figures.accuracy,
    "benchmarks": run_figures.benchmarks,
    "advantages": update_figures.advantages,
    "ratio_histograms": update_figures.ratio_histograms,
    "steps": steps.draw_run,
    "timeline": run_figures.timeline,
    "ledger": run_figures.where_time_went,
}
"""Figures that are not panels of metrics."""
_HISTOGRAMS = ("advantages", "ratio_histograms")


class Words(BaseModel):
    """The title and the caption of a figure."""

    title: str
    caption: str


class Figure(Words):
    """A figure as figures.yaml describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    without_veto: Words | None = None
    """Words in place of its own where the objective has no veto."""
    over: Literal["updates", "staleness"] | None = None
    panels: tuple[Panel, ...] = ()

    def draw(self, name: str, history: History) -> Picture | None:
        """Draw it; None where the run has no data for it."""
        if self.over == "updates":
            return update_figures.over_updates(history, self.panels)
        if self.over == "staleness":
            return update_figures.over_staleness(history, self.panels[0])
        return _MAKERS[name](history)


@dataclass(frozen=True)
class Drawn:
    """A figure as the contents of two files."""

    svg: str
    csv: str


@cache
def all_figures() -> dict[str, Figure]:
    """Read figures.yaml: every figure by its name, in the order of the page."""
    text = Path(__file__).with_name("figures.yaml").read_text(encoding="utf-8")
    return {name: Figure.model_validate(figure) for name, figure in yaml.safe_load(text).items()}


def over_staleness() -> list[str]:
    """Return the names of the figures with a panel per stage over staleness."""
    return [name for name, figure in all_figures().items() if figure.over == "staleness"]


def words_of(history: History) -> dict[str, Words]:
    """Return the words beside a run's figures; a caption tells when only some of the stages are shown."""
    shown, stages = len(update_figures.shown_stages(history)), len(history.stages)
    some = f" Shown are {shown} of {stages} stages: the first, the last and evenly spaced ones."
    found = {}
    for name, figure in all_figures().items():
        own = figure if history.vetoes or figure.without_veto is None else figure.without_veto
        told = some if shown < stages and (figure.over == "staleness" or name in _HISTOGRAMS) else ""
        found[name] = Words(title=own.title, caption=own.caption + told)
    return found


def make_figures(history: History) -> dict[str, Drawn]:
    """Draw the figures of a run, in the order of the page, with the names of ``words_of``."""
    words, drawn = words_of(history), {}
    for name, figure in all_figures().items():
        with drawing.style():
            picture = figure.draw(name, history)
            if picture is not None:
                svg = picture.svg(name.replace("_", "-"), f"{words[name].title}. {words[name].caption}")
                drawn[name] = Drawn(svg, picture.csv())
    return drawn
