"""Tables of the command ``plan``: numbers that follow from the settings of a run or of an experiment."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from tasks.cli.algorithms import describe
from tasks.cluster.memory import training_memory
from tasks.cluster.plan import ClusterPlan
from tasks.cluster.shapes import shape_of
from tasks.cluster.steps import ACTIVITIES, Prediction, evaluation_responses, problem_count
from tasks.formats import DASH, duration, label, pluralize
from tasks.report.tables import number_table, print_whole
from tasks.settings import PRESETS, RunSettings
from tasks.settings.base import read_yaml
from tasks.settings.evaluate import Measurement
from tasks.settings.experiment import ExperimentSettings, PlannedRun, read_experiment

_SHARED = (
    "Steps that runs share, such as the base policy and its evaluation, run once but are counted in every run here."
)
_COLORS = {"given": "", "assumed": "yellow", "measured": "green"}
Planner = Callable[[RunSettings, int], ClusterPlan]
"""Function from the settings of a run and its number of stages to its plan on a pool of GPUs."""


def print_plan(
    console: Console, config: Path, overrides: str, stages: int, planner: Planner | None, as_json: bool
) -> None:
    """Print the plan of a file with a run or an experiment; with ``as_json`` only the planner's estimates."""
    content = read_yaml(config, RunSettings.model_fields, "configs/tiny-cpu.yaml")
    make = _plan_experiment if "experiment" in content else _plan_run
    tables, values = make(config, overrides, stages, planner)
    if as_json:
        print(json.dumps(values, indent=1))
    else:
        for table in tables:
            print_whole(console, table)


def _plan_run(config: Path, overrides: str, stages: int, planner: Planner | None) -> tuple[list[Table], Any]:
    settings = RunSettings.read(config, overrides)
    tables = [_schedule(settings, stages), _objective(settings), _memory(settings)]
    if planner is None:
        return tables, None
    planned = planner(settings, stages)
    return tables + _cluster(planned, settings.alternates), asdict(planned)


def _plan_experiment(config: Path, overrides: str, stages: int, planner: Planner | None) -> tuple[list[Table], Any]:
    experiment, store = read_experiment(config)
    runs = [run for run in experiment.runs(store, overrides) if run.seed == experiment.seeds[0]]
    tables, seeds = [_runs(experiment, runs, stages)], len(experiment.seeds)
    if planner is None:
        return tables, None
    plans = [planner(run.settings, stages) for run in runs]
    values = [
        {"model": run.model, "system": run.system, "runs": seeds, **asdict(plan)}
        for run, plan in zip(runs, plans, strict=True)
    ]
    return [*tables, _costs(runs, plans, seeds)], values


def _table(title: str, rows: Iterable[tuple[str, object, str]], justify: Literal["left", "right"] = "right") -> Table:
    """Return a table without a header, of names, values and notes."""
    table = Table(title=title, box=box.SIMPLE_HEAD, show_header=False, title_justify="left", title_style="bold")
    table.add_column(no_wrap=True)
    table.add_column(justify=justify, no_wrap=justify == "right")
    table.add_column(style="dim")
    for name, value, note in rows:
        table.add_row(name, str(value), note)
    return table


