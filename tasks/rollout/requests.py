"""Make requests with token ids of rows of the prompts table."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from tasks.errors import DataError
from tasks.models.prompts import token_ids
from tasks.rollout.engine import Request, sampling_seed


def build_requests(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Mapping[str, Any]],
    samples: Sequence[int],
    purpose: str,
    seed: int,
    context_tokens: int,
    max_new_tokens: int,
) -> list[Request]:
    """Return a request for each row and each sample index, ordered by row and then by sample.

    ``purpose`` and ``seed`` are those of ``sampling_seed``; ``context_tokens`` is the engine's longest sequence.

    Raises:
        DataError: a prompt has no tokens, ends with the end-of-text token, or leaves no room for a response. See
            ``token_ids`` for others.
    """
    requests = []
    for row, ids in zip(prompts, token_ids(tokenizer, prompts), strict=True):
        if reason := _unfit(tokenizer, ids, context_tokens, max_new_tokens):
            raise DataError(f"prompt {row['prompt_id']!r}: {reason}")
        requests += [
            Request(row["prompt_id"], index, ids, sampling_seed(seed, purpose, row["prompt_id"], index))
            for index in samples
        ]
    return requests


def unfit_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Mapping[str, Any]], context_tokens: int, max_new_tokens: int
) -> dict[str, str]:
    """Return the prompts for which ``build_requests`` would raise, by prompt_id, each with the reason."""
    return {
        row["prompt_id"]: reason
        for row, ids in zip(prompts, token_ids(tokenizer, prompts), strict=True)
        if (reason := _unfit(tokenizer, ids, context_tokens, max_new_tokens))
    }


def _unfit(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], context_tokens: int, max_new_tokens: int) -> str:
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
