"""The paper's Figures 2 and 3 out of the laboratory: what arms reach that differ in clipping, and in what is vetoed."""

from matplotlib.ticker import MaxNLocator

from tasks.laboratory.result import LaboratoryResult
from tasks.report import drawing
from tasks.report.look import BLUE, INK, MUTED, ORANGE
from tasks.reproduce.looks import Row, Sketch


def arms(result: LaboratoryResult) -> Sketch:
    """Accuracy of every arm at the end, with its interval, and the best along the way."""
    figure, (axes,) = drawing.panels(1, 0.34 * len(result.arms) + 0.3)
    rows: list[Row] = []
    for place, arm in enumerate(result.arms):
        color = BLUE if arm.name == result.reference else INK
        axes.plot([arm.low, arm.high], [place, place], color=color, linewidth=1.6)
        axes.plot([arm.accuracy], [place], "o", color=color, markersize=5)
        axes.plot([arm.best], [place], "D", color=ORANGE, markersize=4, markerfacecolor="none")
        if arm.stopped:
            axes.annotate("stopped", (arm.high, place), (5, 0), textcoords="offset points", va="center", fontsize=9)
        rows.append(
            {
                "arm": arm.name,
                "accuracy": arm.accuracy,
                "low": arm.low,
                "high": arm.high,
                "best": arm.best,
                "vetoed": arm.vetoed,
                "clipped": arm.clipped,
                "p": arm.p,
            }
        )
    axes.axvline(result.base, color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)))
    axes.set_yticks(range(len(result.arms)), [arm.name for arm in result.arms])
    axes.set_ylim(len(result.arms) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel("accuracy")
    axes.grid(visible=False)
    look = {"linestyle": "", "markersize": 5}
    drawing.legend(
        figure,
        [
            drawing.line(INK, "at the end, 95 %", marker="o", **look),
            drawing.line(ORANGE, "best on the way", marker="D", markerfacecolor="none", linestyle="", markersize=4),
            drawing.line(MUTED, "base policy", linestyle=(0, (3, 3)), linewidth=0.9),
        ],
        3,
    )
    return Sketch(
        figure,
        rows,
        result.title,
        f"{result.asks} {result.seeds} seeds, {result.updates} updates; a best far above the end is a collapse. "
        f"The blue arm is the one that the others are tested against.",
    )
