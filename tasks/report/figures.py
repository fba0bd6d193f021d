"""The figures of a run, each as SVG and as a table of what it shows. A figure without data is left out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import yaml
from pydantic import BaseModel

from tasks.report import drawing, run_figures, steps, update_figures
from tasks.report.drawing import Picture
from tasks.report.history import History

OVER_STALENESS = ("clip_veto", "triggers", "ratios_negative", "ratios_positive", "ess", "kl")
"""Figures with a panel per stage over staleness."""
_PER_STAGE = ("advantages", "ratio_histograms", *OVER_STALENESS)
_MAKERS: dict[str, Callable[[History], Picture | None]] = {
    "accuracy_over_time": run_figures.accuracy_over_time,
    "accuracy": run_figures.accuracy,
    "benchmarks": run_figures.benchmarks,
    "reward": update_figures.reward,
    "ratios": update_figures.ratios,
    "stability": update_figures.stability,
    "length": update_figures.length,
    "advantages": update_figures.advantages,
    "ratio_histograms": update_figures.ratio_histograms,
    "clip_veto": update_figures.clip_veto,
    "triggers": update_figures.triggers,
    "ratios_negative": partial(update_figures.ratios_over_staleness, sign="negative"),
    "ratios_positive": partial(update_figures.ratios_over_staleness, sign="positive"),
    "ess": update_figures.ess,
    "kl": update_figures.kl,
    "steps": steps.draw_run,
    "timeline": run_figures.timeline,
    "ledger": run_figures.where_time_went,
}


class Words(BaseModel):
    """The title and the caption of a figure."""

    title: str
    caption: str
    without_veto: "Words | None" = None
    """In their place where the objective has no veto."""


@dataclass(frozen=True)
class Drawn:
    """A figure as the contents of two files."""

    svg: str
    csv: str


@cache
def all_words() -> dict[str, Words]:
    """Read figures.yaml: the words of every figure by its name, in the order of the page."""
    text = Path(__file__).with_name("figures.yaml").read_text(encoding="utf-8")
    return {name: Words.model_validate(words) for name, words in yaml.safe_load(text).items()}


def words_of(history: History) -> dict[str, Words]:
    """Return the words beside a run's figures; a caption tells when only some of the stages are shown."""
    shown, stages = len(update_figures.shown_stages(history)), len(history.stages)
    some = f" Shown are {shown} of {stages} stages: the first, the last and evenly spaced ones."
    found = {}
    for name, words in all_words().items():
        own = words if history.vetoes or words.without_veto is None else words.without_veto
        told = some if shown < stages and name in _PER_STAGE else ""
        found[name] = Words(title=own.title, caption=own.caption + told)
    return found


def make_figures(history: History) -> dict[str, Drawn]:
    """Draw the figures of a run, in the order of the page, with the names of ``words_of``."""
    drawn = {}
    for name, words in words_of(history).items():
        with drawing.style():
            picture = _MAKERS[name](history)
            if picture is not None:
                svg = picture.svg(name.replace("_", "-"), f"{words.title}. {words.caption}")
                drawn[name] = Drawn(svg, picture.csv())
    return drawn
