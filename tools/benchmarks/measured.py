"""What a benchmark found, beside what was found before.

A measurement is kept as JSON in ``baselines/``; a ratio that falls by more than ``TOLERANCE`` below the kept one is a
regression, whoever is to blame.
"""

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.progress import Progress

BASELINES = Path(__file__).parent / "baselines"
TOLERANCE = 0.05
PACKAGES = ("torch", "transformers", "trl", "deepspeed", "flytekit", "math-verify", "moto")
Values = list[float]


@dataclass(frozen=True)
class Ratio:
    """Ours beside theirs, in turn: the median of the pairs' ratios is what counts."""

    of: str
    beside: str
    values: Values
    bar: float | None = None
    """The ratio that is asked for."""
    at_most: bool = False
    """The bar is an upper one."""

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.values)

    @property
    def holds(self) -> bool | None:
        """The bar is reached; None without one."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    @property
    def asked(self) -> str:
        """``at least 1.5``; empty without a bar."""
        return "" if self.bar is None else f"{'at most' if self.at_most else 'at least'} {self.bar:g}"

    @property
    def absolute(self) -> bool:
        """It stands beside a unit, such as 1 ms, and so moves with the pace of the machine."""
        return self.beside.startswith("1 ")

    def fell(self, kept: "Ratio") -> bool:
        """Return True if it is worse than the kept one by more than the tolerance; if absolute, if its bar fell."""
        if self.absolute:
            return kept.holds is True and self.holds is False
        if self.at_most:
            return self.value > kept.value * (1 + TOLERANCE)
        return self.value < kept.value * (1 - TOLERANCE)


@dataclass(frozen=True)
class Measured:
    """A benchmark's result."""

    name: str
    what: str
    """A sentence: what was measured, on what."""
    unit: str
    ways: dict[str, Values]
    """Every repeat of every way."""
    ratios: list[Ratio]
    facts: dict[str, Any] = field(default_factory=dict)
    """Sizes, and what else a reader needs."""
    finding: str = ""
    """The finding of a profiler, and the change that was made for it; empty without one."""
    machine: dict[str, Any] = field(default_factory=lambda: machine())

    def write(self, folder: Path = BASELINES) -> None:
        """Keeps it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def read(name: str, folder: Path = BASELINES) -> "Measured | None":
        """The kept one."""
        path = folder / f"{name}.json"
        if not path.exists():
            return None
        values = json.loads(path.read_text(encoding="utf-8"))
        return Measured(**values | {"ratios": [Ratio(**one) for one in values["ratios"]]})

    def regressions(self, kept: "Measured | None") -> list[str]:
        """Sentences about ratios that fell."""
        before = {(one.of, one.beside): one for one in kept.ratios} if kept else {}
        found = []
        for now in self.ratios:
            then = before.get((now.of, now.beside))
            if then and now.fell(then):
                limit = f"{now.asked} is asked for" if now.absolute else f"{TOLERANCE:.0%} worse is allowed"
                values = f"is {now.value:.3g}, and was {then.value:.3g}"
                found.append(f"{self.name}: {now.of} beside {now.beside} {values}; {limit}")
        return found


def in_turn(ways: Mapping[str, Callable[[], float]], repeats: int, title: str) -> dict[str, Values]:
    """Measures every way once, then all again: a machine that changes its pace is unfair to none."""
    values: dict[str, Values] = {name: [] for name in ways}
    with Progress(transient=True) as progress:
        task = progress.add_task(title, total=repeats * len(ways))
        for _ in range(repeats):
            for name, measure in ways.items():
                progress.update(task, description=f"{title}: {name}")
                values[name].append(measure())
                progress.advance(task)
    return values


def ratio(values: Mapping[str, Values], of: str, beside: str, bar: float | None = None, at_most: bool = False) -> Ratio:
    """The ratio of two ways that were measured in turn."""
    pairs = zip(values[of], values[beside], strict=True)
    return Ratio(of, beside, [ours / theirs for ours, theirs in pairs], bar, at_most)


def machine() -> dict[str, Any]:
    """The machine and the versions of a measurement."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        **versions,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
