"""Conversion of prompt rows into requests with token ids. Prompts are tokenised nowhere else."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerBase

from tasks.errors import DataError, explained
from tasks.logs import logger
from tasks.rollout.engine import Request, sampling_seed
from tasks.settings.base import DAY


def build_requests(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Mapping[str, Any]],
    samples: Sequence[int],
    purpose: str,
    seed: int,
    context_tokens: int,
    max_new_tokens: int,
) -> list[Request]:
    """Return one request per prompt and sample index, in the order of the prompts, then of the samples.

    Args:
        tokenizer: the policy's.
        prompts: rows of the prompts table.
        samples: sample indices of every prompt.
        purpose: see ``sampling_seed``.
        seed: the run's.
        context_tokens: the policy's longest sequence.
        max_new_tokens: of a response.

    Raises:
        DataError: a prompt has no tokens, ends with the end of a text, or leaves no room for a response of
            ``max_new_tokens``; or see ``token_ids``.
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
    reasons = {
        row["prompt_id"]: _unfit(tokenizer, ids, context_tokens, max_new_tokens)
        for row, ids in zip(prompts, token_ids(tokenizer, prompts), strict=True)
    }
    return {name: reason for name, reason in reasons.items() if reason}


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
            "Lower max_new_tokens, or remove the prompt."
        )
    return ""


def token_ids(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the token ids of every prompt.

    Args:
        tokenizer: the policy's.
        prompts: rows of the prompts table, of which prompt, chat, and the date of a chat count.

    Raises:
        DataError: the tokenizer has no chat template for a chat, or it cannot take a prompt.
    """
    ids: list[list[int]] = [[] for _ in prompts]
    alike: dict[str | None, list[int]] = {}
    for place, row in enumerate(prompts):
        alike.setdefault(row["date"] if row["chat"] else None, []).append(place)
    # All at once: each alone would take several times as long.
    for date, places in alike.items():
        rows = [prompts[place] for place in places]
        found = (
            _chats(tokenizer, rows, date) if date is not None else _plain(tokenizer, [one["prompt"] for one in rows])
        )
        for place, own in zip(places, found, strict=True):
            ids[place] = own
    begin = tokenizer.bos_token_id
    if begin is not None and any(own[:2] == [begin, begin] for own in ids):
        _warn(
            f"prompts begin with {tokenizer.bos_token!r} twice: once is the tokenizer's own doing, or its chat "
            "template's. Remove the other from prompts.template, or from the chat template."
        )
    return ids


@cache
def _warn(text: str) -> None:
    """Warn once, although prompts come in many portions."""
    logger().warning("%s", text)


def _plain(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Tokenise texts, without the tokens that a tokenizer adds to close a text: the policy continues it."""
    with explained("the policy's tokenizer cannot take the prompts", "Use the tokenizer that the policy came with."):
        encoded = tokenizer(list(texts), return_special_tokens_mask=True)
        ids = [list(own) for own in encoded["input_ids"]]
        for own, added in zip(ids, encoded["special_tokens_mask"], strict=True):
            while own and added[len(own) - 1]:
                own.pop()
    return ids


def _chats(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Mapping[str, Any]], date: str) -> list[list[int]]:
    if not tokenizer.chat_template:
        if any(row.get("messages") for row in rows):
            raise DataError("the prompts are messages, but the policy's tokenizer has no chat template.")
        raise DataError(
            "prompts.chat, or chat of a benchmark: true, but the policy's tokenizer has no chat template; allowed: "
            "false."
        )
    chats = [
        json.loads(row["messages"]) if row.get("messages") else [{"role": "user", "content": row["prompt"]}]
        for row in rows
    ]
    today = datetime.strptime(date, DAY)
    advice = "Set prompts.chat: false, or change the template so that it takes a chat of one user's message."
    with explained("the chat template of the policy's tokenizer cannot take the prompts", advice):
        found: list[list[int]] = tokenizer.apply_chat_template(
            chats,
            add_generation_prompt=True,
            return_dict=True,
            # The two ways in which templates ask for today.
            date_string=date,
            strftime_now=today.strftime,
        )["input_ids"]
    return [list(own) for own in found]
