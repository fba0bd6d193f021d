"""The plan of a run: what it takes, as Mu-GRPO and as GRPO, and the numbers that this rests on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.cluster.estimate import Prediction, predict
from tasks.cluster.gpus import GPU_ROLES, Pool, current_deployment, pool_of
from tasks.cluster.measured import Measured, measure
from tasks.cluster.memory import TrainingMemory, check_training_fits
from tasks.cluster.rates import Rates, assumed_rates
from tasks.cluster.shapes import KNOWN, Shape, shape_of
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.cost import CostSettings, Source

PRICES = Path("configs/prices.yaml")


@dataclass(frozen=True)
class Assumption:
    """A number that a prediction uses, and where it comes from."""

    name: str
    value: str
    source: Source
    note: str = ""


@dataclass(frozen=True)
class ClusterPlan:
    """Two predictions of the same updates."""

    gpus: int
    """Number of GPUs; 0 for one process on this machine."""
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
    """Predict a run on a number of GPUs, or in one process on this machine.

    Args:
        run: the settings of the run.
        stages: the number of stages of the workflow.
        gpus: the number of GPUs of the cluster; 0 for one process.
        accelerator: a row of the prices; by default that of the deployment, or the first row.
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
    runs, pool = _measured(run, store, costs), None
    if gpus == 0:
        if runs is None:
            raise SettingsError("gpus: 0 is one process on this machine, whose speed a run must tell: add --measured.")
        if accelerator is not None:
            raise SettingsError(f"accelerator: {accelerator!r} with gpus 0; allowed: none")
        lines = [Assumption("place", "one process on this machine", "given")]
    else:
        pool = pool_of(run, gpus, accelerator, costs, current_deployment())
        lines = list(_given(run, shape, check_training_fits(run, shape, pool), pool, str(prices)))
    source: Source = "measured" if runs else "assumed"
    if runs is None:
        assert pool is not None
        kinds = {role: pool.gpu(role) for role in GPU_ROLES}
        rates = baseline = assumed_rates(run, shape, kinds, pool.training_gpus, costs.assumptions)
        lines += _assumed(run, costs)
    else:
        pod = costs.assumptions.pod_start_seconds if pool else 0.0
        rates, baseline = (replace(one.rates, start=one.rates.start + pod) for one in runs)
        lines.append(Assumption("run", runs[0].name, "measured", runs[0].report))
    of_the_table = None if runs or pool is None else pool.gpu("rollout").throughput.source
    lines += _of(rates, source, of_the_table)
    turned = runs is not None and runs[1].alternating
    of_switch = f"{runs[1].report}: {runs[1].name}; its other rates too" if runs and turned else ""
    lines.append(Assumption("grpo, switch", f"{baseline.switch:.3g} s", "measured" if turned else "assumed", of_switch))
    return ClusterPlan(
        gpus,
        costs.currency,
        predict(run, stages, shape, rates, pool, alternating=False),
        predict(run, stages, shape, baseline, pool, alternating=True),
        tuple(lines),
    )


def _measured(run: RunSettings, store: str | None, costs: CostSettings) -> tuple[Measured, Measured] | None:
    """Return runs of both kinds; the same run twice if the store has only one kind."""
    if store is None:
        return None
    from tasks.artifacts import Store

    opened = Store.open(store, create=False)
    return measure(run, opened, False, costs.assumptions), measure(run, opened, True, costs.assumptions)


def _given(run: RunSettings, shape: Shape, memory: TrainingMemory, pool: Pool, prices: str) -> Iterator[Assumption]:
    """Yield GPUs, their memory, pods and prices."""
    for role in GPU_ROLES:
        paid = "spot" if role in pool.spot else "on demand"
        yield Assumption(f"pod of {role}", f"{pool.pods[role]} x {pool.accelerators[role]}", "given", paid)
    routed = f", {shape.active_parameters / 1e9:.2f} B for a token" if shape.idle_parameters else ""
    yield Assumption("policy", f"{shape.parameters / 1e9:.2f} B parameters{routed}", "given", run.policy.path or "tiny")
    kept, room = memory.describe("weights", "gradients", "moments"), pool.gpu("train").memory_gb
    yield Assumption("training, per GPU", f"{memory.lasting / 1e9:.1f} of {room:g} GB", "given", kept)
    added = f"{memory.describe('activations', 'logits')}; at least"
    yield Assumption("micro-batch, per GPU", f"{memory.passing / 1e9:.1f} GB", "given", added)
    yield Assumption("prices", prices, "given", "examples, unless the file is yours")
    yield Assumption("interruptions", "none", "assumed", "work that spot nodes lose comes on top")


def _assumed(run: RunSettings, costs: CostSettings) -> Iterator[Assumption]:
    """Yield what assumed rates rest on besides themselves."""
    share, longest = costs.assumptions.response_share, run.rollout.max_new_tokens
    yield Assumption("longest response", f"{longest} tokens", "assumed", f"of every call; {share:g} of it on average")
    yield Assumption("store", f"{costs.assumptions.store_gb_per_second:g} GB/s", "assumed", "of a pod")
    yield Assumption("hub", f"{costs.assumptions.hub_gb_per_second:g} GB/s", "assumed")


def _of(rates: Rates, source: Source, of_the_table: Source | None) -> Iterator[Assumption]:
    """Yield the rates; those that follow from a row of accelerators have the source of that row."""
    speed, engine, other = of_the_table or source, rates.rollout, rates.evaluate
    yield Assumption("mean response", f"{rates.response_tokens:.4g} tokens", source)
    yield Assumption("mean prompt", f"{rates.prompt_tokens:g} tokens", source, "0: in the rates of its responses")
    yield Assumption("rows at once", str(engine.rows), "given", "rollout.engine.batch_size, and what fits")
    for name, seconds, of in (
        ("decode step", engine.step, speed),
        ("decode step, per row", engine.row, speed),
        ("decode step, evaluation", other.step, speed),
        ("update, per token", rates.trained_token, speed),
        ("log-probability", rates.scored_token, speed),
        ("update, besides", rates.update, source),
        ("answer", rates.answer, source),
        ("start of the verifier", rates.verifier, source),
        ("start of a pod", rates.start, source),
        ("start of an engine", rates.engine, source),
        ("start of the trainer", rates.trainer, source),
        ("besides, per step", rates.rest, source),
    ):
        yield Assumption(name, f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s", of)
