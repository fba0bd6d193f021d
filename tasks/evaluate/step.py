"""A policy's accuracy on held-out problems: avg@k by sampling, and greedy."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from tasks.artifacts import ArtifactRef, Parents, Store
from tasks.artifacts.tables import SAMPLES, read_table, to_table, write_table
from tasks.evaluate.intervals import mean_interval, share_interval
from tasks.interruption import heeded
from tasks.policy.loading import OPTIMIZER, load_tokenizer
from tasks.progress import bar
from tasks.rollout.engine import Engine, Sampling
from tasks.rollout.engines import engine_of
from tasks.rollout.requests import build_requests
from tasks.rollout.step import OnDone, advancing, decode, parts, unseen
from tasks.settings import EngineSettings, EvaluateSettings, OperationSettings, VerifySettings
from tasks.tracking.journal import shown
from tasks.verify.step import pair
from tasks.verify.verdicts import Verdict
from tasks.verify.verifier import Verifier, check_failures

GREEDY = -1
"""The sample index of a greedy response."""


def evaluate_policy(
    store: Store,
    settings: EvaluateSettings,
    verify: VerifySettings,
    policy: ArtifactRef,
    prompts: ArtifactRef,
    seed: int,
    operation: OperationSettings = OperationSettings(),  # noqa: B008 - settings are immutable
) -> ArtifactRef:
    """Samples k responses and one greedy response to every problem, and checks them.

    Sampling seeds do not depend on the policy, so that policies are compared on common random numbers.

    Args:
        store: of all artifacts.
        settings: problems, samples per problem and sampling.
        verify: the verifier's.
        policy: to be evaluated.
        prompts: the held-out problems.
        seed: the run's.
        operation: where the accuracy is shown.

    Returns:
        An evaluation artifact with every response and metrics.json.

    Raises:
        GateError: the verifier could not tell for too large a share of the responses.
        Interrupted: SIGTERM came; the parts that are done are kept.
    """
    parents: Parents = {"policy": policy, "prompts": [prompts]}
    with heeded(), store.write("evaluation", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            folder = store.path(policy, without=OPTIMIZER)
            rows = read_table(store.path(prompts) / "prompts.parquet").to_pylist()
            tokenizer = load_tokenizer(folder)
            engine = engine_of(folder, policy.digest, settings.engine or EngineSettings())
            stage, updates = (store.manifest(policy).facts[name] for name in ("stage", "updates"))
            title = f"evaluate stage {stage}" if stage else "evaluate base"
        k = settings.samples_per_problem
        samples: list[dict[str, Any]] = []
        with draft.phase("generate"), bar(title, len(rows) * (k + 1)) as progress:
            on_done = advancing(progress)
            for number, part in enumerate(parts(rows, k, settings.responses_per_part)):

                def generate(part: Sequence[Mapping[str, Any]] = part) -> pa.Table:
                    made: list[dict[str, Any]] = []
                    for indices, temperature in ((range(k), settings.temperature), ([GREEDY], 0.0)):
                        sampling = Sampling(settings.max_new_tokens, temperature)
                        made += sample_held_out(engine, tokenizer, part, indices, sampling, seed, on_done)
                    return to_table(made, SAMPLES)

                samples += store.progress.table("samples", number, generate).to_pylist()
                progress.reach(len(samples))
        with draft.phase("verify"), Verifier(verify) as verifier:
            verdicts = verifier.verify([pair(sample) for sample in samples], f"{title} verify")
            check_failures(verdicts, verify, [sample["prompt_id"] for sample in samples])
        for sample, verdict in zip(samples, verdicts, strict=True):
            sample.update(outcome=str(verdict.outcome), reward=verdict.reward, shows_working=verdict.shows_working)
        write_table(draft.path / "samples.parquet", samples, SAMPLES)
        metrics = measure(samples, verdicts, k, seed)
        (draft.path / "metrics.json").write_text(json.dumps(metrics, indent=1))
        draft.facts.update(accuracy=metrics["accuracy"]["value"], greedy=metrics["greedy"]["value"])
        with shown(operation.tracker, store, title, settings.model_dump(mode="json")) as show:
            show("evaluate", {"update": updates, "stage": stage, **draft.facts})
    return draft.ref


def sample_held_out(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Mapping[str, Any]],
    indices: Sequence[int],
    sampling: Sampling,
    seed: int,
    on_done: OnDone = unseen,
) -> list[dict[str, Any]]:
    """Rows of the samples table, still without verdicts."""
    requests = build_requests(
        tokenizer, rows, indices, "evaluate", seed, engine.context_tokens, sampling.max_new_tokens
    )
    responses = engine.generate(requests, sampling, on_done)
    texts = decode(tokenizer, responses)
    per_request = (row for row in rows for _ in indices)
    return [
        {
            "prompt_id": row["prompt_id"],
            "sample_index": request.sample_index,
            "level": row["level"],
            "prompt": row["prompt"],
            "answer": row["answer"],
            "response": text,
            "response_tokens": len(response.token_ids),
            "finish_reason": response.finish_reason,
        }
        for row, request, response, text in zip(per_request, requests, responses, texts, strict=True)
    ]


def measure(samples: Sequence[dict[str, Any]], verdicts: Sequence[Verdict], k: int, seed: int) -> dict[str, Any]:
    """Accuracies with intervals, and means over the sampled responses.

    A response that the verifier could not judge counts as not correct here, and in ``outcomes`` under its own name.
    """
    sampled = [sample for sample in samples if sample["sample_index"] != GREEDY]
    correct_PK = np.array([sample["outcome"] == "correct" for sample in sampled], dtype=np.float64).reshape(-1, k)
    working_PK = np.array([sample["shows_working"] for sample in sampled], dtype=np.float64).reshape(-1, k)
    greedy_P = np.array([sample["outcome"] == "correct" for sample in samples if sample["sample_index"] == GREEDY])
    level_P = [sample["level"] for sample in sampled[::k]]
    return {
        "accuracy": mean_interval(correct_PK, seed),
        "greedy": share_interval(greedy_P),
        "k": k,
        "problems": len(correct_PK),
        "working": mean_interval(working_PK, seed),
        "response_tokens": float(np.mean([sample["response_tokens"] for sample in sampled])),
        "truncated": float(np.mean([sample["finish_reason"] == "length" for sample in sampled])),
        "outcomes": dict(Counter(str(verdict.outcome) for verdict in verdicts)),
        "by_level": {
            str(level): float(correct_PK[[place for place, one in enumerate(level_P) if one == level]].mean())
            for level in sorted({one for one in level_P if one is not None})
        },
    }
