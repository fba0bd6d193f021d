"""The step that samples responses to a shard of prompts."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from transformers import PreTrainedTokenizerBase

from tasks.errors import DataError, explained
from tasks.interruption import heeding
from tasks.models.loading import OPTIMIZER, load_tokenizer, stop_token_ids
from tasks.progress import Bar, bar
from tasks.rollout.engine import MISSING, Engine, Response, Sampling, Work, engine_of
from tasks.rollout.limit import AtLimit
from tasks.rollout.requests import build_requests, unfit_prompts
from tasks.settings import RolloutSettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PROMPTS_FILE, ROLLOUTS_FILE
from tasks.store.tables import ROLLOUTS, read_table, rollouts_schema, table_writer, to_table

OnDone = Callable[[int, int], None]
"""A callback that receives how many more responses are complete, and how many tokens are new."""


def unseen(_responses: int, _tokens: int) -> None:
    """Ignore what is reported."""


@heeding
def generate_shard(
    store: Store, settings: RolloutSettings, policy: ArtifactRef, prompts: ArtifactRef, stage: int, seed: int
) -> ArtifactRef:
    """Sample ``responses_per_prompt`` responses to every prompt of a shard.

    Args:
        store: of policy, prompts and the rollouts.
        settings: how to sample.
        policy: the behavior policy.
        prompts: the shard.
        stage: counts from 0.
        seed: the run's.

    Returns:
        A rollouts artifact with one row per response, those of a prompt beside each other.

    Raises:
        Interrupted: SIGTERM came; the parts that are done are kept.
    """
    parents = {"policy": policy, "prompts": prompts}
    with store.write("rollouts", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            folder = store.path(policy, without=OPTIMIZER)
            rows = read_table(store.path(prompts) / PROMPTS_FILE).to_pylist()
            tokenizer = load_tokenizer(folder)
            engine = engine_of(folder, policy.digest, settings.engine)
            limit = AtLimit(tokenizer, stop_token_ids(folder), f"rollout.max_new_tokens {settings.max_new_tokens}")
            missing = Missing(len(rows) * settings.responses_per_prompt, settings.max_missing_share)
            unfit = unfit_prompts(tokenizer, rows, engine.context_tokens, settings.max_new_tokens)
            for name, reason in unfit.items():
                missing.add(name, settings.responses_per_prompt, reason)
        engine.work = Work()
        seconds: list[float | None] = []
        with (
            draft.phase("generate"),
            bar(f"stage {stage + 1} generate", len(rows) * settings.responses_per_prompt) as progress,
            table_writer(draft.path / ROLLOUTS_FILE, rollouts_schema(settings.max_new_tokens)) as add,
        ):
            on_done = advancing(progress)
            for number, part in enumerate(parts(rows, settings.responses_per_prompt, settings.responses_per_part)):

                def generate(part: Sequence[Mapping[str, Any]] = part) -> pa.Table:
                    began = time.perf_counter()
                    sampled = sample(engine, tokenizer, settings, part, policy.digest, stage, seed, on_done, unfit)
                    seconds[-1] = time.perf_counter() - began
                    return to_table(sampled, ROLLOUTS)

                seconds.append(None)
                table = store.progress.table("rollouts", number, generate)
                for name in table.filter(pc.equal(table["finish_reason"], "missing"))["prompt_id"].to_pylist():
                    if name not in unfit:
                        missing.add(name, 1, "the engine gave it up.")
                add(table)
                limit.add_table(table)
                progress.reach(limit.responses)
        draft.facts.update(
            stage=stage,
            responses=limit.responses,
            response_tokens=limit.tokens / limit.responses,
            truncated=limit.cut / limit.responses,
            missing=missing.responses,
            missing_prompts=missing.prompts,
            tokens_per_second=limit.tokens / draft.spent()["generate"],
            **timed_calls(seconds, [engine.work]),
            **limit.facts(f"stage {stage + 1} generate"),
        )
    return draft.ref


def timed_calls(seconds: Sequence[float | None], work: Sequence[Work]) -> dict[str, Any]:
    """Return facts of rollouts: the seconds of each call of the engine, and what these calls computed.

    Args:
        seconds: of every call, in the order of the rows; None where an attempt that was interrupted had made its
            responses.
        work: of each engine. Several engines share every call, which ends with the slowest.
    """
    return {"call_seconds": list(seconds), "engines": len(work), "engine_work": [one._asdict() for one in work]}


def parts(
    prompts: Sequence[Mapping[str, Any]], responses_per_prompt: int, responses_per_part: int
) -> list[Sequence[Mapping[str, Any]]]:
    """Return the prompts in portions whose responses are generated together.

    Portions never depend on what is done already: an engine's last bits can depend on what shares a batch.
    """
    size = max(1, responses_per_part // responses_per_prompt)
    return [prompts[start : start + size] for start in range(0, len(prompts), size)]


def sample(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    settings: RolloutSettings,
    prompts: Sequence[Mapping[str, Any]],
    policy_digest: str,
    stage: int,
    seed: int,
    on_done: OnDone = unseen,
    unfit: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return rows of the rollouts table for some prompts; responses to ``unfit`` prompts are missing."""
    requests = build_requests(
        tokenizer,
        [row for row in prompts if row["prompt_id"] not in unfit],
        range(settings.responses_per_prompt),
        f"stage {stage}",
        seed,
        engine.context_tokens,
        settings.max_new_tokens,
    )
    responses = engine.generate(requests, Sampling(settings.max_new_tokens, settings.temperature), on_done)
    texts = decode(tokenizer, responses)
    made = {
        (request.prompt_id, request.sample_index): (request.prompt_token_ids, response, text)
        for request, response, text in zip(requests, responses, texts, strict=True)
    }
    rows = []
    for row, index in product(prompts, range(settings.responses_per_prompt)):
        prompt_token_ids, response, text = made.get((row["prompt_id"], index), ([], MISSING, ""))
        rows.append(
            {
                "prompt_id": row["prompt_id"],
                "sample_index": index,
                "prompt": row["prompt"],
                "answer": row["answer"],
                "prompt_token_ids": prompt_token_ids,
                "response_token_ids": response.token_ids,
                "engine_logp": response.logp,
                "finish_reason": response.finish_reason,
                "response": text,
                "policy": policy_digest,
            }
        )
    return rows


