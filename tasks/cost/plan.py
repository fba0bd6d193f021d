"""The cluster part of a plan: what a run takes, as Mu-GRPO and as GRPO, and what that rests on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.cost.assumptions import Assumption, assumed, cluster_assumptions, measured, switching
from tasks.cost.estimate import Estimator, Prediction
from tasks.cost.jobs import Layout
from tasks.cost.measured import Measured, measure
from tasks.cost.memory import check_training_fits
from tasks.cost.pool import GPU_ROLES, current_deployment, pool_of
from tasks.cost.rates import assumed_rates
from tasks.cost.shapes import KNOWN, shape_of
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.cost import CostSettings

PRICES = Path("configs/prices.yaml")


@dataclass(frozen=True)
class ClusterPlan:
    """Two predictions of the same updates."""

    gpus: int
    """0 for one process on this machine."""
    currency: str
    mu_grpo: Prediction
    grpo: Prediction
    assumptions: Sequence[Assumption]


def plan_cluster(
    run: RunSettings,
    stages: int,
    gpus: int,
    accelerator: str | None = None,
    prices: Path = PRICES,
    store: str | None = None,
) -> ClusterPlan:
    """Predicts a run on a number of GPUs, or in one process on this machine.

    Args:
        run: its settings.
        stages: of the workflow.
        gpus: of the cluster; 0 for one process.
        accelerator: a row of the prices; that of the deployment, or the first, without it.
        prices: the file with prices and assumptions.
        store: a folder or S3 prefix with a run whose rates are taken instead of the assumed ones.

    Raises:
        SettingsError: the settings do not fit the GPUs, or something is not known.
        DataError: the store's run says nothing about this one.
        ArtifactError: there is no store, or it is damaged.
    """
    shape = shape_of(run.policy)
    if shape is None:
        raise SettingsError(
            f"policy.path: the shape of {run.policy.path!r} is not known here; allowed: a folder with the model, or "
            f"{', '.join(KNOWN)}"
        )
    costs = CostSettings.read(prices)
    runs = _measured(run, store, costs)
    if gpus == 0:
        if runs is None:
            raise SettingsError("gpus: 0 is one process on this machine, whose speed a run must tell: add --measured.")
        if accelerator is not None:
            raise SettingsError(f"accelerator: {accelerator!r} with gpus 0; allowed: none")
        estimator = Estimator(run, stages, shape, Layout(0, training_gpus=run.optimize.backend.processes))
        lines = [Assumption("place", "one process on this machine", "given"), *measured(runs[0])]
        lines.append(Assumption("start of the process", f"{runs[0].rates.start:.1f} s", "measured"))
        rates, baseline = runs[0].rates, runs[1].rates
    else:
        pool = pool_of(run, gpus, accelerator, costs, current_deployment())
        memory = check_training_fits(run, shape, pool)
        estimator = Estimator(run, stages, shape, pool.layout, pool)
        lines = list(cluster_assumptions(run, shape, memory, pool, str(prices)))
        if runs is None:
            each = {role: pool.gpu(role) for role in GPU_ROLES}
            rates = baseline = assumed_rates(run, shape, each, pool.layout.training_gpus, costs.assumptions)
            lines += assumed(run, rates, pool, costs)
        else:
            pod = costs.assumptions.pod_start_seconds
            rates, baseline = (replace(one.rates, start=one.rates.start + pod) for one in runs)
            lines += measured(runs[0])
            lines.append(Assumption("start of a pod", f"{rates.start:.1f} s", "assumed", f"{pod:g} s besides imports"))
    lines += switching(baseline, runs[1] if runs else None, run)
    return ClusterPlan(gpus, costs.currency, estimator.staged(rates), estimator.alternating(baseline), tuple(lines))


def _measured(run: RunSettings, store: str | None, costs: CostSettings) -> tuple[Measured, Measured] | None:
    """Runs of both kinds; the same run twice where the store has only one kind."""
    if store is None:
        return None
    from tasks.artifacts import Store

    opened = Store.open(store, create=False)
    return measure(run, opened, False, costs.assumptions), measure(run, opened, True, costs.assumptions)
