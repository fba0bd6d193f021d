"""Benchmarks beside what they are compared with, and beside what was measured before.

    python -m tools.benchmarks [NAME ...] [--repeats 5] [--keep]
    python -m tools.benchmarks --page docs/performance.md

Without names all that this machine has the packages for, but for some that are run by name. Exits with 1 when a ratio
is more than 5 % worse than the kept one, or one beside a unit of time no longer reaches its bar; ``--keep`` makes the
new ones the kept. ``--page`` measures nothing: it writes what is kept.
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
from tools.benchmarks.measured import Measured

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
"""Module with a function ``measure``, and the package that it needs besides the project's."""
BY_NAME = ("generation", "overhead", "programs", "rows", "stages")
"""Not in a run of all, which is to take less than 20 minutes."""
THREADS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--page", type=Path, help="a Markdown file whose part between marks is written from what is kept"
    )
    parser.add_argument("--keep", action="store_true", help="keep what is measured in tools/benchmarks/baselines")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"{unknown[0]} is no benchmark; there are {', '.join(BENCHMARKS)}")
    if options.page:
        write_page(options.page)
        return
    torch.set_num_threads(THREADS)
    logger().setLevel("WARNING")  # no progress bars inside of what is measured
    console, fell = Console(), []
    for name in options.names or [name for name in BENCHMARKS if name not in BY_NAME]:
        module, package = BENCHMARKS[name]
        if package and not find_spec(package):
            console.print(f"{name}: skipped, {package} is not installed; `make bench` sets it up")
            continue
        measure: Callable[[int], Measured] = import_module(module).measure
        found = measure(options.repeats)
        fell += found.regressions(Measured.read(name))
        console.print(Markdown(section(found)))
        if options.keep:
            found.write()
    for sentence in fell:
        console.print(f"[red]{sentence}[/]")
    sys.exit(bool(fell) and not options.keep)


if __name__ == "__main__":
    main()