class Missing:
    """A count of the responses that could not be generated, of a shard or of a stage that alternates.

    Args:
        total: responses of it.
        max_share: more than this share of them is an error.
    """

    def __init__(self, total: int, max_share: float) -> None:
        self.responses = 0
        self.prompts: list[str] = []
        """Prompts of which at least one response is missing."""
        self._total, self._max_share = total, max_share

    def add(self, prompt_id: str, responses: int, reason: str) -> None:
        """Count missing responses to a prompt.

        Raises:
            DataError: there are too many.
        """
        self.responses += responses
        if not self.prompts or self.prompts[-1] != prompt_id:
            self.prompts.append(prompt_id)
        if self.responses > self._max_share * self._total:
            raise DataError(
                f"{self.responses} of the {self._total} responses cannot be generated; "
                f"rollout.max_missing_share allows {self._max_share:.1%}. The last: prompt {prompt_id!r}: {reason}"
            )


def advancing(progress: Bar) -> OnDone:
    """Return a callback for an engine that shows progress in a bar over responses."""
    tokens = 0

    def on_done(responses: int, new_tokens: int) -> None:
        nonlocal tokens
        tokens += new_tokens
        progress.advance(responses, note=f"{tokens} tokens")

    return on_done


def decode(tokenizer: PreTrainedTokenizerBase, responses: Sequence[Response]) -> list[str]:
    """Return the text of responses, without special tokens."""
    if not responses:
        return []
    with explained("the policy's tokenizer cannot decode responses", "Use the tokenizer that the policy came with."):
        texts: list[str] = tokenizer.batch_decode([r.token_ids.tolist() for r in responses], skip_special_tokens=True)
    return texts
