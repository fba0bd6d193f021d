"""The cluster part of a plan in the terminal."""

from collections.abc import Callable

from rich.filesize import decimal
from rich.table import Table

from tasks.cluster.plan import ClusterPlan
from tasks.cluster.steps import ROWS, Prediction
from tasks.formats import MISSING, counted, duration, label
from tasks.report.tables import number_table

_COLORS = {"given": "", "assumed": "yellow", "measured": "green"}


def cluster_tables(plan: ClusterPlan, alternating: bool) -> list[Table]:
    """Return tables of pods, of Mu-GRPO beside GRPO, of storage, of prices, and of what all of it rests on."""
    if not plan.gpus:
        return [_seconds(plan), _storage(plan), _assumptions(plan)]
    pods = _pods("grpo", plan.grpo, plan) if alternating else _pods("mu_grpo", plan.mu_grpo, plan)
    return [pods, _side_by_side(plan), _storage(plan), _price(plan), _assumptions(plan)]


def _beside(title: str, plan: ClusterPlan, cells: Callable[[Prediction], dict[str, str]]) -> Table:
    table = number_table(title, [""], [f"mu_grpo, mu {plan.mu_grpo.mu}", f"grpo, mu {plan.grpo.mu}"])
    ours, theirs = cells(plan.mu_grpo), cells(plan.grpo)
    for name, cell in ours.items():
        table.add_row(name, cell, theirs[name])
    return table


def _pods(name: str, prediction: Prediction, plan: ClusterPlan) -> Table:
    title = f"pods of {name} on {counted(plan.gpus, 'GPU')}, estimated"
    headings = ("pods", "GPUs\neach", "tokens", "pod-hours", "GPU-hours", "wall-clock", plan.currency)
    table = number_table(title, ["step"], headings)
    for phase in prediction.phases:
        table.add_row(
            phase.name,
            str(phase.pods),
            str(phase.pod_gpus) if phase.pod_gpus else MISSING,
            _count(phase.tokens) if phase.tokens else MISSING,
            _hours(phase.pod_seconds),
            _hours(phase.gpu_seconds) if phase.pod_gpus else MISSING,
            duration(phase.wall_seconds),
            f"{phase.price:,.2f}",
        )
    table.add_section()
    held = sum(prediction.gpu_seconds.values())
    wall, price = duration(prediction.wall_seconds), f"{sum(one.price for one in prediction.phases):,.2f}"
    pods = sum(phase.pods for phase in prediction.phases)
    hours = sum(prediction.seconds.values())
    table.add_row("all", str(pods), "", "", _hours(hours), _hours(held), wall, price)
    return table


def _side_by_side(plan: ClusterPlan) -> Table:
    found = [row for row in ROWS if row in plan.mu_grpo.gpu_seconds or row in plan.grpo.gpu_seconds]

    def cells(one: Prediction) -> dict[str, str]:
        held = sum(one.gpu_seconds.values())
        return {
            "wall-clock": duration(one.wall_seconds),
            "GPU-hours": _hours(held),
            **{f"  {label(row)}": _hours(one.gpu_seconds[row]) if row in one.gpu_seconds else MISSING for row in found},
            "GPU-hours of idle GPUs": _hours(plan.gpus * one.wall_seconds - held),
            **_counts(one),
            "generated tokens/s, per GPU": f"{one.generated_tokens / one.gpu_seconds['generate']:,.0f}",
            "trained tokens/s, per GPU": f"{one.trained_tokens / one.gpu_seconds['optimize']:,.0f}",
            plan.currency: f"{sum(one.price.values()):,.2f}",
            "speed": f"{plan.grpo.wall_seconds / one.wall_seconds:.2f}x",
        }

    return _beside(f"Mu-GRPO beside GRPO on {counted(plan.gpus, 'GPU')}, the same updates, estimated", plan, cells)


def _seconds(plan: ClusterPlan) -> Table:
    from tasks.report.ledger import training_seconds  # with numpy

    found = [row for row in ROWS if row in plan.mu_grpo.seconds or row in plan.grpo.seconds]

    def cells(one: Prediction) -> dict[str, str]:
        return {
            "wall-clock": duration(one.wall_seconds),
            **{f"  {label(row)}": duration(one.seconds[row]) if row in one.seconds else MISSING for row in found},
            "training": duration(training_seconds({str(row): seconds for row, seconds in one.seconds.items()})),
            **_counts(one),
        }

    return _beside("Mu-GRPO beside GRPO in one process, the same updates, estimated", plan, cells)


def _counts(one: Prediction) -> dict[str, str]:
    return {
        "updates": _count(one.updates),
        "generated tokens": _count(one.generated_tokens),
        "refreshes inside a task": _count(one.refreshes),
    }


def _storage(plan: ClusterPlan) -> Table:
    def cells(one: Prediction) -> dict[str, str]:
        found = {
            "policies, with AdamW's moments": one.policy_bytes,
            "rollouts": one.kept_bytes - one.policy_bytes,
            "kept": one.kept_bytes,
            "besides, while a stage trains": one.unfinished_bytes,
            "written": one.written_bytes,
        }
        if plan.gpus:  # without a pool nothing is read from the store that this machine wrote
            found["read"] = one.read_bytes
        return {name: decimal(int(size), precision=1) for name, size in found.items()}

    return _beside("storage and traffic, estimated", plan, cells)


def _price(plan: ClusterPlan) -> Table:
    def cells(one: Prediction) -> dict[str, str]:
        return {name: f"{price:,.2f}" for name, price in {**one.price, "all": sum(one.price.values())}.items()}

    return _beside(f"price in {plan.currency}, estimated", plan, cells)


def _assumptions(plan: ClusterPlan) -> Table:
    table = number_table("what this rests on", ("", "value", "source"), ())
    table.add_column("", style="dim")
    for one in plan.assumptions:
        color = _COLORS[one.source]
        table.add_row(one.name, one.value, f"[{color}]{one.source}[/]" if color else one.source, one.note)
    return table


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}"


def _count(number: float) -> str:
    """``1.34 G``, ``12.5 M``, ``4,096``."""
    for factor, unit in ((1e9, "G"), (1e6, "M")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:,.0f}"
