"""The step that generates responses to a shard of prompts, and the requests that an engine gets for them."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from transformers import PreTrainedTokenizerBase

from tasks.errors import DataError, explain
from tasks.formats import percent
from tasks.models.loading import OPTIMIZER, load_tokenizer, stop_token_ids
from tasks.models.prompts import token_ids
from tasks.process.interruption import save_on_sigterm, stop_if_late
from tasks.process.logs import Bar, bar, logger
from tasks.rollout.engine import MISSING, Engine, OnDone, Request, Response, Sampling, Work, engine_of, ignore_progress
from tasks.settings import RolloutSettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PROMPTS_FILE, ROLLOUTS_FILE
from tasks.store.tables import ROLLOUTS, read_table, rollouts_schema, table_writer, to_table

NEARLY_ALL = 0.9
"""A warning is given if at least this share of the responses ends at the limit."""
_MAJORITY = 0.5
"""If at least this share of the responses at the limit has the same first special token, the warning proposes it as a
stop token."""


@save_on_sigterm
def generate_shard(
    store: Store, settings: RolloutSettings, policy: ArtifactRef, prompts: ArtifactRef, stage: int, seed: int
) -> ArtifactRef:
    """Sample ``responses_per_prompt`` responses to every prompt of a shard; ``stage`` counts from 0.

    Returns:
        A rollouts artifact with a row for each response; the responses to a prompt are consecutive.

    Raises:
        DataError: too many responses are missing.
        Interrupted: SIGTERM came; the responses of completed calls are kept.
    """
    parents = {"policy": policy, "prompts": prompts}
    title = f"stage {stage + 1} generate"
    with store.write("rollouts", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            folder = store.path(policy, without=OPTIMIZER)
            rows = read_table(store.path(prompts) / PROMPTS_FILE).to_pylist()
            tokenizer = load_tokenizer(folder)
            engine = engine_of(folder, policy.digest, settings.engine)
            counts = RolloutCounts(tokenizer, folder, settings, rows, engine.context_tokens)
            ids = counts.token_ids
        engine.work = Work()
        seconds: list[float | None] = []
        with (
            draft.phase("generate"),
            bar(title, counts.total) as progress,
            table_writer(draft.path / ROLLOUTS_FILE, rollouts_schema(settings.max_new_tokens)) as add,
        ):
            on_done = progress_callback(progress)
            for number, chunk in enumerate(prompts_by_call(rows, settings.prompts_per_call)):

                def generate(chunk: Sequence[Mapping[str, Any]] = chunk) -> pa.Table:
                    began = time.perf_counter()
                    sampled = sample(engine, tokenizer, settings, chunk, ids, policy.digest, stage, seed, on_done)
                    seconds[-1] = time.perf_counter() - began
                    return to_table(sampled, ROLLOUTS)

                seconds.append(None)
                table = store.progress.table("rollouts", number, generate)
                counts.add(table)
                add(table)
                progress.reach(counts.rows)
        lengths = counts.lengths
        draft.facts.update(
            stage=stage + 1,
            responses=counts.rows,
            response_tokens=lengths.tokens / lengths.responses if lengths.responses else None,
            truncated=lengths.truncated / lengths.responses if lengths.responses else None,
            tokens_per_second=lengths.tokens / draft.spent()["generate"],
            **counts.facts(title, seconds, [engine.work]),
        )
    return draft.ref


def prompts_by_call(prompts: Sequence[Mapping[str, Any]], per_call: int) -> list[Sequence[Mapping[str, Any]]]:
    """Return the prompts of each call of an engine.

    They do not depend on the calls that an interrupted attempt has made, because the last bits of an engine's numbers
    can depend on what shares a batch.
    """
    return [prompts[start : start + per_call] for start in range(0, len(prompts), per_call)]


def sample(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    settings: RolloutSettings,
    prompts: Sequence[Mapping[str, Any]],
    token_ids: Mapping[str, list[int]],
    policy_digest: str,
    stage: int,
    seed: int,
    on_done: OnDone = ignore_progress,
) -> list[dict[str, Any]]:
    """Generate responses, and return them as rows of the rollouts table.

    ``token_ids`` are those of prompts by prompt_id; responses to prompts that are not there are missing.
    """
    fit = {name: token_ids[name] for row in prompts if (name := row["prompt_id"]) in token_ids}
    samples = range(settings.responses_per_prompt)
    requests = build_requests(fit, samples, f"stage {stage}", seed)
    responses = engine.generate(requests, Sampling(settings.max_new_tokens, settings.temperature), on_done)
    prompt_ids = [request.prompt_token_ids for request in requests]
    generated = zip(prompt_ids, responses, decode(tokenizer, responses), strict=True)
    rows = []
    for row, index in product(prompts, samples):
        ids, response, text = next(generated) if row["prompt_id"] in fit else ([], MISSING, "")
        rows.append(
            {
                "prompt_id": row["prompt_id"],
                "sample_index": index,
                "prompt": row["prompt"],
                "answer": row["answer"],
                "prompt_token_ids": ids,
                "response_token_ids": response.token_ids,
                "engine_logp": response.logp,
                "finish_reason": response.finish_reason,
                "response": text,
                "policy": policy_digest,
            }
        )
    return rows


def build_requests(
    token_ids: Mapping[str, list[int]], samples: Sequence[int], purpose: str, seed: int
) -> list[Request]:
    """Return a request for each prompt, given by prompt_id, and each sample index, ordered by prompt and then sample.

    ``purpose`` and ``seed`` are those of ``sampling_seed``.
    """
    return [
        Request(name, index, ids, sampling_seed(seed, purpose, name, index))
        for name, ids in token_ids.items()
        for index in samples
    ]


def tokenise(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Mapping[str, Any]], context_tokens: int, max_new_tokens: int
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return the token ids of prompts that can have a response, and why each of the others cannot, both by prompt_id.

    ``context_tokens`` is the engine's longest sequence.

    Raises:
        DataError: see ``token_ids``.
    """
    fit: dict[str, list[int]] = {}
    unfit: dict[str, str] = {}
    for row, ids in zip(prompts, token_ids(tokenizer, prompts), strict=True):
        if reason := _unfit(tokenizer, ids, context_tokens, max_new_tokens):
            unfit[row["prompt_id"]] = reason
        else:
            fit[row["prompt_id"]] = ids
    return fit, unfit


