"""What a part of the laboratory found, as a table for the terminal and for docs/laboratory.md."""

from textwrap import fill

from pydantic import ConfigDict
from rich import box
from rich.table import Table

from tasks.flyte.model import FlyteModel
from tasks.report.formats import percent, percent_range
from tasks.report.tables import render, render_markdown

_HEADINGS = ("arm", "at the end (95 %)", "seeds", "best", "vetoed", "clipped", "difference (95 %)", "p")


class ArmResult(FlyteModel):
    """An arm over all its seeds. Accuracies and shares are fractions."""

    model_config = ConfigDict(frozen=True)

    name: str
    accuracy: float
    """avg@k at the end, mean over seeds."""
    low: float
    high: float
    by_seed: list[float]
    best: float
    """The highest accuracy along the way, mean over seeds."""
    vetoed: float | None
    """Share of tokens, over all updates."""
    clipped: float | None
    difference: float | None
    """To the reference arm, paired by seed and problem; none for the reference itself."""
    difference_low: float | None
    difference_high: float | None
    p: float | None
    """By the bootstrap that gives the interval, adjusted by Holm for the number of arms."""
    stopped: list[str]
    """Messages of runs that a gate stopped."""


class LaboratoryResult(FlyteModel):
    """A part of the laboratory. ``str()`` of it is a table for the terminal."""

    model_config = ConfigDict(frozen=True)

    part: str
    title: str
    asks: str
    reference: str
    seeds: int
    problems: int
    updates: int
    base: float
    """Accuracy before training."""
    arms: list[ArmResult]
    folder: str = ""
    """Where the artifact with the figure is."""

    def __str__(self) -> str:
        table = render(self._table(), 132)
        lines = [f"{self.part}. {self.title}", self.asks, "", table, "", fill(self.legend(), 100)]
        return "\n".join([*lines, "", f"figure  {self.folder}/curves.svg"] if self.folder else lines)

    def markdown(self) -> str:
        """The table for a page."""
        return f"{render_markdown(self._table())}\n\n{self.legend()}"

    def legend(self) -> str:
        """How to read the table."""
        return (
            f"{self.seeds} seeds, {self.updates} updates, {self.problems} held-out problems; the base policy has "
            f"{percent(self.base)}. Differences are to {self.reference!r}, paired by seed and problem; intervals by "
            "bootstrap over problems and a t distribution over seeds, p by the same, adjusted by Holm."
        )

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
        for place, heading in enumerate(_HEADINGS):
            table.add_column(heading, justify="left" if place == 0 else "right", no_wrap=True)
        for arm in self.arms:
            table.add_row(
                arm.name + (" (stopped)" if arm.stopped else ""),
                f"{percent(arm.accuracy)} ({percent_range(arm.low, arm.high)})",
                " ".join(f"{100 * one:.0f}" for one in arm.by_seed),
                percent(arm.best),
                percent(arm.vetoed),
                percent(arm.clipped),
                _points(arm.difference, arm.difference_low, arm.difference_high),
                "" if arm.p is None else ("< 0.001" if arm.p < 0.001 else f"{arm.p:.3f}"),
            )
        return table


def _points(difference: float | None, low: float | None, high: float | None) -> str:
    if difference is None or low is None or high is None:
        return ""
    return f"{100 * difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
