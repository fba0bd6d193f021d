"""Prediction of the time, storage and price of a run, as Mu-GRPO and as GRPO with the same updates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from tasks.cluster.rates import EngineRates, Pool, Rates, passes
from tasks.cluster.shapes import BYTES, Shape
from tasks.data.arithmetic import split
from tasks.settings import EvaluationSettings, RunSettings
from tasks.settings.deployment import Role
from tasks.settings.evaluate import Measure

Row = Literal["start", "warm_start", "load", "generate", "verify", "optimize", "switch", "evaluate", "transfer", "rest"]
ROWS: tuple[Row, ...] = get_args(Row)
"""Rows of a run's ledger, with a separate row for the transfer of policies and rollouts."""
_GB = 1e9
_GRPO_MU = 4
"""mu of the paper's baseline, and of configs/tiny-cpu-grpo.yaml."""


@dataclass(frozen=True)
class Phase:
    """All pods of one kind of step in a run; without a cluster, all steps of this kind in one process."""

    name: str
    role: Role
    pods: int
    pod_gpus: int
    seconds: dict[Row, float]
    """Seconds of all pods together, by row."""
    pod_seconds: float
    gpu_seconds: float
    wall_seconds: float
    """Seconds during which at least one of the pods runs."""
    price: float
    tokens: float
    """Generated tokens, or tokens in training; 0 for other steps."""
    read: float
    """Bytes that are read from the store."""
    written: float
    """Bytes that are written to the store."""


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
    """Number of refreshes, each of which loads new weights into the engine."""
    policy_bytes: float
    """Bytes of policies, with AdamW's moments."""
    kept_bytes: float
    """Bytes of policies and rollouts, which stay in the store."""
    unfinished_bytes: float
    """Largest size of the checkpoints of a stage, which are deleted when the stage ends."""
    read_bytes: float
    written_bytes: float
    price: dict[str, float]
    """Prices of GPUs on spot nodes and on demand, and of storage and traffic; empty for one process."""


def predict(
    run: RunSettings, stages: int, shape: Shape, rates: Rates, pool: Pool | None, alternating: bool
) -> Prediction:
    """Predict a run on a pool, or in one process on this machine without a pool.

    With ``alternating``, generation and training alternate in one task (``grpo``). Otherwise they are separate steps
    (``mu_grpo``). CPU pods that take seconds (prompts, averages, the report) are below 1 % of the time, and left out.
    """
    mu, updates = baseline_mu(run) if alternating else run.updates_per_stage, stages * run.updates_per_stage
    steps = _Steps(run, stages, shape, rates, pool)
    phases = list(steps.phases(mu if alternating else None))
    unfinished = run.updates_per_stage > run.operation.updates_per_checkpoint
    policies = steps.base + stages * steps.trained
    kept = policies + steps.rollouts
    seconds = {row: sum(one.seconds.get(row, 0.0) for one in phases) for row in ROWS}
    on_gpus = {row: sum(one.seconds.get(row, 0.0) * one.pod_gpus for one in phases) for row in ROWS}
    return Prediction(
        mu=mu,
        wall_seconds=sum(phase.wall_seconds for phase in phases),
        seconds={row: spent for row, spent in seconds.items() if spent},
        gpu_seconds={row: spent for row, spent in on_gpus.items() if spent},
        phases=phases,
        updates=updates,
        generated_tokens=steps.generated,
        trained_tokens=next(phase.tokens for phase in phases if phase.role == "train"),
        refreshes=updates // mu if alternating else 0,
        policy_bytes=policies,
        kept_bytes=kept,
        unfinished_bytes=(run.operation.checkpoints_kept + 1) * steps.checkpoint if unfinished else 0.0,
        read_bytes=sum(phase.read for phase in phases),
        written_bytes=sum(phase.written for phase in phases),
        price=_price(phases, kept, pool) if pool else {},
    )


def baseline_mu(run: RunSettings) -> int:
    """Return mu of the baseline: the run's own value, or the largest value up to 4 that divides a stage."""
    if run.updates_per_rollout is not None:
        return run.updates_per_rollout
    step = run.optimize.objective.schedule.updates_per_batch
    return max(mu for mu in range(step, max(step, _GRPO_MU) + 1, step) if run.updates_per_stage % mu == 0)


def evaluation_calls(settings: EvaluationSettings, problems: int) -> list[tuple[int, int]]:
    """Return, for every call of an engine in an evaluation, the number of problems and of responses per problem."""
    samples = settings.samples_per_problem
    sizes = _chunk_sizes(problems, settings.problems_per_call)
    return [(size, each) for size in sizes for each in ((samples, 1) if settings.greedy else (samples,))]