def _schedule(run: RunSettings, stages: int) -> Table:
    prompts, group = run.prompts.prompts_per_stage, run.rollout.responses_per_prompt
    update = run.optimize.responses_per_update
    longest, mu, responses, updates = run.rollout.max_new_tokens, run.mu, run.responses_per_stage, run.updates_per_stage
    repeated = run.optimize.objective.schedule.updates_per_batch
    policies, answers = stages + 1, [evaluation_responses(run, measurement) for measurement in run.measurements]
    rows = [
        ("stages", stages, "a constant of the workflow"),
        ("prompts per stage", prompts, f"{stages * prompts} in all"),
        ("responses per prompt", group, ""),
        ("responses per stage", responses, f"{prompts} x {group}; {stages * responses} in all"),
        ("tokens per stage, at most", responses * longest, f"{responses} x {longest}"),
        ("shards per stage", run.shards, f"of {min(run.prompts.prompts_per_shard, prompts)} prompts"),
        ("responses per update", update, f"{update // group} groups of {group}"),
        ("updates per stage", updates, f"{responses} / {update}" + f" x {repeated}" * (repeated > 1)),
        ("updates in all", stages * updates, f"{stages} x {updates}"),
        ("mu, updates per rollout", mu, "" if run.updates_per_rollout else "all updates of a stage"),
        ("rollout refreshes", stages * updates // mu, f"{stages * updates} / {mu}"),
        ("staleness", f"0 to {mu - 1}", f"mean {(mu - 1) / 2:g} updates"),
        ("evaluations", policies * len(answers), f"{policies} policies x {pluralize(len(answers), 'benchmark')}"),
        *(
            (f"  {measurement.benchmark.name}", count, f"responses: {_describe_measurement(run, measurement)}")
            for measurement, count in zip(run.measurements, answers, strict=True)
        ),
        ("evaluation responses", policies * sum(answers), f"{policies} x {sum(answers)}"),
    ]
    return _table("schedule", rows)


def _describe_measurement(run: RunSettings, measurement: Measurement) -> str:
    k, greedy = measurement.evaluation.samples_per_problem, " and greedy" if measurement.evaluation.greedy else ""
    source, problems = measurement.benchmark.source, f"{problem_count(run, measurement)} problems"
    if source is not None and source.path is not None:  # A plan reads no file.
        problems = f"at most {problems}" if measurement.benchmark.problems else f"{problems} assumed"
    return f"{problems}, avg@{k}{greedy}"


def _objective(run: RunSettings) -> Table:
    preset = PRESETS[run.optimize.preset]
    modifier = "" if run.optimize.modifier == "none" else f" + {run.optimize.modifier}"
    warmup = f"AdamW, {run.optimize.warmup_updates} warm-up updates"
    rows = [("preset", f"{run.optimize.preset}{modifier}   [dim]{preset.source}[/]", "")]
    rows += [("", f"[dim]chosen here: {preset.chosen}[/]", "")] if preset.chosen else []
    rows += [(name, escape(value), "") for name, value in describe(run.optimize.objective).items()]
    rows += [("learning rate", f"{run.optimize.learning_rate:g}   [dim]{warmup}[/]", "")]
    return _table("objective", rows, "left")


def _memory(run: RunSettings) -> Table:
    shape, engine, processes = shape_of(run.policy), run.rollout.engine, run.optimize.backend.processes
    if shape is None:
        unknown = escape(f"the shape of {run.policy.path} is unknown")
        return _table("memory, estimated", [("policy", "unknown", unknown)])
    rows, longest = engine.batch_size, run.rollout.max_new_tokens
    cache = rows * longest * shape.cache_bytes(engine.dtype)
    use = "of training, in each process" if processes > 1 else "of training"
    training = [(name, decimal(int(size)), use) for name, size in training_memory(run, shape, processes).items()]
    policy = ("policy", f"{shape.parameters / 1e6:,.2f} M", "parameters")
    kept = ("KV cache", decimal(cache), f"{rows} responses x {longest} tokens")
    return _table("memory, estimated", [policy, *training, kept])


def _runs(experiment: ExperimentSettings, runs: Sequence[PlannedRun], stages: int) -> Table:
    seeds = ", ".join(map(str, experiment.seeds))
    headings = ("preset", "updates", "mu", "refreshes", "responses", "tokens\nat most", "evaluation\nresponses")
    title = f"{len(runs)} runs for each seed ({seeds}), {len(runs) * len(experiment.seeds)} in all"
    table = number_table(title, ("model", "system"), headings)
    for run in runs:
        settings = run.settings
        responses, updates = stages * settings.responses_per_stage, stages * settings.updates_per_stage
        answers = sum(evaluation_responses(settings, measurement) for measurement in settings.measurements)
        longest = responses * settings.rollout.max_new_tokens
        numbers = (updates, settings.mu, updates // settings.mu, responses, longest, (stages + 1) * answers)
        names = (*map(escape, (run.model, run.system)), settings.optimize.preset)
        table.add_row(*names, *(f"{number:,}" for number in numbers))
    if experiment.laboratory:
        parts = " and ".join(experiment.laboratory.parts)
        table.caption = f"Also: part {parts} of the laboratory, {experiment.laboratory.updates} updates per run."
    return table


def _costs(runs: Sequence[PlannedRun], plans: Sequence[ClusterPlan], seeds: int) -> Table:
    gpus, currency = plans[0].gpus, plans[0].currency
    where = f"{pluralize(gpus, 'GPU')} per run" if gpus else "one process"
    headings = ("wall-clock\nof a run", "GPU-hours", f"with {pluralize(seeds, 'seed')}", currency)
    table = number_table(f"time and price on {where}, estimated", ("model", "system"), headings)
    table.caption = _SHARED
    # A plan predicts both workflows; only one of them is that of the run.
    predictions = [
        plan.grpo if run.settings.alternates else plan.mu_grpo for run, plan in zip(runs, plans, strict=True)
    ]
    costs = [
        (prediction.wall_seconds, sum(prediction.gpu_seconds.values()) / 3600, sum(prediction.price.values()))
        for prediction in predictions
    ]
    for run, (wall, hours, price) in zip(runs, costs, strict=True):
        numbers = (f"{hours:,.1f}", f"{seeds * hours:,.1f}", f"{seeds * price:,.2f}")
        table.add_row(*map(escape, (run.model, run.system)), duration(wall), *numbers)
    wall, hours, price = (seeds * sum(column) for column in zip(*costs, strict=True))
    table.add_section()
    table.add_row("all", "", f"{duration(wall)} one by one", "", f"{hours:,.1f}", f"{price:,.2f}")
    return table


def _cluster(plan: ClusterPlan, alternating: bool) -> list[Table]:
    """Return tables of pods, of Mu-GRPO compared with GRPO, of storage, of prices and of assumptions."""
    if not plan.gpus:
        return [_side_by_side(plan), _storage(plan), _assumptions(plan)]
    pods = _pods("grpo", plan.grpo, plan) if alternating else _pods("mu_grpo", plan.mu_grpo, plan)
    return [pods, _side_by_side(plan), _storage(plan), _price(plan), _assumptions(plan)]


def _compare(title: str, plan: ClusterPlan, cells: Callable[[Prediction], dict[str, str]]) -> Table:
    """Return a table of both predictions; a row that is empty for both is left out."""
    mu_grpo, grpo = cells(plan.mu_grpo), cells(plan.grpo)
    rows = [(name, cell or DASH, grpo[name] or DASH) for name, cell in mu_grpo.items() if cell or grpo[name]]
    return number_table(title, [""], [f"mu_grpo, mu {plan.mu_grpo.mu}", f"grpo, mu {plan.grpo.mu}"], rows)


def _pods(name: str, prediction: Prediction, plan: ClusterPlan) -> Table:
    title = f"pods of {name} on {pluralize(plan.gpus, 'GPU')}, estimated"
    headings = ("pods", "GPUs\neach", "tokens", "pod-hours", "GPU-hours", "wall-clock", plan.currency)
    table = number_table(title, ["step"], headings)
    for phase in prediction.phases:
        table.add_row(
            phase.name,
            str(phase.pods),
            str(phase.pod_gpus) if phase.pod_gpus else DASH,
            _count(phase.tokens) if phase.tokens else DASH,
            _hours(phase.pod_seconds),
            _hours(phase.gpu_seconds) if phase.pod_gpus else DASH,
            duration(phase.wall_seconds),
            f"{phase.price:,.2f}" if phase.pod_gpus else DASH,
        )
    table.add_section()
    pods, price = (sum(phase.pods for phase in prediction.phases), sum(phase.price for phase in prediction.phases))
    pod_hours, gpu_hours = _hours(sum(prediction.seconds.values())), _hours(sum(prediction.gpu_seconds.values()))
    wall = duration(prediction.wall_seconds)
    table.add_row("all", str(pods), "", "", pod_hours, gpu_hours, wall, f"{price:,.2f}")
    return table


def _side_by_side(plan: ClusterPlan) -> Table:
    """Return a table of the GPU-hours of both workflows by activity; without GPUs, of their seconds."""

    def cells(one: Prediction) -> dict[str, str]:
        seconds, show = (one.gpu_seconds, _hours) if plan.gpus else (one.seconds, duration)
        held, rows = sum(seconds.values()), {"wall-clock": duration(one.wall_seconds)}
        rows |= {"GPU-hours": _hours(held)} if plan.gpus else {}
        rows |= {f"  {label(name)}": show(seconds[name]) if name in seconds else "" for name in ACTIVITIES}
        rows |= {"GPU-hours of idle GPUs": _hours(plan.gpus * one.wall_seconds - held)} if plan.gpus else {}
        rows |= {
            "updates": _count(one.updates),
            "generated tokens": _count(one.generated_tokens),
            "refreshes inside a task": _count(one.refreshes),
        }
        if plan.gpus:
            rows |= {
                "generated tokens/s, per GPU": f"{one.generated_tokens / seconds['generate']:,.0f}",
                "trained tokens/s, per GPU": f"{one.trained_tokens / seconds['optimize']:,.0f}",
                plan.currency: f"{sum(one.price.values()):,.2f}",
                "speed": f"{plan.grpo.wall_seconds / one.wall_seconds:.2f}x",
            }
        return rows

    where = f"on {pluralize(plan.gpus, 'GPU')}" if plan.gpus else "in one process"
    return _compare(f"Mu-GRPO and GRPO {where}, with the same updates, estimated", plan, cells)


def _storage(plan: ClusterPlan) -> Table:
    def cells(one: Prediction) -> dict[str, str]:
        return {
            "policies, with AdamW's moments": decimal(int(one.policy_bytes)),
            "rollouts": decimal(int(one.kept_bytes - one.policy_bytes)),
            "kept": decimal(int(one.kept_bytes)),
            "checkpoints while a stage trains": decimal(int(one.unfinished_bytes)),
            "written": decimal(int(one.written_bytes)),
            # One machine reads nothing from the store that it wrote itself.
            "read": decimal(int(one.read_bytes)) if plan.gpus else "",
        }

    return _compare("storage and traffic, estimated", plan, cells)


def _price(plan: ClusterPlan) -> Table:
    def cells(one: Prediction) -> dict[str, str]:
        prices = {**one.price, "all": sum(one.price.values())}
        return {name: f"{price:,.2f}" for name, price in prices.items()}

    return _compare(f"price in {plan.currency}, estimated", plan, cells)


def _assumptions(plan: ClusterPlan) -> Table:
    table = number_table("assumptions and measured values", ("", "value", "source"), ())
    table.add_column("", style="dim")
    for assumption in plan.assumptions:
        source, color = assumption.source, _COLORS[assumption.source]
        shown = f"[{color}]{source}[/]" if color else source
        table.add_row(assumption.name, escape(assumption.value), shown, escape(assumption.note))
    return table


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}"


def _count(number: float) -> str:
    """Return a number as a short text, such as ``1.34 G``, ``12.5 M`` or ``4,096``."""
    for factor, unit in ((1e9, "G"), (1e6, "M")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:,.0f}"
