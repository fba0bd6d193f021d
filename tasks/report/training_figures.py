"""Figures of what happened at every update, over the run."""

from typing import Any

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tasks.report import drawing
from tasks.report.history import History
from tasks.report.palette import BLUE, GREEN, INK, MUTED, ORANGE
from tasks.report.series import Picture, Series
from tasks.report.updates import binned, rolling, segments

_POINTS = 360
"""Points of a line: more than a screen shows would only make the page heavy."""
_LABELLED_STAGES = 8
_MARKED_STAGES = 16
"""More boundaries than those between so many stages would hide the data."""


def _boundaries(axes: Any, history: History, *, named: bool = False) -> None:
    for boundary in history.boundaries if len(history.stages) <= _MARKED_STAGES else ():
        axes.axvline(boundary + 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
    if named and len(history.stages) <= _LABELLED_STAGES:
        for stage in history.stages:
            middle = (stage.first_update + stage.last_update) / 2
            axes.annotate(
                f"stage {stage.number}",
                (middle, 1.0),
                xycoords=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=9,
                color=MUTED,
            )
    drawing.whole_ticks(axes)


def _scatter(axes: Any, history: History, name: str, panel: str = "") -> tuple[list[Any], list[Series]]:
    """Every update as a dot, and their running mean within each stage; returns the legend's handles besides."""
    stage, values = history.updates["stage"], history.column(name)
    window, points = max(1, len(values) // 32), max(8, _POINTS // len(history.stages))
    smooth = np.concatenate([rolling(values[part], window) for part in segments(stage)])
    each = Series.of(panel, name, history.updates["update"], values)
    mean = Series.of(panel, f"running mean over {window}", each.x, smooth)
    for part in segments(stage):
        x, raw, middle = binned(each.x[part], each.y[part], mean.y[part], points=points)
        alpha, size = (0.45, 4.5) if window > 1 else (1.0, 8)
        axes.plot(x, raw, ".", color=BLUE, alpha=alpha, markersize=size, markeredgewidth=0)
        axes.plot(x, middle, color=BLUE)
    together = -(-history.stages[0].last_update // points)
    text = f"mean of {together} updates" if together > 1 else "an update"
    dots = drawing.line(BLUE, text, marker=".", linestyle="", alpha=0.5)
    return ([dots, drawing.line(BLUE, mean.name)], [each, mean]) if window > 1 else ([dots], [each])


def reward(history: History) -> Picture | None:
    """Mean reward of every update's responses."""
    if not history.known("reward"):
        return None
    figure, (axes,) = drawing.panels(1, 2.55)
    handles, shown = _scatter(axes, history, "reward")
    _boundaries(axes, history, named=True)
    axes.set_title("mean reward\n" if history.boundaries else "mean reward")
    axes.set_xlabel("update")
    drawing.legend(figure, handles, 2)
    return Picture(figure, shown)


def ratios(history: History) -> Picture | None:
    """Quantiles of the importance ratio, apart for responses with negative and with positive advantage."""
    signs = [("negative", ORANGE), ("positive", BLUE)]
    signs = [(sign, color) for sign, color in signs if history.known(f"ratio_p50_{sign}")]
    if not signs:
        return None
    figure, grid = drawing.panels(len(signs), drawing.TALL / len(signs))
    update, shown = history.updates["update"], []
    limit: list[Any] = []
    for axes, (sign, color) in zip(grid, signs, strict=True):
        panel = f"{sign} advantage"
        names = [f"ratio_{quantile}_{sign}" for quantile in ("p01", "p50", "p99")]
        quantiles = [Series.of(panel, name, update, history.column(name)) for name in names]
        shown += quantiles
        for part in segments(history.updates["stage"]):
            points = max(8, _POINTS // len(history.stages))
            drawn = (np.clip(one.y[part], 1e-6, 1e6) for one in quantiles)
            x, low, middle, high = binned(update[part], *drawn, points=points)
            axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
            axes.plot(x, low, x, high, color=color, linewidth=0.8)
            axes.plot(x, middle, color=color, marker="o" if len(x) == 1 else "", markersize=4)
        limit = draw_limits(axes, history, sign) or limit
        drawing.log_axis(axes)
        _boundaries(axes, history)
        axes.set_title(f"ratio, {panel}")
    grid[-1].set_xlabel("update")
    handles = [Patch(facecolor=MUTED, alpha=0.35, label="p01 to p99"), drawing.line(MUTED, "p50")]
    drawing.legend(figure, [*handles, *limit], 3)
    return Picture(figure, shown)


def draw_limits(axes: Any, history: History, sign: str) -> list[Any]:
    """Dotted lines where the objective clips a ratio of this sign, and where the veto triggers.

    Returns the legend's handle, or nothing where there is no limit.
    """
    objective = history.objective
    veto = objective.get("veto", {})
    gate = objective.get("gate", {})
    static = gate.get("kind") in ("one_side", "two_side") and gate.get("bounds") == "static"
    limits = [gate.get("high" if sign == "positive" else "low")] if static else []
    vetoes = veto.get("scope", "off") != "off" and veto.get("statistic") == "token_ratio"
    if vetoes and (sign == "negative" or veto.get("advantage_sign") == "all"):
        limits.append(veto.get("kappa"))
        if veto.get("direction") == "both":
            limits.append(1 / veto["kappa"])
    limits = [limit for limit in limits if limit]
    for limit in limits:
        axes.axhline(limit, color=INK, linestyle=":", linewidth=1.2)
    return [drawing.line(INK, "clip or veto limit", linestyle=":", linewidth=1.2)] if limits else []


def length(history: History) -> Picture | None:
    """Tokens of a response, and the share of responses that were cut off."""
    if not history.known("response_tokens"):
        return None
    top, bottom = "tokens of a response", "truncated, held-out problems"
    known = [policy for policy in history.evaluated if policy.response_tokens]
    held_out = Series.of(
        top, "held-out", [policy.updates for policy in known], [policy.response_tokens or 0.0 for policy in known]
    )
    cut = [(policy.updates, policy.truncated) for policy in history.evaluated if policy.truncated is not None]
    truncated = Series.of(bottom, "truncated", [updates for updates, _ in cut], [share for _, share in cut])
    figure, grid = drawing.panels(2 if cut else 1, drawing.TALL / (2 if cut else 1))
    size = 5 if len(known) <= _MARKED_STAGES else 2.5
    handles, shown = _scatter(grid[0], history, "response_tokens", top)
    grid[0].set_title(top)
    if known:
        grid[0].plot(held_out.x, held_out.y, "D", color=ORANGE, markersize=size)
        handles.append(drawing.line(ORANGE, held_out.name, marker="D", linestyle="", markersize=size))
    drawing.from_zero(grid[0])
    if cut:
        grid[1].plot(truncated.x, truncated.y, "D-", color=ORANGE, markersize=size, linewidth=1.2)
        drawing.percent_axis(grid[1])
        grid[1].set_title(bottom)
    for axes in grid:
        _boundaries(axes, history)
    grid[-1].set_xlabel("update")
    drawing.legend(figure, handles, 3)
    return Picture(figure, [*shown, held_out, truncated])


def stability(history: History) -> Picture | None:
    """Entropy, divergence and gradient norm above one another."""
    looks = {
        "entropy": ("entropy (nats per token)", GREEN),
        "kl_k3": ("KL from the behavior policy (nats per token, k3)", ORANGE),
        "grad_norm": ("gradient norm before clipping", BLUE),
    }
    update = history.updates.get("update", np.zeros(0))
    shown = [Series.of(looks[name][0], name, update, history.column(name)) for name in looks if history.known(name)]
    if not shown:
        return None
    figure, grid = drawing.panels(len(shown), 1.03 * drawing.TALL / len(shown))
    for axes, one in zip(grid, shown, strict=True):
        for part in segments(history.updates["stage"]):
            points = max(8, _POINTS // len(history.stages))
            x, y = binned(one.x[part], one.y[part], points=points)
            color = looks[one.name][1]
            axes.plot(x, y, color=color, linewidth=1.3, marker="o" if len(x) == 1 else "", markersize=4)
        axes.yaxis.set_major_locator(MaxNLocator(3))
        drawing.from_zero(axes)
        _boundaries(axes, history)
        axes.set_title(one.panel)
    grid[-1].set_xlabel("update")
    return Picture(figure, shown)
