"""Seconds that `mu-grpo plan --gpus 0 --measured` predicts for a run, and the seconds that the run really takes.

    python -m tools.benchmarks.prediction [--repeats 3] [--page docs/cost.md]

For each workflow, the rates of a small run predict a run with other numbers of prompts, responses, updates, stages and
problems, which is then executed in its own store. The exit code is 1 if the median of predicted over real seconds
differs from 1 by more than a fifth, for the whole run or for all rows but warm start and evaluation.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tasks.cli.runs import all_runs
from tasks.formats import percent
from tasks.report.ledger import ROWS
from tasks.store import Store
from tools import ROOT
from tools.docs.sections import render_markdown, replace_section
from tools.runs import MU_GRPO, Runner

CONFIG = ROOT / "configs/tiny-cpu.yaml"
POLICY = "policy.tiny.warm_start.working_updates=80 policy.tiny.warm_start.guessing_updates=30"
ALLOWED = 0.2
SUMS = ("all_but_warm_start_and_evaluate", "all")
Seconds = dict[str, float]


@dataclass(frozen=True)
class Planned:
    """A run: its workflow, and the settings that differ from the configuration."""

    workflow: str
    stages: int
    prompts: int
    """Prompts per stage, in shards of at most 128."""
    responses: int
    """Responses per prompt."""
    responses_per_update: int
    problems: int
    mu: int | None = None
    """Updates per refresh, if generation and training alternate."""

    @property
    def overrides(self) -> str:
        values = {
            "prompts.prompts_per_stage": self.prompts,
            "prompts.prompts_per_shard": 128,
            "rollout.responses_per_prompt": self.responses,
            "optimize.responses_per_update": self.responses_per_update,
            "evaluate.problems": self.problems,
        } | ({"updates_per_rollout": self.mu, "optimize.preset": "grpo"} if self.mu else {})
        return " ".join([POLICY, *(f"{name}={value}" for name, value in values.items())])

    def __str__(self) -> str:
        updates = self.prompts * self.responses // self.responses_per_update
        mu = f", mu {self.mu}" if self.mu else ""
        return (
            f"{self.stages} stages of {updates} updates{mu}, {self.prompts} prompts x {self.responses} responses, "
            f"{self.problems} problems"
        )


PAIRS = {
    "mu_grpo": (Planned("mu_grpo_2", 2, 128, 8, 128, 30), Planned("mu_grpo", 4, 192, 16, 192, 250)),
    "grpo": (Planned("grpo", 4, 64, 8, 64, 20, mu=2), Planned("grpo", 4, 192, 16, 192, 250, mu=4)),
}
"""A run that is measured, and a run that is predicted from it. The first evaluates fewer responses than it generates
for training: batches of different sizes tell the seconds of a decode step from those of a token."""


def execute(planned: Planned, folder: Path) -> tuple[Path, Seconds]:
    """Execute a run, and return its store and its ledger."""
    folder.mkdir()
    runner = Runner(folder, CONFIG)
    runner.made(planned.workflow, "--overrides", planned.overrides)
    return runner.store, all_runs(Store.open(runner.store, create=False))[0].summary.ledger


def predict(planned: Planned, name: str, store: Path) -> Seconds:
    """Return the ledger that the plan predicts from the runs in a store."""
    command = [MU_GRPO, "plan", "--config", str(CONFIG), "--gpus", "0", "--json", "--stages", str(planned.stages)]
    options = ["--measured", str(store), *planned.overrides.split()]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True, cwd=ROOT)
    return dict(json.loads(done.stdout)[name]["seconds"])


def with_sums(seconds: Seconds) -> Seconds:
    """Add the rows ``SUMS`` to a ledger."""
    training = sum(value for row, value in seconds.items() if row not in ("warm_start", "evaluate"))
    return {**seconds, **dict(zip(SUMS, (training, sum(seconds.values())), strict=True))}


def compare(pairs: list[tuple[Seconds, Seconds]]) -> tuple[Table, float]:
    """Return a table of predicted and real ledgers, and the largest relative error of ``SUMS``."""
    table, error = Table("row", "predicted, s", "real, s", "predicted / real"), 0.0
    for row in [*(row for row in ROWS if row in pairs[0][1]), *SUMS]:
        predicted, real = zip(*((one.get(row, 0.0), other.get(row, 0.0)) for one, other in pairs), strict=True)
        ratios = [one / other for one, other in zip(predicted, real, strict=True) if other]
        median = statistics.median(ratios or [1.0])
        if row in SUMS:
            error = max(error, abs(median - 1))
        seconds = (f"{statistics.median(values):.1f}" for values in (predicted, real))
        ratio = f"{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
        table.add_row(row.replace("_", " "), *seconds, ratio)
    return table, error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--page", type=Path, help="Markdown file; its section between marks is written")
    options = parser.parse_args()
    text, largest_error = "", 0.0
    for name, (measured, planned) in PAIRS.items():
        pairs: list[tuple[Seconds, Seconds]] = []
        for repeat in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                store, _ = execute(measured, Path(folder) / "measured")
                predicted = predict(planned, name, store)
                _, real = execute(planned, Path(folder) / "planned")
            pairs.append((with_sums(predicted), with_sums(real)))
            print(f"{name} {repeat + 1}: {pairs[-1][0]['all']:.1f} s predicted, {pairs[-1][1]['all']:.1f} s real")
        table, error = compare(pairs)
        largest_error = max(largest_error, error)
        Console().print(table)
        text += f"`{name}`: {planned}; predicted from {measured}.\n\n{render_markdown(table)}\n\n"
    cores = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    text = (
        f"`python -m tools.benchmarks.prediction --repeats {options.repeats}` on {cores}. The tables have medians, and "
        "the range of the ratios. The median ratios of the last two rows differ from 1 by at most "
        f"{percent(largest_error, 0)}.\n\n{text.rstrip()}\n"
    )
    if options.page:
        replace_section(options.page, "check", text)
    if largest_error > ALLOWED:
        raise SystemExit(f"the prediction is wrong by {percent(largest_error, 0)}; allowed: {percent(ALLOWED, 0)}")


if __name__ == "__main__":
    main()
