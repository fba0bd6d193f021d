"""Prompts become requests: tokenised here alone, seeded for each response, refused when there is no room."""

import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from tasks.errors import DataError
from tasks.models import prompts
from tasks.models.loading import load_tokenizer
from tasks.models.prompts import token_ids
from tasks.rollout.engine import Response
from tasks.rollout.step import decode, sampling_seed, tokenise_all
from tasks.settings import PromptsSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tests.llama import CHATML, byte_tokenizer
from tests.prepared import prepare_held_out, prepare_prompts

DATE = "26 Jul 2024"


def test_seeds_differ_by_run_purpose_prompt_and_sample() -> None:
    seeds = {sampling_seed(*inputs) for inputs in product((0, 1), ("stage 0", "evaluate"), "ab", (0, 1))}
    assert len(seeds) == 16
    assert sampling_seed(0, "stage 0", "a", 0) == 16608217809209817657


def row(prompt: str, chat: bool = False, date: str = DATE, messages: str | None = None) -> dict[str, Any]:
    return {"prompt_id": prompt, "prompt": prompt, "chat": chat, "date": date, "messages": messages}


def text(tokenizer: PreTrainedTokenizerFast, asked: dict[str, Any]) -> str:
    (ids,) = token_ids(tokenizer, [asked])
    return str(tokenizer.decode(ids))


MESSAGES = json.dumps([{"role": "system", "content": "2"}, {"role": "user", "content": "1+1="}])
ASKED = [row("1+1=", chat=True, messages=MESSAGES), row("1+2=", chat=True)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (row(""), "prompt '': has no tokens"),
        (ASKED[1], "chat of a benchmark: true, but the policy's tokenizer has no chat template"),
        (ASKED[0], "the prompts are messages, but the policy's tokenizer has no chat template"),
    ],
)
def test_unusable_prompts_are_named(base: Path, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        tokenise_all(load_tokenizer(base), [asked], 64, 20)


def test_chats_go_through_the_chat_template_and_messages_as_they_are(base: Path) -> None:
    tokenizer = load_tokenizer(base)
    ask = "{% if add_generation_prompt %}={% endif %}"
    tokenizer.chat_template = "{% for m in messages %}({{ m['content'] }}){% endfor %}" + ask
    ids = tokenise_all(tokenizer, ASKED, 64, 20)
    assert list(map(tokenizer.decode, ids.values())) == ["(2)(1+1=)=", "(1+2=)="]


@pytest.fixture(params=["Pacific/Kiritimati", "Etc/GMT+12"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two time zones in which it is never the same day."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ strftime_now('%d %b %Y') }}|", "26 Jul 2024|"),
        ("{{ strftime_now('%Y-%m-%d %H:%M') }}|", "2024-07-26 00:00|"),
        ("{{ date_string }}|", "26 Jul 2024|"),
        # As in Llama 3.2.
        (
            "{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}"
            "Today Date: {{ date_string }}|",
            "Today Date: 26 Jul 2024|",
        ),
    ],
)
def test_a_template_that_asks_for_today_gets_the_date_of_the_prompt(zone: str, template: str, expected: str) -> None:
    tokenizer = byte_tokenizer(template=template + CHATML)
    found = text(tokenizer, row("1+1=", chat=True))
    assert found == f"{expected}<|im_start|>user\n1+1=<|im_end|>\n<|im_start|>assistant\n"
    assert text(tokenizer, row("1+1=", chat=True, date="01 Feb 2030")) != found


def test_the_date_is_part_of_chats_and_of_no_other_prompts(store: Store) -> None:
    def prepared(**changes: Any) -> tuple[ArtifactRef, ArtifactRef]:
        settings = PromptsSettings.parse({"arithmetic": {"levels": [1]}, "prompts_per_stage": 4, **changes})
        return prepare_held_out(store, settings, 4), *prepare_prompts(store, settings, 0, 0)  # type: ignore[return-value]

    plain, chats = prepared(), prepared(chat=True)
    assert prepared(date="1 Feb 2030") == plain
    for ref, other in zip(chats, prepared(chat=True, date="1 Feb 2030"), strict=True):
        assert ref != other
        assert store.manifest(other).settings["date"] == "01 Feb 2030"
        assert set(read_table(store.path(ref) / "prompts.parquet")["date"].to_pylist()) == {DATE}


def test_a_prompt_that_leaves_no_room_for_a_response_is_refused_with_ways_out() -> None:
    told = "'1.1=': 4 tokens and max_new_tokens 20 exceed .* context of 23. Lower max_new_tokens, raise max_model_len"
    with pytest.raises(DataError, match=told):
        tokenise_all(byte_tokenizer(), [row("1+1=")], 23, 20)
    assert len(tokenise_all(byte_tokenizer(), [row("1+1=")], 24, 20)) == 1


@pytest.mark.parametrize("adds", ["<s> $A </s>", "$A </s>", "<s> $A </s> </s>", "<s> $A"])
def test_tokens_that_close_a_text_are_left_off_prompts(adds: str) -> None:
    begin = "<s>" if adds.startswith("<s>") else ""
    tokenizer = byte_tokenizer(adds=adds)
    assert text(tokenizer, row("1+1=")) == f"{begin}1+1="
    assert text(tokenizer, row("a</s>b")) == f"{begin}a</s>b"


def test_a_tokenizer_that_cleans_up_spaces_leaves_those_of_responses() -> None:
    tokenizer, program = byte_tokenizer(), "s = ' '.join(a) != b"
    tokenizer.clean_up_tokenization_spaces = True
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    assert tokenizer.decode(ids := tokenizer(program)["input_ids"]) != program
    assert decode(tokenizer, [Response(np.array([*ids, 1]), np.zeros(len(ids) + 1), "stop")]) == [program]


@pytest.mark.parametrize(
    ("template", "asked"),
    [(None, row("1+1=</s>")), ("{{ messages[0]['content'] }}{{ eos_token }}", row("1+1=", chat=True))],
)
def test_a_prompt_that_ends_with_the_end_of_a_text_is_refused(template: str | None, asked: dict[str, Any]) -> None:
    tokenizer = byte_tokenizer(template=template)
    with pytest.raises(DataError, match=r"prompt '1\+1=.*': ends with '</s>', the end of a text to the policy's"):
        tokenise_all(tokenizer, [asked], 64, 20)


@pytest.mark.parametrize(
    ("adds", "template", "asked", "times"),
    [
        ("<s> $A", None, row("<s>12="), 2),
        ("$A", "{{ bos_token }}{{ bos_token }}{{ messages[0]['content'] }}", row("13=", chat=True), 2),
        ("<s> $A", "{{ bos_token }}{{ messages[0]['content'] }}", row("14=", chat=True), 1),
        ("<s> $A", None, row("15="), 1),
    ],
)
def test_a_doubled_bos_token_is_warned_of_once(
    adds: str, template: str | None, asked: dict[str, Any], times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts._warn.cache_clear()
    tokenizer = byte_tokenizer(adds=adds, template=template)
    for _ in range(3):
        (ids,) = token_ids(tokenizer, [asked])
        assert ids.count(0) == times
    assert capsys.readouterr().out.count("prompts begin with '<s>' twice") == times - 1
