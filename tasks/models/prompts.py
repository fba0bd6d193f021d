"""Token ids of prompts. Prompts are tokenised nowhere else."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerBase

from tasks.errors import DataError, explain
from tasks.process.logs import logger
from tasks.settings.base import DAY


def token_ids(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the token ids of every row of a table of prompts.

    Raises:
        DataError: the tokenizer has no chat template for a chat, or it cannot take a prompt.
    """
    ids: list[list[int]] = [[] for _ in prompts]
    rows_of_date: dict[str | None, list[int]] = {}
    for index, row in enumerate(prompts):
        rows_of_date.setdefault(row["date"] if row["chat"] else None, []).append(index)
    # One call for many rows: a call for each would take several times as long.
    for date, indices in rows_of_date.items():
        rows = [prompts[index] for index in indices]
        tokenised = _text_ids(tokenizer, rows) if date is None else _chat_ids(tokenizer, rows, date)
        for index, prompt_ids in zip(indices, tokenised, strict=True):
            ids[index] = prompt_ids
    begin = tokenizer.bos_token_id
    if begin is not None and any(prompt_ids[:2] == [begin, begin] for prompt_ids in ids):
        _warn(
            f"prompts begin with {tokenizer.bos_token!r} twice: the tokenizer or its chat template adds one. "
            "Remove the other one from prompts.template or from the chat template."
        )
    return ids


@cache
def _warn(text: str) -> None:
    """Warn once per process, although prompts come in many parts."""
    logger().warning("%s", text)


def _text_ids(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Tokenise texts that the policy continues, without the special tokens that a tokenizer adds at their end."""
    with explain("the policy's tokenizer cannot take the prompts", "Use the tokenizer that the policy came with."):
        encoded = tokenizer([row["prompt"] for row in rows], return_special_tokens_mask=True)
        ids = [list(text_ids) for text_ids in encoded["input_ids"]]
        for text_ids, added in zip(ids, encoded["special_tokens_mask"], strict=True):
            while text_ids and added[len(text_ids) - 1]:
                text_ids.pop()
    return ids


def _chat_ids(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Mapping[str, Any]], date: str) -> list[list[int]]:
    has_messages = any(row.get("messages") for row in rows)
    if not tokenizer.chat_template:
        if has_messages:
            raise DataError(
                "the prompts are messages, but the policy's tokenizer has no chat template. Use another tokenizer, or "
                "texts as prompts."
            )
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
    if has_messages:
        advice = "Remove messages that it refuses, such as those of the role system, or change the template."
    with explain("the chat template of the policy's tokenizer cannot take the prompts", advice):
        ids: list[list[int]] = tokenizer.apply_chat_template(
            chats,
            add_generation_prompt=True,
            return_dict=True,
            # Templates read the current date from one of these two.
            date_string=date,
            strftime_now=today.strftime,
        )["input_ids"]
    return [list(chat_ids) for chat_ids in ids]
