"""What `mu-grpo plan --gpus 0 --measured` predicts, beside what the predicted run then takes.

    python -m tools.benchmarks.prediction [--repeats 3] [--page docs/cost.md]

For each workflow a small run is made, its rates predict a run with other numbers of prompts, responses, updates, stages
and problems, and right after it that run is made too, in a store of its own. The exit code is 1 when the median of
predicted over real, of training or of everything, is off by more than a fifth.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tasks.cli.pages import replace_between_marks
from tasks.cli.runs import all_runs
from tasks.report.ledger import ROWS
from tasks.report.tables import render_markdown
from tasks.store import Store
from tools import ROOT
from tools.runs import Runner

CONFIG = ROOT / "configs/tiny-cpu.yaml"
POLICY = "policy.tiny.warm_start.working_updates=80 policy.tiny.warm_start.guessing_updates=30"
ALLOWED = 0.2
Seconds = dict[str, float]


@dataclass(frozen=True)
class Planned:
    """A run: its workflow, and how it differs from the configuration."""

    workflow: str
    stages: int
    prompts: int
    """Per stage, in shards of at most 128."""
    responses: int
    """Per prompt."""
    per_update: int
    problems: int
    mu: int | None = None
    """Updates per refresh, if generation and optimization alternate."""

    @property
    def overrides(self) -> str:
        values = {
            "prompts.prompts_per_stage": self.prompts,
            "prompts.prompts_per_shard": 128,
            "rollout.responses_per_prompt": self.responses,
            "optimize.responses_per_update": self.per_update,
            "evaluate.problems": self.problems,
        } | ({"updates_per_rollout": self.mu, "optimize.preset": "grpo"} if self.mu else {})
        return " ".join([POLICY, *(f"{name}={value}" for name, value in values.items())])

    def __str__(self) -> str:
        updates = self.prompts * self.responses // self.per_update
        every = f", mu {self.mu}" if self.mu else ""
        return (
            f"{self.stages} stages of {updates} updates{every}, {self.prompts} prompts x {self.responses} responses, "
            f"{self.problems} problems"
        )


PAIRS = {
    "mu_grpo": (Planned("mu_grpo_2", 2, 128, 8, 128, 30), Planned("mu_grpo", 4, 192, 16, 192, 250)),
    "grpo": (Planned("grpo", 4, 64, 8, 64, 20, mu=2), Planned("grpo", 4, 192, 16, 192, 250, mu=4)),
}
"""A run that is measured, and one that is predicted from it. The first evaluates fewer responses than it trains on, so
that what a decode step and a token take can be told apart."""


def made(planned: Planned, folder: Path) -> tuple[Path, Seconds]:
    """Makes a run; its store and its ledger."""
    folder.mkdir()
    runner = Runner(folder, CONFIG)
    runner.made(planned.workflow, "--overrides", planned.overrides)
    return runner.store, all_runs(Store.open(runner.store, create=False))[0].summary.ledger


def predicted(planned: Planned, name: str, store: Path) -> Seconds:
    """The ledger that the plan tells."""
    command = [str(Path(sys.executable).parent / "mu-grpo"), "plan", "--config", str(CONFIG), "--gpus", "0", "--json"]
    options = ["--stages", str(planned.stages), "--measured", str(store), *planned.overrides.split()]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True, cwd=ROOT)
    return dict(json.loads(done.stdout)[name]["seconds"])


def with_sums(seconds: Seconds) -> Seconds:
    training = sum(value for row, value in seconds.items() if row not in ("warm_start", "evaluate"))
    return {**seconds, "all_but_warm_start_and_evaluate": training, "all": sum(seconds.values())}


def compared(pairs: list[tuple[Seconds, Seconds]]) -> tuple[Table, float]:
    """Rows of predicted and real ledgers, and how far training or everything is off."""
    table, worst = Table("row", "predicted, s", "real, s", "predicted / real"), 0.0
    for row in [*(row for row in ROWS if row in pairs[0][1]), "all_but_warm_start_and_evaluate", "all"]:
        told, real = zip(*((told.get(row, 0.0), real.get(row, 0.0)) for told, real in pairs), strict=True)
        ratios = [one / other for one, other in zip(told, real, strict=True) if other]
        middle = statistics.median(ratios or [1.0])
        if row in ("all_but_warm_start_and_evaluate", "all"):
            worst = max(worst, abs(middle - 1))
        spread = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
        table.add_row(row.replace("_", " "), f"{statistics.median(told):.1f}", f"{statistics.median(real):.1f}", spread)
    return table, worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--page", type=Path, help="a page whose figures of the check are renewed")
    options = parser.parse_args()
    text, worst = "", 0.0
    for name, (measured, planned) in PAIRS.items():
        pairs: list[tuple[Seconds, Seconds]] = []
        for repeat in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                store, _ = made(measured, Path(folder) / "measured")
                told = predicted(planned, name, store)
                _, real = made(planned, Path(folder) / "planned")
            pairs.append((with_sums(told), with_sums(real)))
            print(f"{name} {repeat + 1}: {pairs[-1][0]['all']:.1f} s predicted, {pairs[-1][1]['all']:.1f} s real")
        table, off = compared(pairs)
        worst = max(worst, off)
        Console().print(table)
        text += f"`{name}`: {planned}; predicted from {measured}.\n\n{render_markdown(table)}\n\n"
    cores = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    text = (
        f"`python -m tools.benchmarks.prediction --repeats {options.repeats}` on {cores}: medians, and the ratios' "
        f"range. The last two rows are within {worst:.0%}.\n\n{text.rstrip()}\n"
    )
    if options.page:
        replace_between_marks(options.page, "check", text)
    if worst > ALLOWED:
        raise SystemExit(f"off by {worst:.0%}; allowed: {ALLOWED:.0%}")


if __name__ == "__main__":
    main()
