"""Prediction of the time, storage and price of a run, as Mu-GRPO and as GRPO with the same updates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from tasks.cluster.rates import Pool, Rates, passes
from tasks.cluster.shapes import BYTES, Shape
from tasks.data.arithmetic import split
from tasks.errors import SettingsError
from tasks.settings import EvaluationSettings, RunSettings
from tasks.settings.deployment import Role
from tasks.settings.evaluate import Measurement

Activity = Literal[
    "start", "warm_start", "load", "generate", "verify", "optimize", "switch", "evaluate", "transfer", "rest"
]
ACTIVITIES: tuple[Activity, ...] = get_args(Activity)
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
    seconds: dict[Activity, float]
    """Seconds of all pods together, by activity."""
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
    seconds: dict[Activity, float]
    """Seconds of all pods, by activity; for one process the rows of the run's ledger."""
    gpu_seconds: dict[Activity, float]
    """Seconds times the GPUs of the pod, by activity."""
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


def predict(run: RunSettings, stages: int, shape: Shape, rates: Rates, pool: Pool, alternating: bool) -> Prediction:
    """Predict a run on a pool.

    With ``alternating``, generation and training alternate in one task (``grpo``). Otherwise they are separate steps
    (``mu_grpo``). CPU pods that take seconds (prompts, averages, the report) are below 1 % of the time, and left out.
    """
    mu, updates = baseline_mu(run) if alternating else run.updates_per_stage, stages * run.updates_per_stage
    steps = _Steps(run, stages, shape, rates, pool)
    phases = list(steps.phases(mu if alternating else None))
    policies = steps.base + stages * steps.trained
    kept, read = policies + steps.rollouts, sum(phase.read for phase in phases)
    seconds = {name: sum(one.seconds.get(name, 0.0) for one in phases) for name in ACTIVITIES}
    on_gpus = {name: sum(one.seconds.get(name, 0.0) * one.pod_gpus for one in phases) for name in ACTIVITIES}
    storage, price = pool.costs.storage, {"GPUs, spot": 0.0, "GPUs, on demand": 0.0}
    for role, pod in pool.pods.items():
        paid = sum(phase.price for phase in phases if phase.role == role)
        price["GPUs, spot" if pod.interruptible else "GPUs, on demand"] += paid
    price["storage and traffic"] = (kept * storage.gb_month * storage.months + read * storage.egress_gb) / _GB
    return Prediction(
        mu=mu,
        wall_seconds=sum(phase.wall_seconds for phase in phases),
        seconds={name: spent for name, spent in seconds.items() if spent},
        gpu_seconds={name: spent for name, spent in on_gpus.items() if spent},
        phases=phases,
        updates=updates,
        generated_tokens=steps.generated,
        trained_tokens=next(phase.tokens for phase in phases if phase.role == "train"),
        refreshes=updates // mu if alternating else 0,
        policy_bytes=policies,
        kept_bytes=kept,
        unfinished_bytes=min(steps.checkpoints, run.operation.checkpoints_kept + 1) * steps.checkpoint,
        read_bytes=read,
        written_bytes=sum(phase.written for phase in phases),
        price=price if pool.gpus else {},
    )


def baseline_mu(run: RunSettings) -> int:
    """Return mu of the baseline: the run's own value, or the largest value up to 4 that divides a stage."""
    if run.updates_per_rollout is not None:
        return run.updates_per_rollout
    step = run.optimize.objective.schedule.updates_per_batch
    return max(mu for mu in range(step, max(step, _GRPO_MU) + 1, step) if run.updates_per_stage % mu == 0)


def problem_count(run: RunSettings, measurement: Measurement) -> int:
    """Return the number of problems of a benchmark without a download; ``evaluate.problems`` if it is unknown.

    Raises:
        SettingsError: the benchmark is generated, and its held-out share is too small for a problem.
    """
    benchmark = measurement.benchmark
    source, most = benchmark.source, benchmark.problems
    if source is not None and source.arithmetic is not None:
        held_out = len(split(source.arithmetic)[1])
        if not held_out:
            raise SettingsError(f"{benchmark.name}: no problem is held out; allowed: a larger held_out_share")
        return min(held_out, most or held_out)
    return most or run.evaluate.problems