def problem_count(run: RunSettings, measure: Measure) -> int:
    """Return the number of problems of a benchmark without a download; ``evaluate.problems`` if it is unknown."""
    source, most = measure.benchmark.source, measure.benchmark.problems
    if source is not None and source.arithmetic is not None:
        held_out = len(split(list(source.arithmetic.levels), source.arithmetic.held_out_share)[1])
        return min(held_out, most or held_out)
    return most or run.evaluate.problems


def evaluation_responses(run: RunSettings, measure: Measure) -> int:
    """Return the number of responses of one evaluation."""
    return problem_count(run, measure) * (measure.evaluation.samples_per_problem + measure.evaluation.greedy)


class _Steps:
    """Amounts of the steps of a run.

    These attributes are bytes:
        base: the base policy as published.
        weights: a trained policy with its adapters, in 32 bits.
        moments: AdamW's moments.
        trained: ``weights`` and ``moments``.
        checkpoint: a checkpoint inside a stage.
        rollouts: all rollouts.
    """

    def __init__(self, run: RunSettings, stages: int, shape: Shape, rates: Rates, pool: Pool | None) -> None:
        self._run, self._stages, self._rates, self._each, self._pool = run, stages, rates, rates.each, pool
        self._mean = rates.each.response_share * run.rollout.max_new_tokens
        """Mean tokens of a response without truncation."""
        self._responses = stages * run.responses_per_stage
        self.generated = self._responses * min(self._mean, float(run.rollout.max_new_tokens))
        """Tokens of all responses."""
        number, lora = float(BYTES["float32"]), run.optimize.lora
        trained = shape.adapter_parameters(lora.rank) if lora else shape.parameters
        self.base, self.moments, self.checkpoint = shape.stored_bytes, 2 * number * trained, 3 * number * trained
        self.weights = number * (shape.parameters + (trained if lora else 0))
        self.trained, self.rollouts = self.weights + self.moments, rates.each.bytes_per_token * self.generated
        self._of_policies = self.base + (stages - 1) * self.weights
        """Bytes of the policies at the start of all stages."""

    def phases(self, mu: int | None) -> Iterator[Phase]:
        """Yield the phases of ``mu_grpo`` if ``mu`` is None, else those of ``grpo``."""
        run, stages = self._run, self._stages
        base: dict[Row, float] = {"load": self.base / _GB / self._each.hub_gb_per_second}
        if run.policy.tiny:
            base = {"warm_start": self._rates.base}
        yield self._phase("policy", "prefetch", 1, 1, base, written=self.base)
        verify: dict[Row, float] = {"verify": stages * self._verification(run.responses_per_stage)}
        if mu is None:
            yield self._generate()
            yield self._phase("verify", "verify", stages, stages, verify, read=self.rollouts)
            yield self._train("optimize", 1, {}, read=self.rollouts)
        else:
            yield self._train("alternate", mu, {**verify, **self._refreshes(mu)}, written=self.rollouts)
        yield self._evaluate()

    def _phase(
        self,
        name: str,
        role: Role,
        tasks: int,
        pods: int,
        seconds: dict[Row, float],
        tokens: float = 0.0,
        read: float = 0.0,
        written: float = 0.0,
    ) -> Phase:
        """Return the phase of tasks that run one after the other, each with its share of the pods in parallel."""
        pool, each, gpus, hour, rounds = self._pool, self._each, 0, 0.0, pods
        starts = int(name == "policy")  # A single process starts once.
        if pool:
            starts, gpus, (_, hour) = pods, pool.gpus_of(role), pool.hour(role)
            at_once = min(pool.gpus // gpus if gpus else pool.most_pods, pool.most_pods)
            rounds = tasks * -(-(pods // tasks) // at_once)
        transfer = (read + written) / _GB / each.store_gb_per_second
        spent = {**seconds, "start": starts * each.pod_start_seconds, "transfer": transfer}
        rows = {row: spent[row] for row in ROWS if spent.get(row)}
        total = sum(rows.values())
        wall, price = total * rounds / pods, total / 3600 * hour
        return Phase(name, role, pods, gpus, rows, total, total * gpus, wall, price, tokens, read, written)

    def _generate(self) -> Phase:
        run, stages, settings = self._run, self._stages, self._run.rollout
        shards = _chunk_sizes(run.prompts.prompts_per_stage, run.prompts.prompts_per_shard)
        group = settings.responses_per_prompt
        calls = [part for shard in shards for part in _chunk_sizes(shard, settings.prompts_per_call)]
        each = sum(self._call(self._rates.rollout, part * group, settings.max_new_tokens) for part in calls)
        pods = stages * len(shards)
        # In one process, the evaluation of the policy has already started the engine.
        load = pods * self._each.engine_start_seconds if self._pool else 0.0
        seconds: dict[Row, float] = {"load": load, "generate": stages * each}
        read, written = len(shards) * self._of_policies, 2 * self.rollouts  # Parts of shards, then whole shards.
        return self._phase("generate", "rollout", stages, pods, seconds, self.generated, read, written)

    def _refreshes(self, mu: int) -> dict[Row, float]:
        """Return the seconds of generation in the training pods, with a refresh before every ``mu`` updates."""
        run, stages, engine = self._run, self._stages, self._run.rollout.engine
        group, refreshes = run.rollout.responses_per_prompt, stages * run.updates_per_stage // mu
        # The engines of a pod generate in parallel, and a refresh ends with the slowest engine.
        processes = self._pool.training_gpus if self._pool else run.optimize.backend.processes
        prompts = -(-self._responses // (refreshes * group * max(1, processes // engine.tensor_parallel)))
        # In one process, an engine without own weights uses the trainer's tensors.
        switches = self._pool or engine.own_weights or "switch_seconds" in self._rates.measured
        return {
            "load": stages * self._each.engine_start_seconds if engine.own_weights else 0.0,
            "generate": refreshes * self._call(self._rates.rollout, prompts * group, run.rollout.max_new_tokens),
            "switch": refreshes * self._each.switch_seconds if switches else 0.0,
        }

    def _evaluate(self) -> Phase:
        policies, run, each = self._stages + 1, self._run, 0.0
        for measure in run.measures:
            for problems, responses in evaluation_calls(measure.evaluation, problem_count(run, measure)):
                each += self._call(self._rates.evaluate, problems * responses, measure.evaluation.max_new_tokens)
            each += self._verification(evaluation_responses(run, measure))
        pods = policies * len(run.measures)
        # In one process, all evaluations of a policy share an engine.
        load = (pods if self._pool else policies) * self._each.engine_start_seconds
        seconds: dict[Row, float] = {"load": load, "evaluate": policies * each}
        read = len(run.measures) * (self._of_policies + self.weights)
        return self._phase("evaluate", "evaluate", policies, pods, seconds, read=read)

    def _train(
        self, name: str, saved_every: int, seconds: dict[Row, float], read: float = 0.0, written: float = 0.0
    ) -> Phase:
        """Return the phase of training, with checkpoints after multiples of ``saved_every`` updates."""
        run, rates, stages = self._run, self._rates, self._stages
        every = -(-run.operation.updates_per_checkpoint // saved_every) * saved_every
        checkpoints = stages * (-(-run.updates_per_stage // every) - 1)
        tokens = self.generated + self._responses * self._each.prompt_tokens
        trained, scored = passes(run.optimize)
        optimize = tokens * (trained * rates.trained_token + scored * rates.scored_token)
        optimize += stages * run.updates_per_stage * self._each.update_seconds
        load = seconds.get("load", 0.0) + stages * self._each.trainer_start_seconds
        spent: dict[Row, float] = {**seconds, "load": load, "optimize": optimize, "rest": stages * rates.rest}
        read += self._of_policies + (stages - 1) * self.moments
        written += stages * self.trained + checkpoints * self.checkpoint
        return self._phase(name, "train", stages, stages, spent, tokens * trained, read, written)

    def _verification(self, answers: int) -> float:
        return self._each.verifier_start_seconds + self._each.answer_seconds * answers / self._run.verify.workers

    def _call(self, engine: EngineRates, responses: int, longest: int) -> float:
        return engine.seconds(responses, min(self._mean, float(longest)), longest)


def _price(phases: list[Phase], kept: float, pool: Pool) -> dict[str, float]:
    storage = pool.costs.storage
    read = sum(phase.read for phase in phases)
    stored = kept / _GB * storage.gb_month * storage.months
    paid = {"GPUs, spot": 0.0, "GPUs, on demand": 0.0}
    for phase in phases:
        if phase.pod_gpus:
            paid[pool.hour(phase.role)[0]] += phase.price
    return {**paid, "storage and traffic": stored + read / _GB * storage.egress_gb}


def _chunk_sizes(count: int, size: int) -> list[int]:
    return [min(size, count - start) for start in range(0, count, size)]
