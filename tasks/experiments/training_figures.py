"""Figures of what training reaches: accuracy over time, reward and vetoed tokens over updates."""

from collections.abc import Sequence

import numpy as np

from tasks.experiments.looks import Look, Row, Sketch, handles, mark_stages, time_axis
from tasks.experiments.runs import SystemRun, of_system
from tasks.report import drawing
from tasks.report.history import Column, History
from tasks.report.ledger import training_clock

_POINTS = 240
"""Points of a line, stages together."""


def accuracy(model: str, runs: Sequence[SystemRun], looks: dict[str, Look]) -> Sketch | None:
    """Draw accuracy over wall-clock: a line per system and a thin one per seed."""
    rows: list[Row] = []
    figure, (axes,) = drawing.panels(1, 2.9)
    drawn, longest = [], 0.0
    for system, look in looks.items():
        curves = [_curve(run) for run in of_system(runs, model, system)]
        if not curves:
            continue
        drawn.append(system)
        rows += [row for curve in curves for row in curve]
        points = min(len(curve) for curve in curves)
        for curve in curves:
            seconds = [row["seconds"] for row in curve]
            longest = max(longest, *seconds)
            if len(curves) > 1:
                axes.plot(
                    seconds, [row["accuracy"] for row in curve], color=look.color, linewidth=0.8, alpha=0.35, zorder=2
                )
        means = [
            [np.mean([curve[point][name] for curve in curves]) for point in range(points)]
            for name in ("seconds", "accuracy")
        ]
        axes.plot(*means, color=look.color, linestyle=look.style, marker=look.marker, markersize=4, zorder=3)
    if not rows or not longest:
        return None
    drawing.percent_axis(axes)
    time_axis(axes, longest, "training time")
    headline = next(run for run in runs if run.model == model).history.headline
    axes.set_title(f"accuracy, {headline}")
    drawing.legend(figure, handles(drawn, looks), 3)
    return Sketch(
        figure,
        rows,
        "Accuracy over wall-clock",
        "A marker for every evaluated policy, at the end of a stage or of as many updates. Thin lines are seeds, "
        "strong lines their mean. Time is that of generation, verification and updates; evaluation is left out.",
    )


def _curve(run: SystemRun) -> list[Row]:
    return [
        {
            "system": run.system,
            "seed": run.seed,
            "updates": policy.updates,
            "seconds": seconds,
            "accuracy": policy.accuracy.value,
            "low": policy.accuracy.low,
            "high": policy.accuracy.high,
        }
        for policy, seconds in zip(run.history.evaluated, training_clock(run.history), strict=True)
    ]


def reward(model: str, runs: Sequence[SystemRun], looks: dict[str, Look], reference: str) -> Sketch | None:
    """Draw the mean reward of the responses that updates learn from."""
    return _over_updates(
        model,
        runs,
        looks,
        reference,
        ("reward", "mean reward", "Training reward"),
        "Mean reward of an update's responses, smoothed, mean over seeds. Dotted lines end the stages of "
        f"{reference}: where responses are sampled once a stage, reward rises from stage to stage.",
    )


def vetoed(model: str, runs: Sequence[SystemRun], looks: dict[str, Look], reference: str) -> Sketch | None:
    """Draw the share of tokens that the veto leaves out."""
    return _over_updates(
        model,
        [run for run in runs if run.history.vetoes],
        looks,
        reference,
        ("veto_fraction", "vetoed share of response tokens", "Vetoed tokens"),
        "Tokens that the veto leaves out of the loss, smoothed, mean over seeds. In a stage they grow with staleness.",
    )


def _over_updates(
    model: str,
    runs: Sequence[SystemRun],
    looks: dict[str, Look],
    reference: str,
    column: tuple[str, str, str],
    caption: str,
) -> Sketch | None:
    name, heading, title = column
    figure, (axes,) = drawing.panels(1, 2.55)
    rows: list[Row] = []
    drawn = []
    for system, look in looks.items():
        own = [run for run in of_system(runs, model, system) if run.history.known(name)]
        if not own:
            continue
        drawn.append(system)
        for update, values in _smooth([run.history for run in own], name):
            axes.plot(update, values, color=look.color, linestyle=look.style, linewidth=1.4)
            rows += [
                {"system": system, "update": at, name: value}
                for at, value in zip(update.tolist(), values.tolist(), strict=True)
            ]
    if not rows:
        return None
    if name == "reward":
        drawing.from_zero(axes)
    else:
        drawing.percent_axis(axes)
    mark_stages(axes, next((run.history for run in of_system(runs, model, reference)), None))
    drawing.whole_ticks(axes)
    axes.set_title(heading)
    axes.set_xlabel("update")
    drawing.legend(
        figure, [drawing.line(looks[system].color, system, linestyle=looks[system].style) for system in drawn], 3
    )
    return Sketch(figure, rows, title, caption)


def _smooth(histories: Sequence[History], name: str) -> list[tuple[Column, Column]]:
    """Return updates and values of a line, stage by stage: the mean over runs, smoothed within the stage."""
    count = min(len(history.column(name)) for history in histories)
    update, stage = histories[0].updates["update"][:count], histories[0].updates["stage"][:count]
    rows = np.array([history.column(name)[:count] for history in histories])
    known = ~np.isnan(rows)
    means = np.divide(np.where(known, rows, 0.0).sum(0), known.sum(0), out=np.full(count, np.nan), where=known.any(0))
    pieces = [stage == number for number in np.unique(stage)]
    points = max(8, _POINTS // len(pieces))
    smooth = [drawing.thinned(update[rows], means[rows], points=min(points, 32)) for rows in pieces]
    return [(x, y) for x, y in smooth if len(x)]
