"""Time, storage and price of a run, as Mu-GRPO and as GRPO with the same updates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from tasks.cluster.gpus import Pool
from tasks.cluster.rates import EngineRates, Rates, passes
from tasks.cluster.shapes import BYTES, Shape
from tasks.data.arithmetic import split
from tasks.settings import RunSettings
from tasks.settings.deployment import Role
from tasks.settings.evaluate import Measure

Row = Literal["start", "warm_start", "load", "generate", "verify", "optimize", "switch", "evaluate", "transfer", "rest"]
ROWS: tuple[Row, ...] = get_args(Row)
"""Rows of a run's ledger, with the transfer of policies and rollouts beside the rest."""
_GB, _GRPO_MU = 1e9, 4
"""Updates per rollout of the paper's baseline, and of configs/tiny-cpu-grpo.yaml."""
_REQUEST = 8 * 2**20
"""Bytes of a request: the store moves large files in parts of this size."""


@dataclass(frozen=True)
class Phase:
    """All pods of one kind of step, in a whole run; without a cluster, all steps of that kind in one process."""

    name: str
    role: Role
    pods: int
    pod_gpus: int
    """GPUs of each pod."""
    seconds: dict[Row, float]
    """Seconds of all pods together, by row."""
    pod_seconds: float
    gpu_seconds: float
    wall_seconds: float
    """Seconds during which at least one of the pods runs."""
    price: float
    tokens: float
    """Tokens that are generated, or trained on; 0 for other steps."""
    read: float
    """Bytes from the store."""
    written: float
    """Bytes to the store."""
    kept: float
    """Bytes of those written that stay when the step ends."""


@dataclass(frozen=True)
class Prediction:
    """Predicted time, resources and price of one workflow."""

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


def predict(
    run: RunSettings, stages: int, shape: Shape, rates: Rates, pool: Pool | None, alternating: bool
) -> Prediction:
    """Return what a run takes.

    Pods that take seconds of a CPU (prompts, means, the report) are below 1 % of its time and price, and left out.

    Args:
        run: the settings of the run.
        stages: the number of stages.
        shape: the shape of the policy.
        rates: seconds of its units of work.
        pool: GPUs and pods; None for one process on this machine.
        alternating: whether generation and training take turns in one task (``grpo``), or are steps (``mu_grpo``).
    """
    mu = baseline_mu(run) if alternating else run.updates_per_stage
    steps = _Steps(run, stages, shape, rates, pool)
    phases = [steps.policy(), *(steps.alternating(mu) if alternating else steps.staged()), steps.evaluate()]
    unfinished = run.updates_per_stage > run.operation.updates_per_checkpoint
    return Prediction(
        mu=mu,
        wall_seconds=sum(phase.wall_seconds for phase in phases),
        seconds=_rows(phases, gpus=False),
        gpu_seconds=_rows(phases, gpus=True),
        phases=phases,
        updates=stages * run.updates_per_stage,
        generated_tokens=stages * run.responses_per_stage * steps.mean,
        trained_tokens=next(phase.tokens for phase in phases if phase.role == "train"),
        refreshes=stages * run.updates_per_stage // mu if alternating else 0,
        policy_bytes=steps.base + stages * (steps.weights + steps.moments),
        kept_bytes=sum(phase.kept for phase in phases),
        unfinished_bytes=(run.operation.checkpoints_kept + 1) * steps.state if unfinished else 0.0,
        read_bytes=sum(phase.read for phase in phases),
        written_bytes=sum(phase.written for phase in phases),
        price=_price(phases, pool) if pool else {},
    )


def baseline_mu(run: RunSettings) -> int:
    """Return the updates per rollout of the baseline: the run's own, or as close to 4 as divides a stage."""
    if run.updates_per_rollout is not None:
        return run.updates_per_rollout
    step = run.optimize.objective.schedule.updates_per_batch
    return max(mu for mu in range(step, max(step, _GRPO_MU) + 1, step) if run.updates_per_stage % mu == 0)


