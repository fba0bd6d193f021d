"""The figures of a run, each as SVG and as a table of what it shows. A figure without data is left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from tasks.report import drawing, staleness_figures, time_figures, training_figures
from tasks.report.evaluated import Estimate
from tasks.report.formats import label
from tasks.report.graph import graph_of, measured_steps
from tasks.report.graph_drawing import draw
from tasks.report.history import History
from tasks.report.ledger import Ledger
from tasks.report.palette import BLUE, GREEN, ORANGE
from tasks.report.series import Drawn, Picture, Series, to_csv

_BENCHMARK_LOOKS = ((BLUE, "o-"), (ORANGE, "s--"), (GREEN, "^:"))
_LABELLED = 9
"""More policies than this are numbered instead of named."""


@dataclass(frozen=True)
class Words:
    """What stands beside a figure."""

    title: str
    caption: str


WORDS = {
    "accuracy_over_time": Words(
        "Accuracy over training time",
        "Wall-clock of generation, verification and optimization; dashed lines are the ends of stages, the band is the "
        "95 % interval.",
    ),
    "accuracy": Words(
        "Accuracy after each stage",
        "Vertical bars are 95 % intervals; where those of two policies do not overlap, the policies differ.",
    ),
    "benchmarks": Words(
        "Accuracy by benchmark",
        "The band is the 95 % interval of avg@k. pass@k far above it: others find what one misses; maj@k above it: "
        "wrong answers differ from each other.",
    ),
    "reward": Words(
        "Reward during training",
        "Mean reward of an update's responses, by the policy that sampled them; with few stages it rises in steps.",
    ),
    "ratios": Words(
        "Importance ratios by sign of the advantage",
        "Ratios are 1 when responses are fresh and spread with staleness; a band of negative advantages that runs away "
        "warns of a collapse.",
    ),
    "stability": Words(
        "Entropy, divergence and gradient norm",
        "Entropy near zero means that exploration has ended; spikes of the other two show updates that went too far.",
    ),
    "length": Words(
        "Response length",
        "A sudden change of the length, or many truncated responses, calls for a look at the examples.",
    ),
    "advantages": Words(
        "Advantages before and after the veto",
        "Whole bars are the tokens of a stage's updates, their blue part is what the veto leaves; the outermost bars "
        "take what lies beyond.",
    ),
    "ratio_histograms": Words(
        "Importance ratios of all tokens",
        "Tokens of a stage's updates by their ratio, both axes logarithmic; a heavy tail to the left shows responses "
        "being unlearned. The outermost bins take what lies beyond.",
    ),
    "clip_veto": Words(
        "Clipped and vetoed tokens",
        "Shares of all response tokens, and of those with negative advantage A: lines that rise to the right show the "
        "policy leaving its stage's responses behind.",
    ),
    "triggers": Words(
        "Triggers of the veto",
        "How many responses with negative advantage have a trigger, and the mean share of such a response before its "
        "first one; early triggers veto most of it.",
    ),
    "ratios_negative": Words(
        "Importance ratios, negative advantage",
        "A band that sinks without end shows responses being unlearned; a largest ratio far above 1 means that "
        "responses held to be wrong become more likely.",
    ),
    "ratios_positive": Words(
        "Importance ratios, positive advantage",
        "A band that widens steadily is what reuse of responses costs; tokens above the clip limit stop learning.",
    ),
    "ess": Words(
        "Effective sample size",
        "100 % on fresh responses, where every token counts the same; a few percent mean that a few tokens with large "
        "ratios outweigh the rest.",
    ),
    "kl": Words(
        "KL divergence from the behavior policy",
        "Two estimates of one number; every stage has its own scale. k3 minus k1 is the mean ratio minus 1: a wide gap "
        "comes from tokens that became much more likely.",
    ),
    "steps": Words(
        "Steps",
        "The time during which some part of a step was at work; in brackets, the shards of a map task. The strong line "
        "is the chain of steps that took longest. What was found, a process before the last one had made.",
    ),
    "timeline": Words(
        "When each step was at work",
        "Bars from start to end of each step; the time between processes is left out, dashed lines are the ends of "
        "stages. What runs beside the next stage takes no time of its own.",
    ),
    "ledger": Words(
        "Where the time went",
        "Seconds of all steps of the run by what they were spent on; the rows add up to the total.",
    ),
}
"""Title and one sentence on how to read each figure, by its name."""


OVER_STALENESS = ("clip_veto", "triggers", "ratios_negative", "ratios_positive", "ess", "kl")
"""Those figures that have a panel per stage over staleness."""


_PER_STAGE = ("advantages", "ratio_histograms")
"""Others with a panel per stage."""
_WITHOUT_VETO = {
    "advantages": Words(
        "Advantages", "Tokens of a stage's updates by their advantage; the outermost bars take what lies beyond."
    ),
    "clip_veto": Words(
        "Clipped tokens",
        "Share of all response tokens: a line that rises to the right shows the policy leaving its stage's responses "
        "behind.",
    ),
}


def words_of(history: History) -> dict[str, Words]:
    """WORDS as they stand beside a run's figures: they leave out what it does not have, and tell what is not shown."""
    words = WORDS if history.vetoes else {**WORDS, **_WITHOUT_VETO}
    shown, stages = staleness_figures.shown_stages(history), len(history.stages)
    if len(shown) == stages:
        return words
    some = f" Shown are {len(shown)} of {stages} stages: the first, the last and evenly spaced ones."
    panels = {name: replace(words[name], caption=words[name].caption + some) for name in (*_PER_STAGE, *OVER_STALENESS)}
    return {**words, **panels}


