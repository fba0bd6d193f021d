"""Results of benchmarks: repeated measurements, their ratios, and the comparison with a stored baseline.

Baselines are JSON files in ``baselines/``. A ratio that is worse than its baseline by more than ``TOLERANCE`` is a
regression.
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

from tasks.formats import percent

BASELINES = Path(__file__).parent / "baselines"
TOLERANCE = 0.05
PACKAGES = ("torch", "transformers", "trl", "deepspeed", "flytekit", "math-verify", "moto")
Values = list[float]


@dataclass(frozen=True)
class Ratio:
    """Ratios of one quantity to another, one per repeat."""

    of: str
    beside: str
    values: Values
    bar: float | None = None
    """The required ratio; None if there is no requirement."""
    at_most: bool = False
    """True if the required ratio is the largest one that is allowed."""

    @property
    def value(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.values)

    @property
    def holds(self) -> bool | None:
        """Whether the median meets the requirement; None if there is no requirement."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    @property
    def requirement(self) -> str:
        """The requirement as text, such as ``at least 1.5``; empty if there is none."""
        return "" if self.bar is None else f"{'at most' if self.at_most else 'at least'} {self.bar:g}"

    @property
    def absolute(self) -> bool:
        """True if the ratio is to a unit, such as 1 ms, so that it depends on the speed of the machine."""
        return self.beside.startswith("1 ")

    def is_worse(self, baseline: "Ratio") -> bool:
        """Return whether the ratio is a regression.

        It is one if it is worse than the baseline by more than the tolerance. An absolute ratio is one if it does not
        meet the requirement, which the baseline met.
        """
        if self.absolute:
            return baseline.holds is True and self.holds is False
        if self.at_most:
            return self.value > baseline.value * (1 + TOLERANCE)
        return self.value < baseline.value * (1 - TOLERANCE)


@dataclass(frozen=True)
class Measurement:
    """The result of a benchmark."""

    name: str
    what: str
    """A sentence about what was measured."""
    unit: str
    ways: dict[str, Values]
    """The values of all repeats, by the name of what was measured."""
    ratios: list[Ratio]
    facts: dict[str, Any] = field(default_factory=dict)
    """Sizes and other facts about the measurement."""
    finding: str = ""
    """The finding of a profiler, with the change that follows from it; empty if there is none."""
    machine: dict[str, Any] = field(default_factory=lambda: machine())

    def write(self, folder: Path = BASELINES) -> None:
        """Store the measurement as the baseline."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def read(name: str, folder: Path = BASELINES) -> "Measurement | None":
        """Return the baseline of a benchmark; None if there is none."""
        path = folder / f"{name}.json"
        if not path.exists():
            return None
        values = json.loads(path.read_text(encoding="utf-8"))
        return Measurement(**values | {"ratios": [Ratio(**one) for one in values["ratios"]]})

    def regressions(self, baseline: "Measurement | None") -> list[str]:
        """Return a line of text for every ratio that is a regression."""
        earlier = {(one.of, one.beside): one for one in baseline.ratios} if baseline else {}
        lines = []
        for ratio in self.ratios:
            before = earlier.get((ratio.of, ratio.beside))
            if before and ratio.is_worse(before):
                limit = (
                    f"required: {ratio.requirement}" if ratio.absolute else f"allowed: {percent(TOLERANCE, 0)} worse"
                )
                name = f"{self.name}: {ratio.of} / {ratio.beside}"
                lines.append(f"{name} is {ratio.value:.3g}, the baseline is {before.value:.3g}; {limit}")
        return lines


def measure_interleaved(ways: Mapping[str, Callable[[], float]], repeats: int, title: str) -> dict[str, Values]:
    """Call every function once per repeat, and return its values; so a slower machine affects all functions alike."""
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
    """Return the ratio of two quantities that were measured in the same repeats."""
    pairs = zip(values[of], values[beside], strict=True)
    return Ratio(of, beside, [value / other for value, other in pairs], bar, at_most)


def memory_mib(name: str, process: int | str = "self") -> float:
    """Return a field of the status of a Linux process, such as VmRSS, in MiB; 0 if the process has ended."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def machine() -> dict[str, Any]:
    """Return facts about this machine, the date, and the versions of installed packages."""
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