def parts(prompts: int, responses_per_prompt: int, responses_per_part: int) -> list[int]:
    """Return the prompts of every call of an engine: whole groups of about ``responses_per_part`` responses."""
    return _cut(prompts, max(1, responses_per_part // responses_per_prompt))


def problems_of(run: RunSettings, measure: Measure) -> int:
    """Return the number of problems of a benchmark without fetching it; ``evaluate.problems`` if it is not known."""
    if measure.benchmark.problems is not None:
        return measure.benchmark.problems
    source = measure.benchmark.source
    if source is not None and source.arithmetic is not None:
        return len(split(list(source.arithmetic.levels), source.arithmetic.held_out_share)[1])
    return run.evaluate.problems


def answers_of(run: RunSettings, measure: Measure) -> int:
    """Return the number of responses of one evaluation."""
    return problems_of(run, measure) * (measure.evaluation.samples_per_problem + measure.evaluation.greedy)


class _Steps:
    """Counts the steps of a run.

    ``base``, ``weights``, ``moments`` and ``state`` are bytes: of the base policy as it is published, of a trained
    policy with its adapters in 32 bits, of AdamW's moments, and of a checkpoint inside a stage.
    """

    def __init__(self, run: RunSettings, stages: int, shape: Shape, rates: Rates, pool: Pool | None) -> None:
        self._run, self._stages, self._rates, self._pool = run, stages, rates, pool
        self._mean = rates.each.response_share * run.rollout.max_new_tokens
        self.mean = min(self._mean, float(run.rollout.max_new_tokens))
        """Tokens of a response on average."""
        number, lora = float(BYTES["float32"]), run.optimize.lora
        trained = shape.adapter_parameters(lora.rank) if lora else shape.parameters
        self.base, self.moments, self.state = shape.stored_bytes, 2 * number * trained, 3 * number * trained
        self.weights = number * (shape.parameters + (trained if lora else 0))
        self._rollouts = stages * rates.each.bytes_per_token * run.responses_per_stage * self.mean
        self._of_policies = self.base + (stages - 1) * self.weights
        """Bytes of the policies that the stages begin with."""

    def policy(self) -> Phase:
        """Return the step that fetches or makes the base policy."""
        fetched = self.base / _GB / self._rates.each.hub_gb_per_second
        seconds: dict[Row, float] = {"warm_start": self._rates.base} if self._run.policy.tiny else {"load": fetched}
        return self._phase("policy", "prefetch", 1, 1, seconds, written=self.base, kept=self.base)

    def staged(self) -> Iterator[Phase]:
        """Yield the steps of ``mu_grpo``: generation, verification and training are pods of their own."""
        run, rates, stages = self._run, self._rates, self._stages
        settings, group = run.rollout, run.rollout.responses_per_prompt
        shards = _cut(run.prompts.prompts_per_stage, run.prompts.prompts_per_shard)
        calls = [part for shard in shards for part in parts(shard, group, settings.responses_per_part)]
        seconds = sum(self._call(rates.rollout, part, group, settings.max_new_tokens) for part in calls)
        # In one process the evaluation of the policy has started its engine.
        load = len(shards) * rates.each.engine_start_seconds if self._pool else 0.0
        yield self._phase(
            "generate",
            "rollout",
            stages * len(shards),
            stages,
            {"load": stages * load, "generate": stages * seconds},
            tokens=stages * run.responses_per_stage * self.mean,
            read=len(shards) * self._of_policies,
            written=2 * self._rollouts,  # parts of a shard, then the whole
            kept=self._rollouts,
        )
        verified = stages * self._verified(run.responses_per_stage)
        yield self._phase("verify", "verify", stages, stages, {"verify": verified}, read=self._rollouts)
        yield self._train("optimize", 1, {}, read=self._rollouts)

    def alternating(self, mu: int) -> Iterator[Phase]:
        """Yield the step of ``grpo``: in a stage one pod generates, verifies and trains in turn.

        Args:
            mu: updates per rollout.
        """
        run, rates, stages = self._run, self._rates, self._stages
        group = run.rollout.responses_per_prompt
        refreshes = stages * run.updates_per_stage // mu
        # The engines of a pod generate side by side, and the refresh ends with the slowest of them.
        processes = self._pool.training_gpus if self._pool else run.optimize.backend.processes
        engines = max(1, processes // run.rollout.engine.tensor_parallel)
        prompts = -(-stages * run.responses_per_stage // (refreshes * group * engines))
        starts = 0 if run.rollout.engine.kind == "transformers" else stages  # transformers uses the trainer's weights
        seconds: dict[Row, float] = {
            "load": starts * rates.each.engine_start_seconds,
            "generate": refreshes * self._call(rates.rollout, prompts, group, run.rollout.max_new_tokens),
            "verify": stages * self._verified(run.responses_per_stage),
            "switch": refreshes * rates.each.switch_seconds,
        }
        yield self._train("alternate", mu, seconds, kept=self._rollouts)

    def evaluate(self) -> Phase:
        """Return the evaluations of all policies."""
        policies, run, seconds = self._stages + 1, self._run, 0.0
        for measure in run.measures:
            made = measure.evaluation
            for part in parts(problems_of(run, measure), made.samples_per_problem, made.responses_per_part):
                for each in (made.samples_per_problem, 1) if made.greedy else (made.samples_per_problem,):
                    seconds += self._call(self._rates.evaluate, part, each, made.max_new_tokens)
            seconds += self._verified(answers_of(run, measure))
        pods = policies * len(run.measures)
        # In one process all evaluations of a policy share an engine.
        load = (pods if self._pool else policies) * self._rates.each.engine_start_seconds
        read = len(run.measures) * (self._of_policies + self.weights)
        rows: dict[Row, float] = {"load": load, "evaluate": policies * seconds}
        return self._phase("evaluate", "evaluate", pods, policies, rows, read=read)

    def _train(
        self, name: str, saved_every: int, seconds: dict[Row, float], read: float = 0.0, kept: float = 0.0
    ) -> Phase:
        """Return the steps that train; checkpoints are written after multiples of ``saved_every`` updates."""
        run, rates, stages = self._run, self._rates, self._stages
        every = -(-run.operation.updates_per_checkpoint // saved_every) * saved_every
        checkpoints = stages * (-(-run.updates_per_stage // every) - 1)
        tokens = stages * run.responses_per_stage * (self.mean + rates.each.prompt_tokens)
        trained, scored = passes(run.optimize)
        kept += stages * (self.weights + self.moments)
        optimize = tokens * (trained * rates.trained_token + scored * rates.scored_token)
        optimize += stages * run.updates_per_stage * rates.each.update_seconds
        load = seconds.get("load", 0.0) + stages * rates.each.trainer_start_seconds
        return self._phase(
            name,
            "train",
            stages,
            stages,
            {**seconds, "load": load, "optimize": optimize, "rest": stages * rates.rest},
            tokens=tokens * trained,
            read=read + self._of_policies + (stages - 1) * self.moments,
            written=checkpoints * self.state + kept,
            kept=kept,
        )

    def _phase(
        self,
        name: str,
        role: Role,
        pods: int,
        tasks: int,
        seconds: dict[Row, float],
        tokens: float = 0.0,
        read: float = 0.0,
        written: float = 0.0,
        kept: float = 0.0,
    ) -> Phase:
        """Return a phase whose pods belong to as many ``tasks``, which follow each other."""
        pool, each, rounds = self._pool, self._rates.each, pods
        gpus = pool.pods.get(role, 0) if pool else 0
        if pool:
            at_once = min(pool.gpus // gpus if gpus else pool.most_pods, pool.most_pods)
            rounds = tasks * -(-(pods // tasks) // at_once)
        starts = pods if pool else int(name == "policy")  # one process starts once
        transfer = (read + written) / _GB / each.store_gb_per_second
        spent = {**seconds, "start": starts * each.pod_start_seconds, "transfer": transfer}
        rows = {row: spent[row] for row in ROWS if spent.get(row)}
        total = sum(rows.values())
        price = pool.price(role, total) if pool else 0.0
        wall = total * rounds / pods
        return Phase(name, role, pods, gpus, rows, total, total * gpus, wall, price, tokens, read, written, kept)

    def _verified(self, answers: int) -> float:
        each = self._rates.each
        return each.verifier_start_seconds + each.answer_seconds * answers / self._run.verify.workers

    def _call(self, engine: EngineRates, prompts: int, each: int, longest: int) -> float:
        mean = min(self._mean, float(longest))
        return engine.seconds(prompts * each, mean, longest, prompts * self._rates.each.prompt_tokens)


def _rows(phases: list[Phase], gpus: bool) -> dict[Row, float]:
    found = {row: sum(one.seconds.get(row, 0.0) * (one.pod_gpus if gpus else 1) for one in phases) for row in ROWS}
    return {row: seconds for row, seconds in found.items() if seconds}


def _price(phases: list[Phase], pool: Pool) -> dict[str, float]:
    storage = pool.costs.storage
    kept, read, written = (sum(getattr(phase, name) for phase in phases) for name in ("kept", "read", "written"))
    requests = (written * storage.per_1000_puts + read * storage.per_1000_gets) / _REQUEST / 1000
    stored = kept / _GB * storage.gb_month * storage.months
    paid = {"GPUs, spot": 0.0, "GPUs, on demand": 0.0, "CPU pods": 0.0}
    for phase in phases:
        kind = "CPU pods" if not phase.pod_gpus else "GPUs, spot" if phase.role in pool.spot else "GPUs, on demand"
        paid[kind] += phase.price
    return {**paid, "storage and traffic": stored + requests + read / _GB * storage.egress_gb}


def _cut(count: int, size: int) -> list[int]:
    return [min(size, count - start) for start in range(0, count, size)]
