"""The plan of a run: predictions for Mu-GRPO and for GRPO, with the assumptions behind them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.cluster.measured import measure_rates
from tasks.cluster.memory import check_training_fits, format_memory
from tasks.cluster.rates import Pool, Rates, assumed_rates, pool_of
from tasks.cluster.shapes import KNOWN, Shape, shape_of
from tasks.cluster.steps import Prediction, predict
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.cost import CostSettings, Source
from tasks.settings.deployment import VARIABLE, DeploymentSettings

_PRICES = Path(__file__).parents[2] / "configs/prices.yaml"


@dataclass(frozen=True)
class Assumption:
    """A number that a prediction uses, with its source."""

    name: str
    value: str
    source: Source
    note: str = ""


@dataclass(frozen=True)
class ClusterPlan:
    """Two predictions for the same updates. ``gpus`` is 0 for one process on this machine."""

    gpus: int
    currency: str
    mu_grpo: Prediction
    grpo: Prediction
    assumptions: Sequence[Assumption]


def plan_cluster(
    run: RunSettings,
    stages: int,
    gpus: int,
    accelerator: str | None = None,
    prices: Path | None = None,
    store: str | None = None,
) -> ClusterPlan:
    """Predict a run on a number of GPUs, or in one process on this machine.

    Args:
        run: settings of the run.
        stages: number of stages of the workflow.
        gpus: number of GPUs of the cluster; 0 for one process on this machine.
        accelerator: row of the prices; None means that of the deployment, or the first row.
        prices: file with prices and assumptions; None means that of this project.
        store: folder or S3 prefix of a store. The rates of its run replace the assumed rates.

    Raises:
        SettingsError: the settings do not fit the GPUs, or the shape of the policy or the accelerator is unknown.
        DataError: the run of the store has another policy, engine or backend.
        ArtifactError: there is no store, or it is damaged.
    """
    shape = shape_of(run.policy)
    if shape is None:
        raise SettingsError(
            f"policy.path: the shape of {run.policy.path!r} is not known here; allowed: a folder with the model, or "
            f"{', '.join(KNOWN)}"
        )
    if gpus == 0 and store is None:
        raise SettingsError(
            "gpus: 0 means one process on this machine. Its speed is taken from a finished run: add --measured STORE."
        )
    if gpus == 0 and accelerator is not None:
        raise SettingsError(f"accelerator: {accelerator!r} with gpus 0; allowed: none")
    prices = prices or Path(os.path.relpath(_PRICES))
    costs = CostSettings.read(prices)
    deployment = DeploymentSettings.current() if gpus and os.environ.get(VARIABLE) else None
    pool = pool_of(run, gpus, accelerator, costs, deployment)
    lines = [Assumption("prices", str(prices), "given", "examples, unless the file is yours")]
    lines += _pool_assumptions(run, shape, pool) if gpus else ()
    if store is None:
        rates, grpo_rates = (assumed_rates(run, shape, pool, role) for role in ("rollout", "train"))
    else:
        from tasks.store import Store

        rates, name = measure_rates(run, Store.open(store, create=False), pool)
        lines.append(Assumption("rates", name, "measured", store))
        grpo_rates = rates
    lines += _rate_assumptions(grpo_rates if run.alternates else rates, pool)
    mu_grpo = predict(run, stages, shape, rates, pool, alternating=False)
    grpo = predict(run, stages, shape, grpo_rates, pool, alternating=True)
    return ClusterPlan(gpus, costs.currency, mu_grpo, grpo, tuple(lines))


def _pool_assumptions(run: RunSettings, shape: Shape, pool: Pool) -> Iterator[Assumption]:
    for role, pod in pool.pods.items():
        paid = "spot" if pod.interruptible else "on demand"
        yield Assumption(f"pod of {role}", f"{pod.gpus} x {pod.accelerator}", "given", paid)
    routed = f", {shape.active_parameters / 1e9:.2f} B for a token" if shape.idle_parameters else ""
    yield Assumption("policy", f"{shape.parameters / 1e9:.2f} B parameters{routed}", "given", run.policy.path or "tiny")
    memory, room = check_training_fits(run, shape, pool), pool.gpu("train").memory_gb
    used = f"{sum(memory.values()) / 1e9:.1f} of {room:g} GB"
    yield Assumption("training, per GPU", used, "given", f"at least: {format_memory(memory)}")
    yield Assumption("interruptions", "none", "assumed", "work that spot nodes lose comes on top")


def _rate_assumptions(rates: Rates, pool: Pool) -> Iterator[Assumption]:
    # Speeds that were not measured have the source of their accelerator.
    speed: Source = "measured" if rates.measured else pool.gpu("rollout").throughput.source
    yield Assumption("rows decoded at once", str(rates.rollout.rows), "given", "rollout.engine.batch_size, if it fits")
    for name, seconds in (
        ("decode step", rates.rollout.step),
        ("decode step, per row", rates.rollout.row),
        ("decode step, evaluation", rates.evaluate.step),
        ("update, per token", rates.trained_token),
        ("log-probability", rates.scored_token),
    ):
        yield Assumption(name, f"{1000 * seconds:.3g} ms", speed)
    for name, value in rates.amounts:
        yield Assumption(name, f"{value:.3g}", "measured" if name in rates.measured else "assumed")