def tokenise_all(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Mapping[str, Any]], context_tokens: int, max_new_tokens: int
) -> dict[str, list[int]]:
    """Return the token ids of prompts by prompt_id; see ``tokenise``.

    Raises:
        DataError: a prompt has no tokens, ends with the end-of-text token, or leaves no room for a response.
    """
    fit, unfit = tokenise(tokenizer, prompts, context_tokens, max_new_tokens)
    for name, reason in unfit.items():
        raise DataError(f"prompt {name!r}: {reason}")
    return fit


def sampling_seed(run_seed: int, purpose: str, prompt_id: str, sample_index: int) -> int:
    """Return the seed of a response, which does not depend on the machine or on the rest of the batch.

    ``purpose`` is ``stage 0``, ``stage 1``, ..., or ``evaluate``.
    """
    text = f"{run_seed}/{purpose}/{prompt_id}/{sample_index}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _unfit(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], context_tokens: int, max_new_tokens: int) -> str:
    """Return why a prompt can have no response; empty if it can have one."""
    if not ids:
        return "has no tokens. Remove it, or change prompts.template."
    if ids[-1] == tokenizer.eos_token_id:
        return (
            f"ends with {tokenizer.eos_token!r}, the end of a text to the policy's tokenizer: nothing follows it. "
            "Remove it from prompts.template, or from the end of the tokenizer's chat template."
        )
    if len(ids) + max_new_tokens > context_tokens:
        return (
            f"{len(ids)} tokens and max_new_tokens {max_new_tokens} exceed the policy's context of {context_tokens}. "
            "Lower max_new_tokens, raise max_model_len of the engine if it is set, or remove the prompt."
        )
    return ""


