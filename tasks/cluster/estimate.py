"""Time, storage and price of a run, as Mu-GRPO and as GRPO with the same updates."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.cluster.gpus import Pool
from tasks.cluster.rates import Rates
from tasks.cluster.shapes import Shape
from tasks.cluster.steps import ROWS, PolicyBytes, Row, Step, Steps
from tasks.settings import RunSettings

_GB = 1e9
_GRPO_MU = 4
"""Updates per rollout of the paper's baseline, and of configs/tiny-cpu-grpo.yaml."""
_REQUEST = 8 * 2**20
"""Bytes of a request: the store moves large files in parts of this size."""


@dataclass(frozen=True)
class Phase:
    """All pods of one kind of step."""

    name: str
    pods: int
    pod_gpus: int
    """GPUs of each pod."""
    tokens: float
    """Tokens that are generated, or trained on; 0 for other steps."""
    pod_seconds: float
    gpu_seconds: float
    wall_seconds: float
    """Seconds during which at least one of the pods runs."""
    price: float


@dataclass(frozen=True)
class Prediction:
    """What one of the two workflows takes."""

    mu: int
    wall_seconds: float
    seconds: dict[Row, float]
    """Seconds of all pods, by row; for one process the rows of the run's ledger."""
    gpu_seconds: dict[Row, float]
    """Seconds times the GPUs of the pod, by row."""
    phases: list[Phase]
    updates: int
    generated_tokens: float
    trained_tokens: float
    engine_starts: int
    refreshes: int
    """Rollouts inside one task, each of which brings new weights to the engine."""
    policy_bytes: float
    """Bytes of policies, with AdamW's moments."""
    kept_bytes: float
    """Bytes that stay: policies and rollouts."""
    unfinished_bytes: float
    """Largest size of the checkpoints of a stage, which are deleted when the stage ends."""
    read_bytes: float
    written_bytes: float
    price: dict[str, float]
    """Prices by what is paid for; empty for one process."""


def baseline_mu(run: RunSettings) -> int:
    """Return the updates per rollout of the baseline: the run's own, or as close to 4 as divides a stage."""
    if run.updates_per_rollout is not None:
        return run.updates_per_rollout
    step = run.optimize.objective.schedule.updates_per_batch
    return max(mu for mu in range(step, max(step, _GRPO_MU) + 1, step) if run.updates_per_stage % mu == 0)


def predict(
    run: RunSettings, stages: int, shape: Shape, rates: Rates, pool: Pool | None, alternating: bool
) -> Prediction:
    """Return what a run takes.

    Args:
        run: the settings of the run.
        stages: the number of stages.
        shape: the shape of the policy.
        rates: seconds of its units of work.
        pool: GPUs and pods; None for one process on this machine.
        alternating: whether generation and training take turns in one task (``grpo``), or are steps (``mu_grpo``).
    """
    found = Steps(run, stages, shape, rates, pool)
    mu = baseline_mu(run) if alternating else run.updates_per_stage
    steps = found.alternating(mu) if alternating else found.staged()
    evaluations = next(step.pods for step in steps if step.name == "evaluate") if pool else stages + 1
    if not alternating:
        generating = stages * run.shards if pool else 0  # one process goes on with the engine of the evaluation
    else:
        generating = 0 if run.rollout.engine.kind == "transformers" else stages * found.engines
    stored = PolicyBytes.of(run, shape)
    unfinished = run.updates_per_stage > run.operation.updates_per_checkpoint
    return Prediction(
        mu=mu,
        wall_seconds=_wall(steps, pool),
        seconds=_rows(steps, gpus=False),
        gpu_seconds=_rows(steps, gpus=True),
        phases=[_phase(step, pool) for step in steps],
        updates=stages * run.updates_per_stage,
        generated_tokens=stages * run.responses_per_stage * found.mean,
        trained_tokens=next(step.tokens for step in steps if step.role == "train"),
        engine_starts=generating + evaluations,
        refreshes=stages * run.updates_per_stage // mu if alternating else 0,
        policy_bytes=stored.base + stages * (stored.weights + stored.moments),
        kept_bytes=sum(step.kept for step in steps),
        unfinished_bytes=(run.operation.checkpoints_kept + 1) * stored.state if unfinished else 0.0,
        read_bytes=sum(step.read for step in steps),
        written_bytes=sum(step.written for step in steps),
        price=_price(steps, pool) if pool else {},
    )


def _wall(steps: Sequence[Step], pool: Pool | None) -> float:
    """Return the seconds from the start to the end of a run.

    Steps of a stage follow each other, and a stage waits for the evaluation of the one before. The base policy is
    fetched beside benchmarks and training set, and evaluated beside the first stage, which waits for its GPUs.
    """
    if pool is None:
        return sum(step.pod_seconds for step in steps)
    of = {step.name: step for step in steps}
    evaluate, average, prompts = of["evaluate"], of["average"], of["prompts"]
    policies = average.pods
    beside = min(of["policy"].wall_seconds, 2 * prompts.pod_seconds / prompts.pods)
    beside += (evaluate.wall_seconds + average.wall_seconds) / policies
    waiting = evaluate.gpu_seconds / policies / pool.gpus
    return sum(step.wall_seconds for step in steps) - beside + waiting


def _rows(steps: Sequence[Step], gpus: bool) -> dict[Row, float]:
    rows = {row: sum(step.seconds.get(row, 0.0) * (step.pod_gpus if gpus else 1) for step in steps) for row in ROWS}
    return {row: seconds for row, seconds in rows.items() if seconds}


def _phase(step: Step, pool: Pool | None) -> Phase:
    price = pool.price(step.role, step.pod_seconds) if pool else 0.0
    sizes = step.name, step.pods, step.pod_gpus, step.tokens
    return Phase(*sizes, step.pod_seconds, step.gpu_seconds, step.wall_seconds, price)


def _price(steps: Sequence[Step], pool: Pool) -> dict[str, float]:
    storage = pool.costs.storage
    kept, read, written = (sum(getattr(step, name) for step in steps) for name in ("kept", "read", "written"))
    requests = (written * storage.per_1000_puts + read * storage.per_1000_gets) / _REQUEST / 1000
    stored = kept / _GB * storage.gb_month * storage.months
    paid = {"GPUs, spot": 0.0, "GPUs, on demand": 0.0, "CPU pods": 0.0}
    for step in steps:
        kind = "CPU pods" if not step.pod_gpus else "GPUs, spot" if step.role in pool.spot else "GPUs, on demand"
        paid[kind] += pool.price(step.role, step.pod_seconds)
    return {**paid, "storage and traffic": stored + requests + read / _GB * storage.egress_gb}
