"""A stage as the workflows unroll it: generate -> verify -> optimize, and the evaluation of what it gives."""

from functools import partial
from typing import Any

from flytekit import map_task

from tasks.evaluate.task import average
from tasks.evaluate.task import evaluate as evaluate_policy
from tasks.optimize.task import optimize as optimize_policy
from tasks.prompts.task import prepare_benchmark, prepare_prompts, prepare_training_set
from tasks.rollout.task import generate
from tasks.verify.task import verify as verify_rollouts


def next_policy(run: Any, shards: Any, base: Any, policy: Any, stage: int) -> Any:
    """The policy after a stage; ``run`` has the settings, ``shards`` the stage's prompts."""
    generate_shard = partial(generate, store=run.store, settings=run.rollout, policy=policy, stage=stage, seed=run.seed)
    rollouts = map_task(generate_shard)(prompts=shards)
    verdicts = verify_rollouts(store=run.store, settings=run.verify, rollouts=rollouts, stage=stage, seed=run.seed)
    return optimized(run, base, policy, rollouts, verdicts, stage)


def prepared(run: Any) -> Any:
    """The problems of every benchmark of a run."""
    prepare_each = partial(prepare_benchmark, store=run.store, operation=run.operation)
    return map_task(prepare_each)(settings=run.benchmarks, verify=run.verifiers, source=run.benchmark_sources)


def prompted(run: Any, benchmarks: Any, stages: int) -> list[Any]:
    """The prompts of every stage, without the problems of the benchmarks."""
    training = prepare_training_set(
        store=run.store,
        settings=run.training_set,
        verify=run.verify,
        source=run.training_source,
        benchmarks=benchmarks,
        operation=run.operation,
    )
    return [
        prepare_prompts(store=run.store, settings=run.prompts, training=training, stage=stage, seed=run.seed)
        for stage in range(stages)
    ]


def measured(run: Any, benchmarks: Any, policy: Any) -> Any:
    """The evaluation of a policy on every benchmark, and their mean."""
    evaluate_each = partial(evaluate_policy, store=run.store, policy=policy, seed=run.seed, operation=run.operation)
    found = map_task(evaluate_each)(settings=run.evaluations, verify=run.verifiers, prompts=benchmarks)
    return average(store=run.store, policy=policy, evaluations=found, seed=run.seed)


def optimized(run: Any, base: Any, policy: Any, rollouts: Any, verdicts: Any, stage: int) -> Any:
    """The policy that a stage's rollouts and verdicts make of the one that sampled them."""
    return optimize_policy(
        store=run.store,
        settings=run.optimize,
        reference=base,
        policy=policy,
        rollouts=rollouts,
        verdicts=verdicts,
        stage=stage,
        seed=run.seed,
        operation=run.operation,
    )
