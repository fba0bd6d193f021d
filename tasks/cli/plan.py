"""Every number that follows from a run's settings, before anything runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tasks.cli.algorithms import describe
from tasks.cluster.shapes import BYTES, shape_of
from tasks.cluster.steps import answers_of, problems_of
from tasks.report.formats import size
from tasks.report.tables import print_whole
from tasks.settings import PRESETS, RunSettings
from tasks.settings.evaluate import Measure

if TYPE_CHECKING:  # a plan without GPUs answers before these are loaded
    from tasks.cluster.plan import ClusterPlan


@dataclass(frozen=True)
class Pool:
    """What a run would be done on."""

    gpus: int
    """0 for one process here."""
    accelerator: str | None
    prices: Path | None
    measured: str | None
    """A store with a run whose rates are taken."""

    def plan(self, settings: RunSettings, stages: int) -> "ClusterPlan":
        """What the run takes there."""
        from tasks.cluster.plan import PRICES, plan_cluster

        return plan_cluster(settings, stages, self.gpus, self.accelerator, self.prices or PRICES, self.measured)


def print_plan(console: Console, config: Path, overrides: str, stages: int, pool: Pool | None, plain: bool) -> None:
    """The plan of a run; ``plain`` is the pool's part alone, as JSON."""
    settings = RunSettings.read(config, overrides)
    tables = [] if plain else plan_tables(settings, stages)
    if pool is not None:
        from tasks.cli.cluster import cluster_json, cluster_tables

        planned = pool.plan(settings, stages)
        if plain:
            print(cluster_json(planned))
        else:
            tables += cluster_tables(planned, settings.alternates)
    for table in tables:
        print_whole(console, table)


def plan_tables(settings: RunSettings, stages: int) -> list[Table]:
    """Tables of the schedule, the objective and the memory of a run."""
    return [_schedule(settings, stages), _objective(settings), _memory(settings)]


def _table(title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, show_header=False, title_justify="left", title_style="bold")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    return table


def _schedule(run: RunSettings, stages: int) -> Table:
    table = _table("schedule")
    prompts, group, update = (
        run.prompts.prompts_per_stage,
        run.rollout.responses_per_prompt,
        run.optimize.responses_per_update,
    )
    longest, mu = run.rollout.max_new_tokens, run.mu
    responses, updates = run.responses_per_stage, run.updates_per_stage
    policies, measured = stages + 1, run.measures
    answers = [answers_of(run, one) for one in measured]
    rows: list[tuple[str, int | str, str]] = [
        ("stages", stages, "a constant of the workflow"),
        ("prompts per stage", prompts, f"{stages * prompts} in all"),
        ("responses per prompt", group, ""),
        ("responses per stage", responses, f"{prompts} x {group}; {stages * responses} in all"),
        ("tokens per stage, at most", responses * longest, f"{responses} x {longest}"),
        ("shards per stage", run.shards, f"of {run.prompts.prompts_per_shard} prompts"),
        ("responses per update", update, f"{update // group} groups of {group}"),
        ("updates per stage", updates, f"{responses} / {update}"),
        ("updates in all", stages * updates, f"{stages} x {updates}"),
        ("mu, updates per rollout", mu, "" if run.updates_per_rollout else "all updates of a stage"),
        ("rollout refreshes", stages * updates // mu, f"{stages * updates} / {mu}"),
        ("staleness", f"0 to {mu - 1}", f"mean {(mu - 1) / 2:g} updates"),
        ("evaluations", policies * len(measured), f"{policies} policies x {len(measured)} benchmarks"),
        *(
            (f"  {one.benchmark.name}", count, f"responses: {_asked(run, one)}")
            for one, count in zip(measured, answers, strict=True)
        ),
        ("evaluation responses", policies * sum(answers), f"{policies} x {sum(answers)}"),
    ]
    for name, value, how in rows:
        table.add_row(name, str(value), how)
    return table


def _asked(run: RunSettings, measure: Measure) -> str:
    k, greedy = measure.evaluation.samples_per_problem, " and greedy" if measure.evaluation.greedy else ""
    return f"{problems_of(run, measure)} problems, avg@{k}{greedy}"


def _objective(run: RunSettings) -> Table:
    table = Table(title="objective", box=box.SIMPLE_HEAD, show_header=False, title_justify="left", title_style="bold")
    table.add_column(no_wrap=True)
    table.add_column()
    preset = PRESETS[run.optimize.preset]
    modifier = "" if run.optimize.modifier == "none" else f" + {run.optimize.modifier}"
    table.add_row("preset", f"{run.optimize.preset}{modifier}   [dim]{preset.source}[/]")
    if preset.chosen:
        table.add_row("", f"[dim]chosen here: {preset.chosen}[/]")
    for name, value in describe(run.optimize.objective).items():
        table.add_row(name, escape(value))
    warmup = f"AdamW, {run.optimize.warmup_updates} warm-up updates"
    table.add_row("learning rate", f"{run.optimize.learning_rate:g}   [dim]{warmup}[/]")
    return table


def _memory(run: RunSettings) -> Table:
    table = _table("memory, estimated")
    shape = shape_of(run.policy)
    if shape is None:
        table.add_row("policy", "unknown", f"the shape of {run.policy.path} is not known here")
        return table
    engine, number = run.rollout.engine, BYTES["float32"]
    weights = shape.parameters * number
    chunk, rows, longest = run.optimize.logp_chunk_tokens, engine.batch_size, run.rollout.max_new_tokens
    table.add_row("policy", f"{shape.parameters / 1e6:,.2f} M", "parameters, in fp32")
    table.add_row("weights", size(weights), "a checkpoint's model.safetensors")
    table.add_row("training state", size(4 * weights), "weights, gradients and AdamW's two moments")
    table.add_row(
        "logits of a chunk",
        size(2 * chunk * shape.vocabulary * number),
        f"2 x {chunk} tokens x {shape.vocabulary}",
    )
    cache = rows * longest * shape.cache_bytes(engine.dtype)
    table.add_row("KV cache", size(cache), f"{rows} responses x {longest} tokens")
    return table
