"""The pods of a run, one after the other as the workflows ask for them, with what each does and how long it takes."""

from collections.abc import Iterator, Mapping

from tasks.cost.files import LEASE, LIST, LOOK, STEP, Files, Stored, Traffic, reading, total, writing
from tasks.cost.jobs import Counts, Job, Layout, Row, Step
from tasks.cost.problems import problems_of
from tasks.cost.rates import EngineRates, Rates, passes
from tasks.cost.shapes import Shape
from tasks.settings import RunSettings
from tasks.settings.deployment import Role
from tasks.settings.evaluate import Measure

_KINDS = 9
"""Of artifacts, each in a folder of its own."""
_NOTHING, _NO_TRAFFIC = Counts(), Traffic()
_REPORT: Files = (250_000.0, 1_000.0, *(18_000.0,) * 12)
"""A page, a summary, figures."""


class Work:
    """Makes the jobs of a run."""

    def __init__(self, run: RunSettings, shape: Shape, rates: Rates, layout: Layout) -> None:
        self._run, self._rates, self._layout = run, rates, layout
        self._stored = Stored(run, shape, rates)
        self._passes, self._measures = passes(run.optimize), run.measures

    def staged(self, stages: int) -> list[Job]:
        """Of ``mu_grpo``: generate, verify and optimize, each in pods of its own."""
        return [*self._opening(stages), *self._stages(stages), *self._closing(stages, len(self._shards()))]

    def alternating(self, stages: int, mu: int) -> list[Job]:
        """Of ``grpo``: as many parts, in each of which one pod generates, verifies and optimizes in turn."""
        jobs = [
            job
            for part in range(stages)
            for job in (self._prompts(part, stages), self._alternate(part, mu), *self._evaluate(part + 1))
        ]
        return [*self._opening(stages), *jobs, *self._closing(stages, 1)]

    def _job(
        self,
        name: str,
        step: Step,
        role: Role,
        after: tuple[str, ...],
        seconds: Mapping[Row, float],
        counts: Counts = _NOTHING,
        traffic: Traffic = _NO_TRAFFIC,
    ) -> Job:
        rates, rows = self._rates, dict(seconds)
        if not self._layout.one_process or name == "open":  # the first job of a process
            rows["start"] = rates.start
        if step in ("generate", "verify", "optimize", "alternate", "evaluate"):
            traffic += LEASE
        moved = rates.transferred_byte * (traffic.read + traffic.written)
        rows |= {"transfer": moved, "rest": rates.after.get(step, 0.0)}
        gpus = self._layout.pod_gpus.get(role, 0)
        return Job(name, step, role, after, gpus, {row: s for row, s in rows.items() if s}, counts, traffic)

    def _opening(self, stages: int) -> Iterator[Job]:
        """What comes before the first stage: settings, prompts, the base policy and its evaluations."""
        run, stored = self._run, self._stored
        yield self._job("open", "run", "cpu", (), {})
        for measure in self._measures:
            written = writing(stored.benchmark(problems_of(run, measure))) + STEP
            yield self._job(measure.benchmark.name, "prompts", "prefetch", ("open",), {}, traffic=written)
        benchmarks = tuple(measure.benchmark.name for measure in self._measures)
        taken = stored.training_set(stages * run.prompts.prompts_per_stage)
        read = reading(*(stored.benchmark(problems_of(run, measure)) for measure in self._measures))
        moved = read + writing(taken) + STEP
        yield self._job("training set", "prompts", "prefetch", benchmarks, {}, traffic=moved)
        made, fetched = self._rates.base, self._rates.hub_byte * sum(stored.policy(0))
        source: dict[Row, float] = {"warm_start": made} if run.policy.tiny else {"load": fetched}
        written = writing(stored.policy(0)) + STEP
        yield self._job("policy 0", "policy", "prefetch", ("open",), source, traffic=written)
        yield from self._evaluate(0)

    def _stages(self, stages: int) -> Iterator[Job]:
        for stage in range(stages):
            yield self._prompts(stage, stages)
            shards = [self._generate(stage, place, prompts) for place, prompts in enumerate(self._shards())]
            yield from shards
            yield self._verify(stage, shards)
            yield self._optimize(stage)
            yield from self._evaluate(stage + 1)

    def _prompts(self, stage: int, stages: int) -> Job:
        """The first job of a stage, which starts when all of the stage before is done, its evaluation too."""
        stored = self._stored
        written = total([writing(stored.prompts(prompts)) for prompts in self._shards()])
        moved = reading(stored.training_set(stages * self._run.prompts.prompts_per_stage)) + written + STEP
        after = ("training set", f"policy {stage}", *([f"average {stage}"] if stage else []))
        return self._job(f"prompts {stage + 1}", "prompts", "cpu", after, {}, traffic=moved)

    def _shards(self) -> list[int]:
        """Prompts of every shard of a stage."""
        return _cut(self._run.prompts.prompts_per_stage, self._run.prompts.prompts_per_shard)

    def _generate(self, stage: int, place: int, prompts: int) -> Job:
        settings, stored = self._run.rollout, self._stored
        group, mean = settings.responses_per_prompt, self._mean(stage * self._run.updates_per_stage)
        calls, engine = parts(prompts, group, settings.responses_per_part), self._rates.rollout
        seconds: dict[Row, float] = {
            # What shares a process with the policy's evaluation finds its engine there.
            "load": self._rates.reading if self._layout.one_process else self._rates.engine,
            "generate": sum(self._call(engine, part, group, mean, settings.max_new_tokens) for part in calls),
        }
        written = total([writing(stored.rollouts(part * group * mean), kept=False) for part in calls])
        traffic = (
            reading(stored.policy(stage), stored.prompts(prompts))
            + written
            + writing(stored.rollouts(prompts * group * mean))
            + total([LOOK] * len(calls))
            + STEP
        )
        responses = prompts * group
        counts = Counts(
            generated_tokens=responses * mean, responses=responses, engine_starts=int(not self._layout.one_process)
        )
        after = (f"policy {stage}", f"prompts {stage + 1}")
        return self._job(f"generate {stage + 1}.{place + 1}", "generate", "rollout", after, seconds, counts, traffic)

    def _verify(self, stage: int, shards: list[Job]) -> Job:
        run, stored = self._run, self._stored
        mean, group = self._mean(stage * run.updates_per_stage), run.rollout.responses_per_prompt
        prompts = self._shards()
        read = reading(*(stored.rollouts(count * group * mean) for count in prompts))
        unfinished = total([writing(stored.verdicts(count * group), kept=False) for count in prompts])
        written = writing(stored.verdicts(run.responses_per_stage))
        seconds: dict[Row, float] = {"load": self._rates.reading, "verify": self._checked(run.responses_per_stage)}
        traffic = read + unfinished + written + total([LOOK] * len(prompts)) + STEP
        counts = Counts(answers=run.responses_per_stage)
        after = tuple(shard.name for shard in shards)
        return self._job(f"verify {stage + 1}", "verify", "verify", after, seconds, counts, traffic)

    def _optimize(self, stage: int) -> Job:
        run, stored = self._run, self._stored
        updates = run.updates_per_stage
        mean, group = self._mean(stage * updates), run.rollout.responses_per_prompt
        tokens = run.responses_per_stage * (mean + self._rates.prompt_tokens)
        states = -(-updates // run.operation.updates_per_checkpoint) - 1
        traffic = (
            reading(
                stored.trained(stage),
                *(stored.rollouts(count * group * mean) for count in self._shards()),
                stored.verdicts(run.responses_per_stage),
            )
            + writing(stored.logp(run.responses_per_stage * mean), kept=False)
            + self._states(stored.state(), states)
            + writing(stored.trained(stage + 1))
            + LOOK
            + LIST
            + STEP
        )
        seconds: dict[Row, float] = {"load": self._rates.trainer, "optimize": self._trained(tokens, updates)}
        counts = Counts(trained_tokens=tokens * self._passes[0], updates=updates, trainer_starts=1)
        return self._job(f"policy {stage + 1}", "optimize", "train", (f"verify {stage + 1}",), seconds, counts, traffic)

    def _alternate(self, part: int, mu: int) -> Job:
        run, stored = self._run, self._stored
        updates = run.updates_per_stage
        batches = mu // run.optimize.objective.schedule.updates_per_batch
        responses, group = run.optimize.responses_per_update * batches, run.rollout.responses_per_prompt
        engine = self._rates.rollout
        engines = max(1, self._layout.training_gpus // run.rollout.engine.tensor_parallel)
        generated = generating = 0.0
        for made in range(0, updates, mu):
            mean = self._mean(part * updates + made)
            generated += responses * mean
            # The engines of a pod generate side by side, and wait for the one with most responses.
            prompts = -(-responses // group // engines)
            generating += self._call(engine, prompts, group, mean, run.rollout.max_new_tokens)
        refreshes = updates // mu
        tokens = generated + run.responses_per_stage * self._rates.prompt_tokens
        states = -(-updates // (-(-run.operation.updates_per_checkpoint // mu) * mu)) - 1
        rollouts, verdicts = stored.rollouts(generated), stored.verdicts(run.responses_per_stage)
        refreshed = (*rollouts, *verdicts)
        traffic = (
            reading(stored.trained(part), *map(stored.prompts, self._shards()))
            + self._states(stored.state(), states)
            + total([writing(tuple(size / (states + 1) for size in refreshed), kept=False)] * states)
            + writing(rollouts)
            + writing(verdicts)
            + writing(stored.trained(part + 1))
            + LIST
            + LIST
            + STEP
        )
        own_engine = run.rollout.engine.kind != "transformers"  # which shares the trainer's weights
        seconds: dict[Row, float] = {
            "load": self._rates.trainer + (self._rates.engine if own_engine else 0.0),
            "generate": generating,
            "verify": self._checked(run.responses_per_stage),
            "switch": self._rates.switch * refreshes,
            "optimize": self._trained(tokens, updates),
        }
        counts = Counts(
            generated_tokens=generated,
            trained_tokens=tokens * self._passes[0],
            responses=run.responses_per_stage,
            answers=run.responses_per_stage,
            updates=updates,
            engine_starts=engines if own_engine else 0,
            trainer_starts=1,
            refreshes=refreshes,
        )
        after = (f"policy {part}", f"prompts {part + 1}")
        return self._job(f"policy {part + 1}", "alternate", "train", after, seconds, counts, traffic)

    def _evaluate(self, stage: int) -> Iterator[Job]:
        """The evaluations of a policy, and their mean."""
        jobs = [self._evaluation(stage, place, measure) for place, measure in enumerate(self._measures)]
        yield from jobs
        stored = self._stored
        traffic = total([reading(stored.average())] * len(jobs)) + writing(stored.average()) + STEP
        after = tuple(job.name for job in jobs)
        yield self._job(f"average {stage}", "average", "cpu", after, {}, traffic=traffic)

    def _evaluation(self, stage: int, place: int, measure: Measure) -> Job:
        settings, stored, engine = measure.evaluation, self._stored, self._rates.evaluate
        mean = self._rates.lengths.at(stage * self._run.updates_per_stage, settings.max_new_tokens)
        k, problems = settings.samples_per_problem, problems_of(self._run, measure)
        each = (k, 1) if settings.greedy else (k,)
        calls = parts(problems, k, settings.responses_per_part)
        generating = sum(self._call(engine, part, one, mean, settings.max_new_tokens) for part in calls for one in each)
        responses = problems * sum(each)
        # What shares a process with the policy's first evaluation finds its engine there.
        loading = self._rates.reading if place and self._layout.one_process else self._rates.engine
        seconds: dict[Row, float] = {"load": loading, "evaluate": generating + self._checked(responses)}
        written = total([writing(stored.evaluation(part * sum(each))[:1], kept=False) for part in calls])
        traffic = (
            reading(stored.policy(stage), stored.benchmark(problems))
            + written
            + writing(stored.evaluation(responses))
            + total([LOOK] * (len(calls) + (2 if stage else 0)))  # a policy that is read in part is asked for again
            + STEP
        )
        starts = int(not (place and self._layout.one_process))
        counts = Counts(evaluated_responses=responses, answers=responses, engine_starts=starts)
        name = measure.benchmark.name
        return self._job(
            f"evaluate {stage} {name}", "evaluate", "evaluate", (f"policy {stage}", name), seconds, counts, traffic
        )

    def _closing(self, stages: int, rollouts: int) -> Iterator[Job]:
        """The report, which reads manifests, as the run's and as the store's, and the numbers of every policy."""
        after = tuple(f"average {stage}" for stage in range(stages + 1))
        benchmarks = len(self._measures)
        of_policies = (2 + benchmarks) * (stages + 1)
        artifacts = 1 + benchmarks + len(self._shards()) * stages + (rollouts + 1) * stages + of_policies
        read = total([LOOK] * (2 * artifacts + (1 + 2 * benchmarks) * (stages + 1) + stages))
        listed = total([LIST] * _KINDS)
        yield self._job("report", "report", "cpu", after, {}, traffic=read + listed + writing(_REPORT) + STEP)
        yield self._job("close", "run", "cpu", ("report",), {})

    def _states(self, state: Files, states: int) -> Traffic:
        """Of a stage that trains; those that are not kept are listed once more, before they are deleted."""
        deleted = max(0, states - self._run.operation.checkpoints_kept)
        return total([writing(state, kept=False) + LIST] * states + [LIST] * deleted)

    def _mean(self, updates: int) -> float:
        return self._rates.lengths.at(updates, self._run.rollout.max_new_tokens)

    def _call(self, engine: EngineRates, prompts: int, each: int, mean: float, longest: int) -> float:
        return engine.seconds(prompts * each, mean, longest, prompts * self._rates.prompt_tokens)

    def _checked(self, answers: int) -> float:
        return self._rates.verifier + self._rates.answer * answers / self._run.verify.workers

    def _trained(self, tokens: float, updates: int) -> float:
        trained, scored = self._passes
        rates = self._rates
        return tokens * (trained * rates.trained_token + scored * rates.scored_token) + rates.update * updates


def parts(prompts: int, responses_per_prompt: int, responses_per_part: int) -> list[int]:
    """Prompts of every call of the engine: whole groups of about ``responses_per_part`` responses."""
    return _cut(prompts, max(1, responses_per_part // responses_per_prompt))


def _cut(count: int, size: int) -> list[int]:
    """``count`` in portions of ``size``, the last one smaller."""
    return [min(size, count - start) for start in range(0, count, size)]
