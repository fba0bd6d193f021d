"""How long commands that should answer at once take: wall-clock and processor seconds, the least of five.

python -m tests.benchmarks.commands
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.cache_versions import ROOT

CONFIG = str(ROOT / "configs/tiny-cpu.yaml")
COMMANDS = (("--help",), ("plan", "--config", CONFIG), ("algorithms",))
TIMES = 5


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall-clock and processor seconds of one start."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints the table."""
    table = Table("command", "wall-clock s", "processor s")
    program = str(Path(sys.executable).parent / "mu-grpo")
    for arguments in COMMANDS:
        wall, processor = map(min, zip(*(seconds([program, *arguments]) for _ in range(TIMES)), strict=True))
        table.add_row(f"mu-grpo {arguments[0]}", f"{wall:.2f}", f"{processor:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
