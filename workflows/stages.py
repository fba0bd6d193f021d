"""A stage as the workflows unroll it: generate -> verify -> optimize, and the evaluation of what it gives."""

from functools import partial
from typing import Any

from flytekit import map_task

from tasks.evaluate.task import evaluate as evaluate_policy
from tasks.optimize.task import optimize as optimize_policy
from tasks.rollout.task import generate
from tasks.verify.task import verify as verify_rollouts


def next_policy(run: Any, shards: Any, base: Any, policy: Any, stage: int) -> Any:
    """The policy after a stage; ``run`` has the settings, ``shards`` the stage's prompts."""
    generate_shard = partial(generate, store=run.store, settings=run.rollout, policy=policy, stage=stage, seed=run.seed)
    rollouts = map_task(generate_shard)(prompts=shards)
    verdicts = verify_rollouts(store=run.store, settings=run.verify, rollouts=rollouts, stage=stage, seed=run.seed)
    return optimized(run, base, policy, rollouts, verdicts, stage)


def measured(run: Any, held_out: Any, policy: Any) -> Any:
    """The evaluation of a policy on the run's held-out problems."""
    return evaluate_policy(
        store=run.store,
        settings=run.evaluate,
        verify=run.verify,
        policy=policy,
        prompts=held_out,
        seed=run.seed,
        operation=run.operation,
    )


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
