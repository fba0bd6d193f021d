"""Prompts become requests: tokenised here alone, seeded for each response, refused when there is no room."""

import json

import pytest

from tasks.artifacts import ArtifactRef, Store
from tasks.errors import DataError
from tasks.policy.loading import load_tokenizer
from tasks.rollout.engine import sampling_seed
from tasks.rollout.requests import build_requests


def test_seeds_differ_by_run_purpose_prompt_and_sample() -> None:
    seeds = {
        sampling_seed(run, purpose, prompt, sample)
        for run in (0, 1)
        for purpose in ("stage 0", "evaluate")
        for prompt in ("a", "b")
        for sample in (0, 1)
    }
    assert len(seeds) == 16
    assert sampling_seed(0, "stage 0", "a", 0) == 16608217809209817657


def test_a_prompt_longer_than_the_context_is_named(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    rows = [{"prompt_id": "long", "prompt": "1+" * 30, "chat": False}]
    with pytest.raises(DataError, match=r"prompt 'long': 60 tokens and max_new_tokens 20 exceed .* context of 64"):
        build_requests(load_tokenizer(store.path(policy)), rows, [0], "stage 0", 0, 64, 20)


def test_a_chat_prompt_needs_a_chat_template(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    tokenizer = load_tokenizer(store.path(policy))
    rows = [{"prompt_id": "a", "prompt": "1+1=", "chat": True}]
    with pytest.raises(DataError, match="no chat template"):
        build_requests(tokenizer, rows, [0], "stage 0", 0, 64, 20)
    tokenizer.chat_template = (
        "{% for m in messages %}({{ m['content'] }}){% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    request = build_requests(tokenizer, rows, [0], "stage 0", 0, 64, 20)[0]
    assert tokenizer.decode(request.prompt_token_ids) == "(1+1=)="


def test_messages_go_through_the_chat_template_as_they_are(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    tokenizer = load_tokenizer(store.path(policy))
    messages = [{"role": "system", "content": "2"}, {"role": "user", "content": "1+1="}]
    rows = [
        {"prompt_id": "a", "prompt": "1+1=", "chat": True, "messages": json.dumps(messages)},
        {"prompt_id": "b", "prompt": "1+2=", "chat": True, "messages": None},
    ]
    with pytest.raises(DataError, match="the prompts are messages, but the policy's tokenizer has no chat template"):
        build_requests(tokenizer, rows, [0], "stage 0", 0, 64, 20)
    tokenizer.chat_template = "{% for m in messages %}({{ m['content'] }}){% endfor %}="
    requests = build_requests(tokenizer, rows, [0], "stage 0", 0, 64, 20)
    assert [tokenizer.decode(one.prompt_token_ids) for one in requests] == ["(2)(1+1=)=", "(1+2=)="]


def test_a_prompt_without_tokens_is_named(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    rows = [{"prompt_id": "void", "prompt": "", "chat": False}]
    with pytest.raises(DataError, match="prompt 'void': has no tokens"):
        build_requests(load_tokenizer(store.path(policy)), rows, [0], "stage 0", 0, 64, 20)
