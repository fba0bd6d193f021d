"""Whole runs with every fault (`make faults`).

Prints a table of the results, and writes it as Markdown to the path in the first argument, if there is one.
"""

import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from tools.docs.sections import render_markdown
from tools.faults.kills import KilledRun, run_undisturbed, run_with_kills
from tools.faults.proxy import proxy
from tools.s3 import S3, server

SIGKILLS, SIGTERMS = 25, 10
SHARE = 0.2


@dataclass(frozen=True)
class Result:
    """The results of the runs with one fault."""

    fault: str
    times: int
    moments: Mapping[str, int]
    repeated: Mapping[str, int]
    worst: Mapping[str, int]
    equal: bool
    seconds: float


def main(page: Path | None) -> int:
    """Run every fault, and return the exit status: 0 if all digests are equal to that of the undisturbed run."""
    with tempfile.TemporaryDirectory() as name, server() as s3:
        folder = Path(name)
        expected = run_undisturbed(folder / "undisturbed", str(folder / "undisturbed/store"), {})
        rows = [
            _kill("SIGKILL, store in a folder", folder / "disk", expected, SIGKILLS, 1, signal.SIGKILL, None),
            _kill("SIGKILL, store on S3", folder / "s3", expected, SIGKILLS, 2, signal.SIGKILL, s3),
            _kill("SIGTERM, store in a folder", folder / "asked", expected, SIGTERMS, 3, signal.SIGTERM, None),
            _flaky(folder / "flaky", expected, s3),
        ]
    table = _table(rows)
    Console(width=150).print(table)
    if page is not None:
        page.write_text(_PAGE + render_markdown(table) + "\n", encoding="utf-8")
        print(f"wrote {page}")
    return 0 if all(row.equal for row in rows) else 1


def _kill(fault: str, folder: Path, expected: str, times: int, seed: int, how: signal.Signals, s3: S3 | None) -> Result:
    """Start and kill runs until there were ``times`` kills. If a run ends sooner, the next run starts."""
    started, rest, attempt = time.monotonic(), times, 0
    total, equal = KilledRun(), True
    while rest > 0:
        own_folder = folder / str(attempt)
        store = str(own_folder / "store") if s3 is None else f"s3://{s3.bucket()}"
        environment = {} if s3 is None else s3.environment(own_folder / "cache")
        result = run_with_kills(own_folder, store, environment, rest, seed + 100 * attempt, (how,))
        total.moments += result.moments
        total.repeated += result.repeated
        total.worst |= result.worst
        equal = equal and result.digest == expected and result.within_limits
        rest, attempt = rest - result.kills, attempt + 1
    return Result(fault, total.kills, total.moments, total.repeated, total.worst, equal, time.monotonic() - started)


def _flaky(folder: Path, expected: str, s3: S3) -> Result:
    """Run through a proxy that disturbs a share of all requests."""
    folder.mkdir(parents=True)
    started = time.monotonic()
    with proxy(s3, folder) as between:
        between.fail(SHARE)
        digest = run_undisturbed(folder, f"s3://{s3.bucket()}", s3.environment(folder / "cache", between.endpoint))
        counts = between.counts()
    passed = counts.pop("passed", 0)
    name = f"{SHARE:.0%} of the S3 requests fail ({counts.total()} of {counts.total() + passed})"
    return Result(name, 1, counts, Counter(), Counter(), digest == expected, time.monotonic() - started)


def _table(rows: list[Result]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("fault", "times", "recovered", "at", "repeated", "most at once", "digest equal", "seconds"):
        table.add_column(heading, justify="right" if heading in ("times", "recovered", "seconds") else "left")
    for row in rows:
        table.add_row(
            row.fault,
            str(row.times),
            str(row.times if row.equal else 0),
            _counts(row.moments),
            _counts(row.repeated),
            _counts(row.worst),
            "yes" if row.equal else "NO",
            f"{row.seconds:.0f}",
        )
    return table


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()) if count) or "-"


_PAGE = """# Faults

How much work does a run repeat after a fault, and is its result still the same? `make faults` wrote this page.

It makes runs of `mu_grpo_2` with [tools/small.yaml](../tools/small.yaml) and starts them again after every kill until
they end. A part of a shard has 128 responses, a shard has 512, and a checkpoint follows every 2 updates. The columns
are

- *times*, *recovered*: faults, and those after which the run completed; *seconds*: of all of them together;
- *at*: the last thing that the run had done before each fault, or the kinds of failed requests;
- *repeated*: responses, answers and updates that were complete and were made again, in total (`-`: none);
- *most at once*: the same, at most after one kill;
- *digest equal*: whether the last policy has the digest of an undisturbed run, and no kill repeated more than 128
  responses, 512 answers or 2 updates.

"""

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