def make_figures(history: History, ledger: Ledger) -> dict[str, Drawn]:
    """Figures and their tables by name, in the order of the page; names and captions are those of ``words_of``."""
    makers: dict[str, Callable[[], Picture | None]] = {
        "accuracy_over_time": lambda: time_figures.accuracy_over_time(history),
        "accuracy": lambda: _accuracy(history),
        "benchmarks": lambda: _benchmarks(history),
        "reward": lambda: training_figures.reward(history),
        "ratios": lambda: training_figures.ratios(history),
        "stability": lambda: training_figures.stability(history),
        "length": lambda: training_figures.length(history),
        "advantages": lambda: staleness_figures.advantages(history),
        "ratio_histograms": lambda: staleness_figures.ratio_histograms(history),
        "clip_veto": lambda: staleness_figures.clip_veto(history),
        "triggers": lambda: staleness_figures.triggers(history),
        "ratios_negative": lambda: staleness_figures.ratios(history, "negative"),
        "ratios_positive": lambda: staleness_figures.ratios(history, "positive"),
        "ess": lambda: staleness_figures.ess(history),
        "kl": lambda: staleness_figures.kl(history),
        "steps": lambda: _steps(history),
        "timeline": lambda: time_figures.timeline(history, ledger),
        "ledger": lambda: time_figures.where_time_went(ledger),
    }
    drawn = {}
    for name, words in words_of(history).items():
        with drawing.style():
            picture = makers[name]()
            if picture is not None:
                drawn[name] = Drawn(_svg(picture.drawn, name, words), to_csv(picture.series))
    return drawn


def _svg(figure: Figure | str, name: str, words: Words) -> str:
    if isinstance(figure, str):
        return figure
    return drawing.to_svg(figure, name.replace("_", "-"), f"{words.title}. {words.caption}")


def _stage_axis(axes: Any, history: History) -> None:
    stages = [policy.stage for policy in history.evaluated]
    if len(stages) <= _LABELLED:
        axes.set_xticks(stages, [policy.label for policy in history.evaluated])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
        axes.set_xlabel("finished stages (0 is the base policy)")
    axes.set_xlim(min(stages) - 0.35, max(stages) + 0.35)


