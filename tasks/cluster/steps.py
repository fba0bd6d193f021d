"""The steps of a run: pods, seconds, tokens and stored bytes of each, over all of its stages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from tasks.cluster.gpus import Pool
from tasks.cluster.rates import EngineRates, Rates, passes
from tasks.cluster.shapes import BYTES, Shape
from tasks.prompts.arithmetic import split
from tasks.settings import RunSettings
from tasks.settings.deployment import Role
from tasks.settings.evaluate import Measure

Row = Literal["start", "warm_start", "load", "generate", "verify", "optimize", "switch", "evaluate", "transfer", "rest"]
ROWS: tuple[Row, ...] = get_args(Row)
"""Rows of a run's ledger, with the transfer of policies and rollouts beside the rest."""


@dataclass(frozen=True)
class Step:
    """All pods of one kind of step, in a whole run; without a cluster, all steps of that kind in one process."""

    name: str
    role: Role
    pods: int
    pod_gpus: int
    """GPUs of each pod."""
    rounds: int
    """Number of pods that follow each other; the others run beside them."""
    seconds: dict[Row, float]
    """Seconds of all pods together."""
    tokens: float = 0.0
    """Tokens that are generated, or trained on."""
    read: float = 0.0
    """Bytes from the store."""
    written: float = 0.0
    """Bytes to the store."""
    kept: float = 0.0
    """Bytes of those written that stay when the step ends."""

    @property
    def pod_seconds(self) -> float:
        """Seconds of all pods together."""
        return sum(self.seconds.values())

    @property
    def gpu_seconds(self) -> float:
        """Seconds of all GPUs together."""
        return self.pod_seconds * self.pod_gpus

    @property
    def wall_seconds(self) -> float:
        """Seconds during which at least one of the pods runs."""
        return self.pod_seconds * self.rounds / self.pods


@dataclass(frozen=True)
class PolicyBytes:
    """Bytes that policies are stored with."""

    base: float
    """Weights of the base policy, as they are published."""
    weights: float
    """Weights of a trained policy, with its adapters."""
    moments: float
    """Moments of AdamW."""
    state: float
    """A checkpoint inside a stage: trained weights and moments."""

    @classmethod
    def of(cls, run: RunSettings, shape: Shape) -> "PolicyBytes":
        """Return the bytes for a run's settings: the base policy as it is, everything else in 32 bits."""
        number, lora = float(BYTES["float32"]), run.optimize.lora
        trained = shape.adapter_parameters(lora.rank) if lora else shape.parameters
        weights = number * (shape.parameters + (trained if lora else 0))
        return cls(shape.stored_bytes, weights, 2 * number * trained, 3 * number * trained)


