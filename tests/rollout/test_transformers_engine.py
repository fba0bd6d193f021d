"""The engine's contract: token ids round trip, log-probabilities are the model's, seeds repeat, rows leave."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from tasks.artifacts import ArtifactRef, Store
from tasks.errors import DataError
from tasks.policy.loading import load_model, load_tokenizer, stop_token_ids
from tasks.rollout.engine import Request, Response, Sampling, sampling_seed
from tasks.rollout.requests import build_requests
from tasks.rollout.transformers_engine import TransformersEngine

TWENTY = Sampling(20)
PROMPTS = ["12+3*4=", "5*6=", "(2+3)*4-5=", "99+9*9=", "7="]


@pytest.fixture(scope="module")
def engine(small: tuple[Store, ArtifactRef]) -> TransformersEngine:
    store, policy = small
    return TransformersEngine.load(store.path(policy), batch_size=16)


@pytest.fixture(scope="module")
def requests(small: tuple[Store, ArtifactRef]) -> list[Request]:
    store, policy = small
    rows = [{"prompt_id": text, "prompt": text, "chat": False} for text in PROMPTS]
    return build_requests(load_tokenizer(store.path(policy)), rows, range(5), "stage 0", 0, 64, 20)


def run(engine: TransformersEngine, requests: Sequence[Request], sampling: Sampling = TWENTY) -> list[Response]:
    return engine.generate(requests, sampling, lambda responses, tokens: None)


def test_logp_is_that_of_a_full_forward_pass(
    engine: TransformersEngine, requests: list[Request], small: tuple[Store, ArtifactRef]
) -> None:
    store, policy = small
    model = load_model(store.path(policy), "eager")
    for request, response in zip(requests, run(engine, requests), strict=True):
        ids = torch.tensor([request.prompt_token_ids + response.token_ids.tolist()])
        start = len(request.prompt_token_ids)
        with torch.no_grad():
            full = model(input_ids=ids).logits[0, start - 1 : -1].log_softmax(-1)
        expected = full.gather(1, ids[0, start:, None]).squeeze(1).numpy()
        np.testing.assert_allclose(response.logp, expected, rtol=0, atol=1e-4)


def test_a_response_ends_with_a_stop_token_or_at_the_limit(
    engine: TransformersEngine, requests: list[Request], small: tuple[Store, ArtifactRef]
) -> None:
    store, policy = small
    stop = set(stop_token_ids(store.path(policy)))
    responses = run(engine, requests)
    assert {response.finish_reason for response in responses} == {"stop", "length"}
    for response in responses:
        assert len(response.token_ids) == len(response.logp)
        assert not stop & set(response.token_ids[:-1].tolist())
        if response.finish_reason == "stop":
            assert response.token_ids[-1] in stop
        else:
            assert len(response.token_ids) == 20
            assert response.token_ids[-1] not in stop


def same(first: Response, second: Response) -> bool:
    return first.token_ids.tolist() == second.token_ids.tolist() and first.finish_reason == second.finish_reason


def test_seeds_repeat_whatever_else_is_in_the_batch(engine: TransformersEngine, requests: list[Request]) -> None:
    together = run(engine, requests)
    again = run(engine, requests)
    alone = [run(engine, [request])[0] for request in requests]
    backwards = run(engine, requests[::-1])[::-1]
    for place in range(len(requests)):
        assert same(together[place], again[place])
        assert same(together[place], alone[place])
        assert same(together[place], backwards[place])
    assert len({tuple(response.token_ids) for response in together[:5]}) > 1


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


def test_sampled_tokens_follow_the_distribution(engine: TransformersEngine, requests: list[Request]) -> None:
    many = [Request("p", i, requests[0].prompt_token_ids, sampling_seed(0, "x", "p", i)) for i in range(4000)]
    responses = run(engine, many, Sampling(1))
    counts = np.bincount([response.token_ids[0] for response in responses], minlength=22)
    share = {int(response.token_ids[0]): float(np.exp(response.logp[0])) for response in responses}
    for token, probability in share.items():
        error = 4 * np.sqrt(probability * (1 - probability) / 4000)
        assert abs(counts[token] / 4000 - probability) < error + 1e-3


def test_temperature_zero_takes_the_most_probable_token(
    engine: TransformersEngine, requests: list[Request], small: tuple[Store, ArtifactRef]
) -> None:
    store, policy = small
    model = load_model(store.path(policy))
    request = requests[0]
    response = run(engine, [request], Sampling(20, 0.0))[0]
    ids = torch.tensor([request.prompt_token_ids + response.token_ids.tolist()])
    with torch.no_grad():
        best = model(input_ids=ids).logits[0, len(request.prompt_token_ids) - 1 : -1].argmax(-1)
    assert best.tolist() == response.token_ids.tolist()


def test_no_requests_give_no_responses(engine: TransformersEngine) -> None:
    assert run(engine, []) == []


def test_progress_adds_up(engine: TransformersEngine, requests: list[Request]) -> None:
    seen = [0, 0]

    def on_done(responses: int, tokens: int) -> None:
        seen[0] += responses
        seen[1] += tokens

    responses = engine.generate(requests, Sampling(20), on_done)
    assert seen == [len(requests), sum(len(response.token_ids) for response in responses)]


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


def test_a_prompt_without_tokens_is_named(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    rows = [{"prompt_id": "void", "prompt": "", "chat": False}]
    with pytest.raises(DataError, match="prompt 'void': has no tokens"):
        build_requests(load_tokenizer(store.path(policy)), rows, [0], "stage 0", 0, 64, 20)