def _accuracy(history: History) -> Picture:
    figure, (axes,) = drawing.panels(1, 2.55)
    few = len(history.evaluated) <= _LABELLED
    shift = 0.09 if few else 0.0
    looks: list[tuple[Series, str, str, float]] = [
        (
            _over_stages("", f"{history.headline}, sampled", history, [one.accuracy for one in history.evaluated]),
            BLUE,
            "o-",
            0.0,
        ),
        (_over_stages("", "greedy", history, [one.greedy for one in history.evaluated]), ORANGE, "s-", shift),
        (_over_stages("", "shows working", history, [one.working for one in history.evaluated]), GREEN, "^:", -shift),
    ]
    looks = [look for look in looks if len(look[0].x)]
    handles = []
    for one, color, look, aside in looks:
        axes.errorbar(
            one.x + aside,
            one.y,
            (np.maximum(0.0, one.y - one.low), np.maximum(0.0, one.high - one.y)),
            fmt=look,
            color=color,
            markersize=4.5 if few else 2,
            capsize=0,
            elinewidth=1.4 if few else 0.7,
        )
        handles.append(drawing.line(color, one.name, marker=look[0], linestyle=look[1:], markersize=4.5))
    drawing.percent_axis(axes)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_locator(MultipleLocator(0.25))
    axes.set_title("share of responses")
    _stage_axis(axes, history)
    drawing.legend(figure, handles, 3)
    return Picture(figure, [one for one, *_ in looks])


def _over_stages(panel: str, name: str, history: History, estimates: Sequence[Estimate | None]) -> Series:
    """What is known of every evaluated policy, over finished stages."""
    known = [(policy.stage, one) for policy, one in zip(history.evaluated, estimates, strict=True) if one is not None]
    columns = [[getattr(one, field) for _, one in known] for field in ("value", "low", "high")]
    return Series.of(panel, name, [stage for stage, _ in known], *columns)


def _benchmarks(history: History) -> Picture | None:
    """A panel per benchmark; None where the mean over benchmarks is all there is."""
    names = history.benchmarks
    if len(names) < 2:
        return None
    titles = [label(name) for name in names]
    figure, grid = drawing.small_multiples(titles, "share of problems", "finished stages", same_scale=False)
    shown: list[Series] = []
    for name, axes in zip(names, grid, strict=True):
        found = [next(one for one in policy.evaluations if one.benchmark == name) for policy in history.evaluated]
        series = [
            _over_stages(name, "avg@k", history, [one.accuracy for one in found]),
            _over_stages(name, "pass@k", history, [one.pass_at.get(one.samples_per_problem) for one in found]),
            _over_stages(name, "maj@k", history, [one.majority for one in found]),
        ]
        for one, (color, look) in zip(series, _BENCHMARK_LOOKS, strict=True):
            axes.plot(one.x, one.y, look, color=color, markersize=3)
        axes.fill_between(series[0].x, series[0].low, series[0].high, color=BLUE, alpha=0.15, linewidth=0)
        drawing.percent_axis(axes)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        shown += series
    handles = [
        drawing.line(color, one.name, marker=look[0], linestyle=look[1:], markersize=4)
        for one, (color, look) in zip(shown, _BENCHMARK_LOOKS, strict=False)
    ]
    drawing.legend(figure, handles, 3)
    return Picture(figure, shown)


def _steps(history: History) -> Picture | None:
    """None where the run is not one of a registered workflow."""
    measured = measured_steps(history)
    graph = graph_of(measured, len(history.planned))
    if graph is None:
        return None
    drawn = draw(
        graph, f"The steps of {history.algorithm}, seed {history.seed}", measured, unfinished=bool(history.planned)
    )
    return Picture(
        drawn,
        [
            Series.of(f"stage {stage}" if stage else "", task, [one.artifacts], [one.seconds])
            for (task, stage), one in measured.items()
        ],
    )