class LengthCount:
    """Counts responses, their tokens, and the responses that end at the limit of tokens, not with one of ``stop_ids``.

    ``limit`` is setting and value of the limit, such as ``rollout.max_new_tokens 512``.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_ids: Iterable[int], limit: str) -> None:
        self._tokenizer, self._stop_ids, self._limit = tokenizer, list(stop_ids), limit
        special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        self._special = np.array(sorted(special - set(self._stop_ids)), dtype=np.int64)
        self.responses = self.truncated = self.tokens = 0
        self._first_special: Counter[int] = Counter()

    def add(self, token_ids: npt.NDArray[np.int32], finish_reason: str) -> None:
        """Count a response."""
        self.responses += 1
        self.tokens += len(token_ids)
        if finish_reason == "length":
            self.truncated += 1
            special = token_ids[np.isin(token_ids, self._special)]
            self._first_special.update(special[:1].tolist())

    def facts(self, title: str, counts: tuple[int, int] | None = None) -> dict[str, Any]:
        """Return facts for a manifest: a warning, also logged, where nearly all responses end at the limit.

        ``counts`` are the numbers of all responses and of those that end at the limit, if ``add`` did not count all.
        """
        responses, truncated = counts or (self.responses, self.truncated)
        if truncated < max(1, NEARLY_ALL * responses):
            return {}
        stops = ", ".join(map(self._token_name, self._stop_ids))
        warning = (
            f"{title}: {percent(truncated / responses)} of {responses} responses end at {self._limit}, "
            f"without a stop token ({stops}). {self._suggest_fix()}"
        )
        logger().warning("%s", warning)
        return {"warning": warning}

    def _suggest_fix(self) -> str:
        for token, count in self._first_special.most_common(1):
            if (share := count / self.truncated) >= _MAJORITY:
                return (
                    f"{percent(share)} of them continue after {self._token_name(token)}: to stop there, add {token} to "
                    "eos_token_id in the generation_config.json of the base policy."
                )
        name = self._limit.split()[0]
        return f"Raise {name}, or ask for a shorter answer, or for an end, as the policy was trained to write it."

    def _token_name(self, token: int) -> str:
        return f"{self._tokenizer.convert_ids_to_tokens(token)} {token}"


class RolloutCounts:
    """Counts the responses to the prompts of a shard, or of a stage in which generation and training alternate.

    Raises:
        DataError: more responses are missing than ``max_missing_share`` allows; also raised by ``add``.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        folder: Path,
        settings: RolloutSettings,
        prompts: Sequence[Mapping[str, Any]],
        context_tokens: int,
    ) -> None:
        self.total = len(prompts) * settings.responses_per_prompt
        limit = f"rollout.max_new_tokens {settings.max_new_tokens}"
        self.lengths = LengthCount(tokenizer, stop_token_ids(folder), limit)
        self.token_ids, unfit = tokenise(tokenizer, prompts, context_tokens, settings.max_new_tokens)
        """Token ids of the prompts that get responses, by prompt_id."""
        self.rows = 0
        """Responses so far, with the missing ones, which ``lengths`` leaves out."""
        self._prompt_tokens = 0
        self._max_share = settings.max_missing_share
        self._missing: Counter[str] = Counter()
        for name, reason in unfit.items():
            self._count_missing(name, settings.responses_per_prompt, reason)

    def add(self, rollouts: pa.Table) -> None:
        """Count rows of the rollouts table."""
        self.rows += rollouts.num_rows
        for name in rollouts.filter(pc.equal(rollouts["finish_reason"], "missing"))["prompt_id"].to_pylist():
            if name in self.token_ids:
                self._count_missing(name, 1, "the engine did not complete it.")
        generated = rollouts.filter(pc.not_equal(rollouts["finish_reason"], "missing"))
        self._prompt_tokens += pc.sum(pc.list_value_length(generated["prompt_token_ids"])).as_py() or 0
        for ids, reason in zip(generated["response_token_ids"], generated["finish_reason"].to_pylist(), strict=True):
            self.lengths.add(ids.values.to_numpy(), reason)

    def facts(self, title: str, seconds: Sequence[float | None], work: Sequence[Work]) -> dict[str, Any]:
        """Return facts of rollouts: the calls of engines, missing responses, tokens, and ``LengthCount.facts``.

        ``seconds`` are those of each call, None if an interrupted attempt made it; ``work`` is that of each engine.
        Several engines share every call, which ends with the slowest.
        """
        return {
            "call_seconds": list(seconds),
            "engines": len(work),
            "engine_work": [counts._asdict() for counts in work],
            "missing": self._missing.total(),
            "missing_prompts": list(self._missing),
            "tokens": self.lengths.tokens,
            "prompt_tokens": self._prompt_tokens,
            **self.lengths.facts(title),
        }

    def _count_missing(self, prompt_id: str, responses: int, reason: str) -> None:
        self._missing[prompt_id] += responses
        if (missing := self._missing.total()) > self._max_share * self.total:
            raise DataError(
                f"{missing} of the {self.total} responses cannot be generated; "
                f"rollout.max_missing_share allows {percent(self._max_share)}. The last: prompt {prompt_id!r}: {reason}"
            )


def progress_callback(progress: Bar) -> OnDone:
    """Return a callback for an engine that advances a bar over responses, and ends a call that SIGTERM cannot await."""
    tokens = 0

    def on_done(responses: int, new_tokens: int) -> None:
        nonlocal tokens
        stop_if_late()
        tokens += new_tokens
        progress.advance(responses, note=f"{tokens} tokens")

    return on_done


def decode(tokenizer: PreTrainedTokenizerBase, responses: Sequence[Response]) -> list[str]:
    """Return the texts of responses, without special tokens, and with the spaces before punctuation kept."""
    if not responses:
        return []
    whole = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    with explain("the policy's tokenizer cannot decode responses", "Use the tokenizer that the policy came with."):
        texts: list[str] = tokenizer.batch_decode([r.token_ids.tolist() for r in responses], **whole)
    return texts
