"""Run benchmarks, and compare their ratios with requirements and with stored baselines.

    python -m tools.benchmarks [NAME ...] [--repeats 5] [--keep]
    python -m tools.benchmarks --page docs/performance.md

Without names, all benchmarks run whose packages are installed, except for long ones, which run only by name. The exit
code is 1 if a ratio is more than 5 % worse than its baseline, or if a ratio to a unit of time no longer meets its
requirement. ``--keep`` stores the results as baselines. ``--page`` measures nothing: it writes the stored baselines to
a page.
"""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.console import Console
from rich.markdown import Markdown

from tasks.process.logs import logger
from tools.benchmarks.document import section, write_page
from tools.benchmarks.measurement import Measurement

BENCHMARKS = {
    "training": ("tools.benchmarks.trl.training", "trl"),
    "memory": ("tools.benchmarks.trl.memory", "trl"),
    "longest": ("tools.benchmarks.trl.longest", "trl"),
    "grpo": ("tools.benchmarks.trl.grpo", "trl"),
    "rollouts": ("tools.benchmarks.rollouts", ""),
    "generation": ("tools.benchmarks.generation", ""),
    "verification": ("tools.benchmarks.verification", ""),
    "programs": ("tools.benchmarks.programs", ""),
    "trainer": ("tools.benchmarks.trainer", ""),
    "starts": ("tools.benchmarks.starts", ""),
    "rows": ("tools.benchmarks.rows", ""),
    "stages": ("tools.benchmarks.stages", ""),
    "overhead": ("tools.benchmarks.overhead", ""),
}
"""Module with a function ``measure``, and the package that it needs besides those of the project, by benchmark."""
ONLY_BY_NAME = ("generation", "overhead", "programs", "rows", "stages")
"""Benchmarks that do not run by default, so that the default takes less than 20 minutes."""
THREADS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements of everything")
    parser.add_argument("--page", type=Path, help="Markdown file; its section between marks is written")
    parser.add_argument("--keep", action="store_true", help="store the results in tools/benchmarks/baselines")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; allowed: {', '.join(BENCHMARKS)}")
    if options.page:
        write_page(options.page)
        return
    torch.set_num_threads(THREADS)
    logger().setLevel("WARNING")  # Progress bars would be part of what is measured.
    console, regressions = Console(), []
    for name in options.names or [name for name in BENCHMARKS if name not in ONLY_BY_NAME]:
        module, package = BENCHMARKS[name]
        if package and not find_spec(package):
            console.print(f"{name}: skipped, because {package} is not installed. `make bench` installs it.")
            continue
        measure: Callable[[int], Measurement] = import_module(module).measure
        measurement = measure(options.repeats)
        regressions += measurement.regressions(Measurement.read(name))
        console.print(Markdown(section(measurement)))
        if options.keep:
            measurement.write()
    for line in regressions:
        console.print(f"[red]{line}[/]")
    sys.exit(bool(regressions) and not options.keep)


if __name__ == "__main__":
    main()