def evaluation_calls(settings: EvaluationSettings, problems: int) -> list[float]:
    """Return the number of responses of every call of an engine in an evaluation, whose parts are equally large."""
    parts, samples = -(-problems // settings.problems_per_call), settings.samples_per_problem
    return parts * [problems / parts * each for each in ((samples, 1) if settings.greedy else (samples,))]


def evaluation_responses(run: RunSettings, measurement: Measurement) -> int:
    """Return the number of responses of one evaluation."""
    evaluation = measurement.evaluation
    return problem_count(run, measurement) * (evaluation.samples_per_problem + evaluation.greedy)


class _Steps:
    """Amounts of the steps of a run.

    These attributes are bytes:
        base: the base policy as published.
        weights: a trained policy with its adapters, in 32 bits.
        moments: AdamW's moments.
        trained: ``weights`` and ``moments``.
        checkpoint: a checkpoint inside a stage.
        rollouts: all rollouts.
        starting: the policies at the start of all stages.
    """

    def __init__(self, run: RunSettings, stages: int, shape: Shape, rates: Rates, pool: Pool) -> None:
        self._run, self._stages, self._rates, self._pool = run, stages, rates, pool
        self._mean = rates.amounts.response_share * run.rollout.max_new_tokens
        """Mean tokens of a response."""
        self.generated = stages * run.responses_per_stage * self._mean
        """Tokens of all responses."""
        number, lora = float(BYTES["float32"]), run.optimize.lora
        trained = shape.adapter_parameters(lora.rank) if lora else shape.parameters
        self.base, self.moments, self.checkpoint = shape.stored_bytes, 2 * number * trained, 3 * number * trained
        self.weights = number * (shape.parameters + (trained if lora else 0))
        self.trained, self.rollouts = self.weights + self.moments, rates.amounts.bytes_per_token * self.generated
        self.starting = self.base + (stages - 1) * self.weights
        self.checkpoints = -(-run.updates_per_stage // run.operation.updates_per_checkpoint) - 1
        """Number of checkpoints inside a stage."""

    def phases(self, mu: int | None) -> Iterator[Phase]:
        """Yield the phases of ``mu_grpo`` if ``mu`` is None, else those of ``grpo``."""
        run, stages, rates = self._run, self._stages, self._rates
        engine_start = rates.amounts.engine_start_seconds
        base: dict[Activity, float] = {"load": self.base / _GB / rates.amounts.hub_gb_per_second}
        if run.policy.tiny:
            base = {"warm_start": rates.base}
        yield self._phase("policy", "prefetch", 1, 1, base, written=self.base)
        if mu is None:
            pods, prompts, per_call = stages * run.shards, run.prompts, run.rollout.prompts_per_call
            full, rest = divmod(prompts.prompts_per_stage, prompts.prompts_per_shard)
            calls = full * -(-prompts.prompts_per_shard // per_call) + -(-rest // per_call)
            # In one process, the evaluation of the policy has already started the engine.
            load = pods * engine_start if self._pool.gpus else 0.0
            generate: dict[Activity, float] = {"load": load, "generate": self._generation(stages * calls)}
            read, written = run.shards * self.starting, 2 * self.rollouts  # Parts of shards, then whole shards.
            yield self._phase("generate", "rollout", stages, pods, generate, self.generated, read, written)
            verify: dict[Activity, float] = {"verify": stages * self._verification(run.responses_per_stage)}
            yield self._phase("verify", "verify", stages, stages, verify, read=self.rollouts)
        yield self._train(mu)
        policies, pods = stages + 1, (stages + 1) * len(run.measurements)
        evaluate = policies * sum(self._evaluation(measurement) for measurement in run.measurements)
        # In one process, all evaluations of a policy share an engine.
        load = (pods if self._pool.gpus else policies) * engine_start
        read = len(run.measurements) * (self.starting + self.weights)
        yield self._phase("evaluate", "evaluate", policies, pods, {"load": load, "evaluate": evaluate}, read=read)

    def _train(self, mu: int | None) -> Phase:
        """Return the phase of training. With ``mu``, its pods also generate and verify, before every ``mu`` updates."""
        run, stages, rates, amounts = self._run, self._stages, self._rates, self._rates.amounts
        tokens = self.generated + stages * run.responses_per_stage * amounts.prompt_tokens
        trained, scored = passes(run.optimize)
        optimize = tokens * (trained * rates.trained_token + scored * rates.scored_token)
        optimize += stages * run.updates_per_stage * amounts.update_seconds
        seconds: dict[Activity, float] = {"optimize": optimize, "rest": stages * rates.rest}
        seconds["load"] = stages * amounts.trainer_start_seconds
        read = self.starting + (stages - 1) * self.moments
        written = stages * (self.trained + self.checkpoints * self.checkpoint)
        if mu is None:
            read += self.rollouts
        else:
            engine, refreshes = run.rollout.engine, stages * run.updates_per_stage // mu
            # The engines of a pod generate in parallel, and a refresh ends with the slowest engine.
            engines = max(1, self._pool.training_gpus // engine.tensor_parallel)
            seconds["load"] += stages * amounts.engine_start_seconds if engine.own_weights else 0.0
            seconds["generate"] = self._generation(refreshes * engines) / engines
            seconds["switch"] = refreshes * amounts.switch_seconds
            seconds["verify"] = stages * self._verification(run.responses_per_stage)
            written += self.rollouts
        name = "optimize" if mu is None else "alternate"
        return self._phase(name, "train", stages, stages, seconds, tokens * trained, read, written)

    def _phase(
        self,
        name: str,
        role: Role,
        tasks: int,
        pods: int,
        seconds: dict[Activity, float],
        tokens: float = 0.0,
        read: float = 0.0,
        written: float = 0.0,
    ) -> Phase:
        """Return the phase of tasks that run one after the other, each with its share of the pods in parallel."""
        pool, amounts = self._pool, self._rates.amounts
        gpus = pool.pods[role].gpus if role in pool.pods else 0
        at_once = min(pool.gpus // gpus, pool.most_pods) if gpus else 1
        rounds = tasks * -(-(pods // tasks) // at_once)
        starts = pods if pool.gpus else int(name == "policy")  # A single process starts once.
        transfer = (read + written) / _GB / amounts.store_gb_per_second
        spent = {**seconds, "start": starts * amounts.pod_start_seconds, "transfer": transfer}
        seconds = {one: spent[one] for one in ACTIVITIES if spent.get(one)}
        total = sum(seconds.values())
        wall, price = total * rounds / pods, total / 3600 * pool.hourly_price(role) if gpus else 0.0
        return Phase(name, role, pods, gpus, seconds, total, total * gpus, wall, price, tokens, read, written)

    def _generation(self, calls: int) -> float:
        """Return the seconds in which an engine generates all responses in a number of equal calls."""
        run = self._run
        responses = self._stages * run.responses_per_stage / calls
        return calls * self._rates.rollout.seconds(responses, self._mean, run.rollout.max_new_tokens)

    def _evaluation(self, measurement: Measurement) -> float:
        """Return the seconds of one evaluation."""
        longest = measurement.evaluation.max_new_tokens
        calls = evaluation_calls(measurement.evaluation, problem_count(self._run, measurement))
        generate = (self._rates.evaluate.seconds(one, min(self._mean, float(longest)), longest) for one in calls)
        return sum(generate) + self._verification(evaluation_responses(self._run, measurement))

    def _verification(self, answers: int) -> float:
        amounts = self._rates.amounts
        return amounts.verifier_start_seconds + amounts.answer_seconds * answers / self._run.verify.workers
