"""What a run takes, as Mu-GRPO and as GRPO with the same updates."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.cost.files import Stored, Traffic, total
from tasks.cost.jobs import ROWS, STEPS, Counts, Job, Layout, Row
from tasks.cost.pool import Pool
from tasks.cost.rates import Rates
from tasks.cost.schedule import Interval, length, on_pool, one_after_the_other
from tasks.cost.shapes import Shape
from tasks.cost.work import Work
from tasks.settings import RunSettings

_GB = 1e9
_GRPO_MU = 4
"""Updates per rollout of the paper's baseline, and of configs/tiny-cpu-grpo.yaml."""


@dataclass(frozen=True)
class Phase:
    """All pods of one kind of step."""

    name: str
    pods: int
    pod_gpus: int
    """GPUs of each."""
    tokens: float
    """Generated, or trained on; 0 where neither."""
    pod_seconds: float
    gpu_seconds: float
    wall_seconds: float
    """During which at least one of the pods runs."""
    price: float


@dataclass(frozen=True)
class Prediction:
    """What one of the two workflows takes."""

    mu: int
    wall_seconds: float
    seconds: dict[Row, float]
    """Of all pods, by row; in one process those of the run's ledger."""
    gpu_seconds: dict[Row, float]
    """The same, times the GPUs that a pod holds."""
    phases: list[Phase]
    counts: Counts
    traffic: Traffic
    policy_bytes: float
    """Of what is kept, policies with AdamW's moments."""
    unfinished_bytes: float
    """Most that states of a stage that trains take besides what is kept."""
    price: dict[str, float]
    """By what is paid for; empty without a cluster."""


def baseline_mu(run: RunSettings) -> int:
    """Updates per rollout of the near-on-policy baseline: the run's own, or as close to 4 as divides a stage."""
    if run.updates_per_rollout is not None:
        return run.updates_per_rollout
    step = run.optimize.objective.schedule.updates_per_batch
    return max(mu for mu in range(step, max(step, _GRPO_MU) + 1, step) if run.updates_per_stage % mu == 0)


class Estimator:
    """Predicts one run.

    Args:
        run: its settings.
        stages: of the workflow.
        shape: of the policy.
        layout: of pods.
        pool: GPUs and prices; None where all steps share a process.
    """

    def __init__(self, run: RunSettings, stages: int, shape: Shape, layout: Layout, pool: Pool | None = None) -> None:
        self._run, self._stages, self._shape = run, stages, shape
        self._layout, self._pool = layout, pool

    def staged(self, rates: Rates) -> Prediction:
        """``mu_grpo``."""
        jobs = self._work(rates).staged(self._stages)
        return self._predicted(self._run.updates_per_stage, jobs, rates)

    def alternating(self, rates: Rates) -> Prediction:
        """``grpo``, with as many parts as there are stages."""
        mu = baseline_mu(self._run)
        return self._predicted(mu, self._work(rates).alternating(self._stages, mu), rates)

    def _work(self, rates: Rates) -> Work:
        return Work(self._run, self._shape, rates, self._layout)

    def _predicted(self, mu: int, jobs: list[Job], rates: Rates) -> Prediction:
        pool, stored = self._pool, Stored(self._run, self._shape, rates)
        times = on_pool(jobs, self._layout.gpus, pool.most_pods) if pool else one_after_the_other(jobs)
        updates, every = self._run.updates_per_stage, self._run.operation.updates_per_checkpoint
        states = self._run.operation.checkpoints_kept + 1 if updates > every else 0
        traffic = total([job.traffic for job in jobs])
        return Prediction(
            mu=mu,
            wall_seconds=max(end for _, end in times.values()),
            seconds=_rows(jobs, gpus=False),
            gpu_seconds=_rows(jobs, gpus=True),
            phases=[
                _phase(step, same, [times[job.name] for job in same], pool)
                for step in STEPS
                if (same := [job for job in jobs if job.step == step])
            ],
            counts=sum((job.counts for job in jobs), Counts()),
            traffic=traffic,
            policy_bytes=sum(sum(stored.trained(stage)) for stage in range(self._stages + 1)),
            unfinished_bytes=states * sum(stored.state()),
            price=_price(jobs, traffic, pool) if pool else {},
        )


def _rows(jobs: Sequence[Job], gpus: bool) -> dict[Row, float]:
    rows = {row: sum(job.seconds.get(row, 0.0) * (job.gpus if gpus else 1) for job in jobs) for row in ROWS}
    return {row: seconds for row, seconds in rows.items() if seconds}


def _phase(name: str, jobs: Sequence[Job], times: Sequence[Interval], pool: Pool | None) -> Phase:
    return Phase(
        name=name,
        pods=len(jobs),
        pod_gpus=jobs[0].gpus,
        tokens=sum(job.counts.generated_tokens or job.counts.trained_tokens for job in jobs),
        pod_seconds=sum(job.length for job in jobs),
        gpu_seconds=sum(job.length * job.gpus for job in jobs),
        wall_seconds=length(times),
        price=sum(map(pool.price, jobs)) if pool else 0.0,
    )


def _price(jobs: Sequence[Job], traffic: Traffic, pool: Pool) -> dict[str, float]:
    storage = pool.costs.storage
    spot = [job for job in jobs if job.gpus and job.role in pool.spot]
    on_demand = [job for job in jobs if job.gpus and job.role not in pool.spot]
    return {
        "GPUs, spot": sum(map(pool.price, spot)),
        "GPUs, on demand": sum(map(pool.price, on_demand)),
        "CPU pods": sum(pool.price(job) for job in jobs if not job.gpus),
        "storage": traffic.kept / _GB * storage.gb_month * storage.months,
        "requests": (traffic.puts * storage.per_1000_puts + traffic.gets * storage.per_1000_gets) / 1000,
        "egress": traffic.read / _GB * storage.egress_gb,
    }