class Steps:
    """Lists the steps of a run.

    Args:
        run: the settings of the run.
        stages: the number of stages.
        shape: the shape of the policy.
        rates: seconds of its units of work.
        pool: GPUs and pods; None where all steps share one process.
    """

    def __init__(self, run: RunSettings, stages: int, shape: Shape, rates: Rates, pool: Pool | None) -> None:
        self._run, self._stages, self._rates, self._pool = run, stages, rates, pool
        self._bytes = PolicyBytes.of(run, shape)
        self.mean = min(rates.response_tokens, float(run.rollout.max_new_tokens))
        """Tokens of a response on average."""
        self._rollouts = stages * rates.bytes_per_token * run.responses_per_stage * self.mean
        self._of_policies = self._bytes.base + (stages - 1) * self._bytes.weights
        """Bytes of the policies that the stages begin with."""

    @property
    def engines(self) -> int:
        """Number of engines that generate side by side where generation and training take turns."""
        processes = self._pool.training_gpus if self._pool else self._run.optimize.backend.processes
        return max(1, processes // self._run.rollout.engine.tensor_parallel)

    def staged(self) -> list[Step]:
        """Return the steps of ``mu_grpo``: generation, verification and training are pods of their own."""
        return [*self._opening(), self._generate(), self._verify(), self._optimize(), *self._closing()]

    def alternating(self, mu: int) -> list[Step]:
        """Return the steps of ``grpo``: in a stage one pod generates, verifies and trains in turn.

        Args:
            mu: updates per rollout.
        """
        return [*self._opening(), self._alternate(mu), *self._closing()]

    def _step(
        self,
        name: str,
        role: Role,
        pods: int,
        tasks: int | None = None,
        tokens: float = 0.0,
        read: float = 0.0,
        written: float = 0.0,
        kept: float = 0.0,
        **seconds: float,
    ) -> Step:
        """Return a step; its pods belong to as many ``tasks``, which follow each other (one per pod without it)."""
        rates, gpus = self._rates, self._pool.pods.get(role, 0) if self._pool else 0
        starts = pods if self._pool else int(name == "report")  # one process starts once
        found: dict[str, float] = {**seconds, "start": rates.start * starts}
        found["transfer"] = rates.store_byte * (read + written)
        found["rest"] = 0.0 if name in ("run", "report") else rates.rest * pods
        rounds, tasks = pods, tasks or pods
        if self._pool:
            side_by_side = min(self._pool.gpus // gpus if gpus else self._pool.most_pods, self._pool.most_pods)
            rounds = tasks * -(-(pods // tasks) // side_by_side)
        rows = {row: found[row] for row in ROWS if found.get(row)}
        return Step(name, role, pods, gpus, rounds, rows, tokens, read, written, kept)

    def _opening(self) -> Iterator[Step]:
        """Yield the start of a run, its prompts, and the base policy."""
        run, base, benchmarks = self._run, self._bytes.base, len(self._run.measures)
        yield self._step("run", "cpu", 2)
        # Benchmarks are read side by side, then the training set, then the prompts of a stage when it begins.
        yield self._step("prompts", "cpu", benchmarks + 1 + self._stages, 2 + self._stages)
        made, fetched = (self._rates.base, 0.0) if run.policy.tiny else (0.0, self._rates.hub_byte * base)
        yield self._step("policy", "prefetch", 1, written=base, kept=base, warm_start=made, load=fetched)

    def _generate(self) -> Step:
        settings, shards = self._run.rollout, self._run.shards
        prompts, size = self._run.prompts.prompts_per_stage, self._run.prompts.prompts_per_shard
        group, longest = settings.responses_per_prompt, settings.max_new_tokens
        calls = [part for shard in _cut(prompts, size) for part in parts(shard, group, settings.responses_per_part)]
        seconds = sum(self._call(self._rates.rollout, part, group, self.mean, longest) for part in calls)
        return self._step(
            "generate",
            "rollout",
            self._stages * shards,
            self._stages,
            tokens=self._stages * self._run.responses_per_stage * self.mean,
            read=shards * self._of_policies,
            written=2 * self._rollouts,  # parts of a shard, then the whole
            kept=self._rollouts,
            # In one process the evaluation of the policy has started its engine.
            load=self._stages * shards * self._rates.engine if self._pool else 0.0,
            generate=self._stages * seconds,
        )

    def _verify(self) -> Step:
        seconds = self._stages * self._checked(self._run.responses_per_stage)
        return self._step("verify", "verify", self._stages, read=self._rollouts, verify=seconds)

    def _optimize(self) -> Step:
        states, tokens = self._states(1), self._trained_tokens()
        kept = self._stages * (self._bytes.weights + self._bytes.moments)
        return self._step(
            "optimize",
            "train",
            self._stages,
            tokens=tokens * passes(self._run.optimize)[0],
            read=self._of_policies + (self._stages - 1) * self._bytes.moments + self._rollouts,
            written=states * self._bytes.state + kept,
            kept=kept,
            load=self._stages * self._rates.trainer,
            optimize=self._trained(tokens),
        )

    def _alternate(self, mu: int) -> Step:
        run, rates, stages = self._run, self._rates, self._stages
        group, longest = run.rollout.responses_per_prompt, run.rollout.max_new_tokens
        refreshes = stages * run.updates_per_stage // mu
        # The engines of a pod generate side by side, and the refresh ends with the slowest of them.
        prompts = -(-stages * run.responses_per_stage // (refreshes * group * self.engines))
        states, tokens = self._states(mu), self._trained_tokens()
        kept = stages * (self._bytes.weights + self._bytes.moments) + self._rollouts
        own_engine = run.rollout.engine.kind != "transformers"  # transformers uses the trainer's weights
        return self._step(
            "alternate",
            "train",
            stages,
            tokens=tokens * passes(run.optimize)[0],
            read=self._of_policies + (stages - 1) * self._bytes.moments,
            written=states * self._bytes.state + kept,
            kept=kept,
            load=stages * (rates.trainer + (rates.engine if own_engine else 0.0)),
            generate=refreshes * self._call(rates.rollout, prompts, group, self.mean, longest),
            verify=stages * self._checked(run.responses_per_stage),
            switch=rates.switch * refreshes,
            optimize=self._trained(tokens),
        )

    def _closing(self) -> Iterator[Step]:
        """Yield the evaluations of all policies, their means, and the report."""
        policies, run, sampled = self._stages + 1, self._run, 0.0
        for measure in run.measures:
            settings = measure.evaluation
            k, longest = settings.samples_per_problem, settings.max_new_tokens
            mean, each = min(self._rates.response_tokens, float(longest)), (k, 1) if settings.greedy else (k,)
            for part in parts(problems_of(run, measure), k, settings.responses_per_part):
                sampled += sum(self._call(self._rates.evaluate, part, count, mean, longest) for count in each)
            sampled += self._checked(answers_of(run, measure))
        pods = policies * len(run.measures)
        yield self._step(
            "evaluate",
            "evaluate",
            pods,
            policies,
            read=len(run.measures) * (self._of_policies + self._bytes.weights),
            # In one process all evaluations of a policy share an engine.
            load=(pods if self._pool else policies) * self._rates.engine,
            evaluate=policies * sampled,
        )
        yield self._step("average", "cpu", policies)
        yield self._step("report", "cpu", 1)

    def _states(self, mu: int) -> int:
        """Return the checkpoints of all stages, which are written between rollouts."""
        every = -(-self._run.operation.updates_per_checkpoint // mu) * mu
        return self._stages * (-(-self._run.updates_per_stage // every) - 1)

    def _trained_tokens(self) -> float:
        return self._stages * self._run.responses_per_stage * (self.mean + self._rates.prompt_tokens)

    def _trained(self, tokens: float) -> float:
        (trained, scored), rates = passes(self._run.optimize), self._rates
        computed = tokens * (trained * rates.trained_token + scored * rates.scored_token)
        return computed + rates.update * self._stages * self._run.updates_per_stage

    def _checked(self, answers: int) -> float:
        return self._rates.verifier + self._rates.answer * answers / self._run.verify.workers

    def _call(self, engine: EngineRates, prompts: int, each: int, mean: float, longest: int) -> float:
        return engine.seconds(prompts * each, mean, longest, prompts * self._rates.prompt_tokens)


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


def _cut(count: int, size: int) -> list[int]:
    return [min(size, count - start) for start in range(0, count, size)]
