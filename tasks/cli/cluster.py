"""The cluster part of a plan in the terminal, and as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from rich import box
from rich.table import Table

from tasks.cluster.plan import ClusterPlan
from tasks.cluster.steps import ROWS, Phase, Prediction, Row
from tasks.report.formats import MISSING, duration, label

_HOUR, _GB = 3600.0, 1e9
_COLORS = {"given": "", "assumed": "yellow", "measured": "green"}


def cluster_tables(plan: ClusterPlan, alternating: bool) -> list[Table]:
    """Tables of pods, of Mu-GRPO beside GRPO, of storage, of prices, and of what all of it rests on.

    Args:
        plan: to be shown.
        alternating: the planned run is the one in which generation and optimization take turns.
    """
    if not plan.gpus:
        return [_seconds(plan), _storage(plan), _assumptions(plan)]
    pods = _pods("grpo", plan.grpo, plan) if alternating else _pods("mu_grpo", plan.mu_grpo, plan)
    return [pods, _side_by_side(plan), _storage(plan), _price(plan), _assumptions(plan)]


def cluster_json(plan: ClusterPlan) -> str:
    """Everything, in seconds, bytes and the prices' currency."""
    return json.dumps(asdict(plan), indent=1)


def _table(title: str, first: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _beside(title: str, plan: ClusterPlan, rows: Sequence[tuple[str, Callable[[Prediction], str]]]) -> Table:
    table = _table(title, "", f"mu_grpo, mu {plan.mu_grpo.mu}", f"grpo, mu {plan.grpo.mu}")
    for name, cell in rows:
        table.add_row(name, cell(plan.mu_grpo), cell(plan.grpo))
    return table


def _pods(name: str, prediction: Prediction, plan: ClusterPlan) -> Table:
    title = f"pods of {name} on {_gpus(plan)}, estimated"
    headings = ("pods", "GPUs\neach", "tokens", "pod-hours", "GPU-hours", "wall-clock", plan.currency)
    table = _table(title, "step", *headings)
    for phase in prediction.phases:
        table.add_row(*_pod_cells(phase))
    table.add_section()
    held = sum(prediction.gpu_seconds.values())
    wall, price = duration(prediction.wall_seconds), f"{sum(one.price for one in prediction.phases):,.2f}"
    pods = sum(phase.pods for phase in prediction.phases)
    hours = sum(prediction.seconds.values())
    table.add_row("all", str(pods), "", "", _hours(hours), _hours(held), wall, price)
    return table


def _pod_cells(phase: Phase) -> tuple[str, ...]:
    return (
        phase.name,
        str(phase.pods),
        str(phase.pod_gpus) if phase.pod_gpus else MISSING,
        _count(phase.tokens) if phase.tokens else MISSING,
        _hours(phase.pod_seconds),
        _hours(phase.gpu_seconds) if phase.pod_gpus else MISSING,
        duration(phase.wall_seconds),
        f"{phase.price:,.2f}",
    )


def _side_by_side(plan: ClusterPlan) -> Table:
    found = [row for row in ROWS if row in plan.mu_grpo.gpu_seconds or row in plan.grpo.gpu_seconds]
    rows: list[tuple[str, Callable[[Prediction], str]]] = [
        ("wall-clock", lambda one: duration(one.wall_seconds)),
        ("GPU-hours", lambda one: _hours(sum(one.gpu_seconds.values()))),
        *((f"  {label(row)}", lambda one, row=row: _row(one.gpu_seconds, row, _hours)) for row in found),
        ("GPU-hours of idle GPUs", lambda one: _hours(plan.gpus * one.wall_seconds - sum(one.gpu_seconds.values()))),
        *_counted(),
        ("generated tokens/s, per GPU", lambda one: _rate(one.generated_tokens, one.gpu_seconds["generate"])),
        ("trained tokens/s, per GPU", lambda one: _rate(one.trained_tokens, one.gpu_seconds["optimize"])),
        (plan.currency, lambda one: f"{sum(one.price.values()):,.2f}"),
        ("speed", lambda one: f"{plan.grpo.wall_seconds / one.wall_seconds:.2f}x"),
    ]
    return _beside(f"Mu-GRPO beside GRPO on {_gpus(plan)}, the same updates, estimated", plan, rows)


def _seconds(plan: ClusterPlan) -> Table:
    found = [row for row in ROWS if row in plan.mu_grpo.seconds or row in plan.grpo.seconds]
    rows: list[tuple[str, Callable[[Prediction], str]]] = [
        ("wall-clock", lambda one: duration(one.wall_seconds)),
        *((f"  {label(row)}", lambda one, row=row: _row(one.seconds, row, duration)) for row in found),
        ("training", lambda one: duration(training(one))),
        *_counted(),
    ]
    return _beside("Mu-GRPO beside GRPO in one process, the same updates, estimated", plan, rows)


def training(prediction: Prediction) -> float:
    """Seconds as a report counts them: without evaluation and without making the base policy."""
    from tasks.report.ledger import training_seconds

    return training_seconds({str(row): seconds for row, seconds in prediction.seconds.items()})


def _counted() -> list[tuple[str, Callable[[Prediction], str]]]:
    return [
        ("updates", lambda one: _count(one.updates)),
        ("generated tokens", lambda one: _count(one.generated_tokens)),
        ("refreshes inside a task", lambda one: _count(one.refreshes)),
    ]


def _storage(plan: ClusterPlan) -> Table:
    rows: list[tuple[str, Callable[[Prediction], str]]] = [
        ("policies, with AdamW's moments", lambda one: _bytes(one.policy_bytes)),
        ("rollouts", lambda one: _bytes(one.kept_bytes - one.policy_bytes)),
        ("kept", lambda one: _bytes(one.kept_bytes)),
        ("besides, while a stage trains", lambda one: _bytes(one.unfinished_bytes)),
        ("written", lambda one: _bytes(one.written_bytes)),
        ("read", lambda one: _bytes(one.read_bytes)),
    ]
    if not plan.gpus:  # nothing is read from the store that this machine wrote
        del rows[-1]
    return _beside("storage and traffic, estimated", plan, rows)


def _price(plan: ClusterPlan) -> Table:
    rows: list[tuple[str, Callable[[Prediction], str]]] = [
        *((name, lambda one, name=name: f"{one.price[name]:,.2f}") for name in plan.mu_grpo.price),
        ("all", lambda one: f"{sum(one.price.values()):,.2f}"),
    ]
    return _beside(f"price in {plan.currency}, estimated", plan, rows)


def _assumptions(plan: ClusterPlan) -> Table:
    table = Table(
        title="what this rests on", box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False
    )
    for heading in ("", "value", "source"):
        table.add_column(heading, no_wrap=True)
    table.add_column("", style="dim")
    for one in plan.assumptions:
        color = _COLORS[one.source]
        table.add_row(one.name, one.value, f"[{color}]{one.source}[/]" if color else one.source, one.note)
    return table


def _gpus(plan: ClusterPlan) -> str:
    return f"{plan.gpus} GPU{'s' if plan.gpus > 1 else ''}"


def _row(seconds: Mapping[Row, float], row: Row, write: Callable[[float], str]) -> str:
    return write(seconds[row]) if row in seconds else MISSING


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:,.1f}"


def _rate(tokens: float, gpu_seconds: float) -> str:
    return f"{tokens / gpu_seconds:,.0f}"


def _count(number: float) -> str:
    """``1.34 G``, ``12.5 M``, ``4,096``."""
    for factor, unit in ((1e9, "G"), (1e6, "M")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:,.0f}"


def _bytes(size: float) -> str:
    for factor, unit in ((1e12, "TB"), (_GB, "GB"), (1e6, "MB")):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1e3:,.1f} kB"
