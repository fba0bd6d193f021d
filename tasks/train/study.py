"""Train in one process and evaluate after equal numbers of updates: the unit of the laboratory."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from tasks.errors import CollapseError, SettingsError
from tasks.evaluate.step import judge_samples, sample_problems
from tasks.process.logs import bar
from tasks.rollout.engine import Sampling
from tasks.rollout.step import tokenise_all
from tasks.settings import EvaluationSettings, OptimizeSettings, RolloutSettings, VerifySettings
from tasks.store import ArtifactRef, Parents, Store
from tasks.store.layout import CURVE_FILE, METRICS_FILE, PROMPTS_FILE
from tasks.store.tables import CURVE, read_table, write_table
from tasks.train.colocated import Colocated
from tasks.train.results import Row, metrics_schema
from tasks.verify import Outcome


def run_study(
    store: Store,
    rollout: RolloutSettings,
    verify: VerifySettings,
    optimize: OptimizeSettings,
    evaluate: Sequence[EvaluationSettings],
    updates_per_rollout: int,
    evaluations: int,
    policy: ArtifactRef,
    prompts: Sequence[ArtifactRef],
    held_out: Sequence[ArtifactRef],
    seed: int,
) -> ArtifactRef:
    """Train a policy on all prompts once, and evaluate it before, along the way and at the end.

    A run whose gradient or log-probabilities become not finite keeps the accuracy that it had: a collapse is a result.
    There are ``evaluations`` after the first, of avg@k on the only benchmark, without greedy responses; the policy is
    the base policy.

    Returns:
        A study artifact: curve.parquet with the accuracy of every problem at every evaluation, and metrics.parquet.

    Raises:
        SettingsError: the evaluations do not divide the updates, or the backend is not torch.
        GateError: the engine differs too much from the trainer, or the verifier could not judge too many responses.
    """
    if optimize.backend.kind != "torch":
        raise SettingsError(
            f"optimize.backend.kind: {optimize.backend.kind} in a study, which one process makes; allowed: torch"
        )
    (evaluation,), (benchmark,) = evaluate, held_out
    settings = {
        **optimize.model_dump(mode="json"),
        "updates_per_rollout": updates_per_rollout,
        "rollout": rollout.model_dump(mode="json"),
        "evaluate": evaluation.model_dump(mode="json"),
        "evaluations": evaluations,
    }
    parents: Parents = {"policy": policy, "prompts": list(prompts), "held_out": [benchmark]}
    with store.write("study", settings=settings, parents=parents, seed=seed) as draft:
        problems = read_table(store.path(benchmark) / PROMPTS_FILE).to_pylist()
        loop = Colocated(store, rollout, verify, optimize, updates_per_rollout, policy, policy, prompts, 0, seed)
        loop.trainer.require_signal = False
        curve: list[dict[str, Any]] = []
        metrics: list[Row] = []
        stopped = ""
        updates = len(loop.refreshes) * updates_per_rollout
        title = f"study {optimize.preset} mu {updates_per_rollout} seed {seed}"
        with closing(loop.engine), bar(title, updates) as progress:
            if updates % evaluations:
                raise SettingsError(f"evaluations: {evaluations} does not divide the {updates} updates of the study")
            with draft.phase("start"):
                loop.verifier.start()

            token_ids = tokenise_all(loop.tokenizer, problems, loop.engine.context_tokens, evaluation.max_new_tokens)

            def measure() -> None:
                loop.to_generation()
                curve.append(_measure(loop, evaluation, problems, token_ids, seed))

            def after_update(row: Row) -> None:
                metrics.append(row)  # At once: what ends in a collapse gives no results.
                progress.advance(note=f"accuracy {curve[-1]['accuracy']:.3f}")
                if row["update"] % (updates // evaluations) == 0:
                    measure()
                    loop.to_training()

            with draft.phase("study"):
                measure()
                try:
                    loop.train(after_update)
                except CollapseError as error:
                    stopped = error.message
                    measure()
        write_table(draft.path / CURVE_FILE, curve, CURVE)
        if metrics:
            write_table(draft.path / METRICS_FILE, metrics, metrics_schema(list(metrics[0])))
        draft.facts.update(
            preset=optimize.preset,
            updates=loop.trainer.updates,
            accuracy=curve[-1]["accuracy"],
            best=max(row["accuracy"] for row in curve),
            stopped=stopped,
        )
    return draft.ref


def _measure(
    loop: Colocated,
    settings: EvaluationSettings,
    problems: list[dict[str, Any]],
    token_ids: dict[str, list[int]],
    seed: int,
) -> dict[str, Any]:
    """Return a row of the curve, for the current policy; see ``judge_samples`` for errors."""
    k = settings.samples_per_problem
    sampling = Sampling(settings.max_new_tokens, settings.temperature)
    samples = sample_problems(loop.engine, loop.tokenizer, problems, token_ids, range(k), sampling, seed)
    judge_samples(samples, loop.verifier, loop.verify, "verify")
    correct_PK = np.array([sample["outcome"] is Outcome.CORRECT for sample in samples], dtype=np.float64).reshape(-1, k)
    working = [sample["shows_working"] for sample in samples]
    return {
        "update": loop.trainer.updates,
        "accuracy": float(correct_PK.mean()),
        "problem_accuracy": correct_PK.mean(1).tolist(),
        "working": None if None in working else float(np.mean(np.array(working, dtype=np.float64))),
        "response_tokens": float(np.mean([sample["response_tokens"] for sample in samples])),
    }
