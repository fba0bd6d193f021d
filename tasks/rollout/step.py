"""A shard of prompts becomes rollouts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import ROLLOUTS, read_table, write_table
from tasks.policy.loading import load_tokenizer
from tasks.progress import bar
from tasks.rollout.engine import Engine, Request, Response, Sampling
from tasks.rollout.requests import build_requests
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import RolloutSettings


def generate_shard(
    store: Store, settings: RolloutSettings, policy: ArtifactRef, prompts: ArtifactRef, stage: int, seed: int
) -> ArtifactRef:
    """Samples ``responses_per_prompt`` responses to every prompt of a shard.

    Args:
        store: of policy, prompts and the rollouts.
        settings: how to sample.
        policy: the behavior policy.
        prompts: the shard.
        stage: counts from 0.
        seed: the run's.

    Returns:
        A rollouts artifact with one row per response, those of a prompt beside each other.
    """
    with store.write("rollouts", settings=settings, parents={"policy": policy, "prompts": prompts}, seed=seed) as draft:
        with draft.phase("load"):
            folder = store.path(policy)
            rows = read_table(store.path(prompts) / "prompts.parquet").to_pylist()
            tokenizer = load_tokenizer(folder)
            engine = TransformersEngine.load(folder, settings.batch_size)
        with draft.phase("generate"):
            rollouts = sample(engine, tokenizer, settings, rows, policy.digest, stage, seed)
            write_table(draft.path / "rollouts.parquet", rollouts, ROLLOUTS)
        tokens = sum(len(row["response_token_ids"]) for row in rollouts)
        draft.facts.update(
            stage=stage,
            responses=len(rollouts),
            response_tokens=tokens / len(rollouts),
            truncated=float(np.mean([row["finish_reason"] == "length" for row in rollouts])),
            tokens_per_second=tokens / draft.phases["generate"],
        )
    return draft.ref


def sample(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    settings: RolloutSettings,
    prompts: Sequence[Mapping[str, Any]],
    policy_digest: str,
    stage: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of the rollouts table for some prompts."""
    requests = build_requests(
        tokenizer,
        prompts,
        range(settings.responses_per_prompt),
        f"stage {stage}",
        seed,
        engine.context_tokens,
        settings.max_new_tokens,
    )
    sampling = Sampling(settings.max_new_tokens, settings.temperature)
    responses = generate_with_progress(engine, requests, sampling, f"stage {stage + 1} generate")
    texts = decode(tokenizer, responses)
    return [
        {
            "prompt_id": row["prompt_id"],
            "sample_index": request.sample_index,
            "prompt": row["prompt"],
            "answer": row["answer"],
            "prompt_token_ids": request.prompt_token_ids,
            "response_token_ids": response.token_ids,
            "engine_logp": response.logp,
            "finish_reason": response.finish_reason,
            "response": text,
            "policy": policy_digest,
        }
        for row, request, response, text in zip(
            (row for row in prompts for _ in range(settings.responses_per_prompt)),
            requests,
            responses,
            texts,
            strict=True,
        )
    ]


def generate_with_progress(
    engine: Engine, requests: Sequence[Request], sampling: Sampling, title: str
) -> list[Response]:
    """``engine.generate`` under a progress bar over responses."""
    tokens = 0
    with bar(title, len(requests)) as progress:

        def on_done(responses: int, new_tokens: int) -> None:
            nonlocal tokens
            tokens += new_tokens
            progress.advance(responses, note=f"{tokens} tokens")

        return engine.generate(requests, sampling, on_done)


def decode(tokenizer: PreTrainedTokenizerBase, responses: Sequence[Response]) -> list[str]:
    """The text of responses, without special tokens."""
    texts: list[str] = tokenizer.batch_decode([r.token_ids.tolist() for r in responses], skip_special_tokens=True)
    return texts
