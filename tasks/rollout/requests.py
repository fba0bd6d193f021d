"""Prompt rows become requests with token ids: the only place where prompts are tokenised."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from tasks.errors import DataError
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
    """One request per prompt and sample index, prompts in their order, the samples of a prompt beside each other.

    Args:
        tokenizer: the policy's.
        prompts: rows of the prompts table.
        samples: sample indices of every prompt.
        purpose: see ``sampling_seed``.
        seed: the run's.
        context_tokens: the policy's longest sequence.
        max_new_tokens: of a response.

    Raises:
        DataError: a prompt has no tokens, or leaves no room for a response of ``max_new_tokens``.
    """
    requests = []
    for row, ids in zip(prompts, _token_ids(tokenizer, prompts), strict=True):
        if reason := _unfit(ids, context_tokens, max_new_tokens):
            raise DataError(f"prompt {row['prompt_id']!r}: {reason}")
        requests += [
            Request(row["prompt_id"], index, ids, sampling_seed(seed, purpose, row["prompt_id"], index))
            for index in samples
        ]
    return requests


def unfit_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Mapping[str, Any]], context_tokens: int, max_new_tokens: int
) -> dict[str, str]:
    """Prompts for which ``build_requests`` would raise, each with the reason, by prompt_id."""
    reasons = {
        row["prompt_id"]: _unfit(ids, context_tokens, max_new_tokens)
        for row, ids in zip(prompts, _token_ids(tokenizer, prompts), strict=True)
    }
    return {name: reason for name, reason in reasons.items() if reason}


def _unfit(ids: Sequence[int], context_tokens: int, max_new_tokens: int) -> str:
    if not ids:
        return "has no tokens. Remove it or mend prompts.template."
    if len(ids) + max_new_tokens > context_tokens:
        return (
            f"{len(ids)} tokens and max_new_tokens {max_new_tokens} exceed the policy's context of {context_tokens}. "
            "Lower max_new_tokens, or remove the prompt."
        )
    return ""


def _token_ids(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Of every prompt; all plain ones at once, and all chats, of which each alone would take several times as long."""
    ids: list[list[int]] = [[] for _ in prompts]
    for chat in (False, True):
        places = [place for place, row in enumerate(prompts) if bool(row["chat"]) is chat]
        if not places:
            continue
        rows = [prompts[place] for place in places]
        found = _chats(tokenizer, rows) if chat else tokenizer([row["prompt"] for row in rows])["input_ids"]
        for place, own in zip(places, found, strict=True):
            ids[place] = list(own)
    return ids


def _chats(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    if not tokenizer.chat_template:
        if any(row.get("messages") for row in rows):
            raise DataError("the prompts are messages, but the policy's tokenizer has no chat template.")
        raise DataError("prompts.chat: true, but the policy's tokenizer has no chat template; allowed: false.")
    chats = [
        json.loads(row["messages"]) if row.get("messages") else [{"role": "user", "content": row["prompt"]}]
        for row in rows
    ]
    found: list[list[int]] = tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]
    return found
