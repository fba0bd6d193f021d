"""The replay of generation against the engine itself, and against a simulation that makes every pass."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.artifacts import ArtifactRef, Store
from tasks.reproduce.replay import replay, total
from tasks.reproduce.sampled import Call, Sampled
from tasks.rollout.engine import Request, Sampling
from tasks.rollout.engines import load_engine
from tasks.settings import EngineSettings
from tests.reproduce.planted import PROMPT, sampled, work

engines = st.builds(EngineSettings, kind=st.sampled_from(["transformers", "vllm"]), batch_size=st.integers(1, 12))
lengths = st.lists(st.integers(1, 30), min_size=1, max_size=40)


def all_of(responses: Sampled) -> np.ndarray:
    calls = replay(responses)
    return total(calls, "full") + total(calls, "barrier")


def test_by_hand() -> None:
    """Four rows: at 2 tokens one of four is done and leaves; the next to be done, at 5, is one of three."""
    (call,) = replay(sampled([2, 5, 6, 6], [4], EngineSettings(batch_size=4)))
    # The prompts are read, all rows are in one more pass, three in three more; at 5 one of three leaves: two in one.
    rows = 4 + 3 * 3 + 2
    assert call.slowest[:2] == pytest.approx([6, 4 * PROMPT + rows])
    assert call.full[:2] == pytest.approx([19 / 4, 4 * PROMPT + 1 + 4 + 5 + 5])
    assert call.barrier[:2] == pytest.approx([6 - 19 / 4, rows - 15])


def test_a_row_that_is_done_stays_until_a_quarter_is() -> None:
    (call,) = replay(sampled([2, 9, 9, 9, 9], [5], EngineSettings(batch_size=8)))
    assert call.barrier[1] == 9 - 2  # passes of the row that is done
    assert call.full[0] == pytest.approx((2 + 4 * 9) / 5)


@hypothesis_settings(deadline=None, derandomize=True)
@given(lengths, engines)
def test_it_makes_the_passes_of_a_simulation(tokens: list[int], engine: EngineSettings) -> None:
    responses = sampled(tokens, [len(tokens)], engine)
    assert all_of(responses) == pytest.approx(np.array(work(tokens, engine)))
    barrier = total(replay(responses), "barrier")
    assert (barrier >= -1e-9).all()


@hypothesis_settings(deadline=None, derandomize=True)
@given(lengths, lengths, engines)
def test_every_response_is_made_once_in_another_runs_calls(
    tokens: list[int], calls: list[int], engine: EngineSettings
) -> None:
    ours = sampled(tokens, [len(tokens)], engine)
    other = Sampled(ours.prompt_R, ours.prompt_tokens_R, ours.tokens_R, [Call((size,), None) for size in calls], engine)
    work_of_rows = total(replay(ours, other), "full")[1:]
    assert work_of_rows == pytest.approx(total(replay(ours), "full")[1:])


def test_several_engines_wait_for_the_slowest() -> None:
    tokens = np.array([3, 3, 9, 9])
    made = Sampled(np.arange(4), np.full(4, PROMPT), tokens, [Call((2, 2), 1.0)], EngineSettings(batch_size=8))
    (call,) = replay(made)
    assert call.slowest[0] == 9
    assert call.full[0] + call.barrier[0] == 2 * 9
    assert call.full[0] == 3 + 9


def test_missing_responses_take_nothing() -> None:
    engine = EngineSettings(batch_size=8)
    both = sampled([4, 6], [2], engine)
    with_missing = Sampled(np.arange(3), np.full(3, PROMPT), np.array([4, 0, 6]), [Call((3,), 1.0)], engine)
    assert all_of(with_missing) == pytest.approx(all_of(both))


def test_it_makes_the_passes_of_the_engine(small: tuple[Store, ArtifactRef]) -> None:
    settings = EngineSettings(batch_size=8)
    store, policy = small
    engine = load_engine(store.path(policy), settings)
    seen: Counter[str] = Counter()

    def count(_module: object, _inputs: object, named: dict[str, object]) -> None:
        seen["passes"] += 1
        seen["tokens"] += named["input_ids"].numel()  # type: ignore[attr-defined]  # a tensor

    engine._model.register_forward_pre_hook(count, with_kwargs=True)  # type: ignore[attr-defined]  # of this engine
    prompts = [[5, 6, 7], [5, 9, 7], [8, 6, 7]]
    requests = [Request(str(n), index, ids, 31 * n + index) for n, ids in enumerate(prompts) for index in range(7)]
    responses = engine.generate(requests, Sampling(24), lambda _responses, _tokens: None)
    made = Sampled(
        prompt_R=np.array([[0, 2, 1][int(request.prompt_id)] for request in requests]),
        prompt_tokens_R=np.full(len(requests), 3),
        tokens_R=np.array([len(response.token_ids) for response in responses]),
        calls=[Call((len(requests),), 1.0)],
        engine=settings,
    )
    assert len(set(made.tokens_R.tolist())) > 3
    rank = np.argsort(np.argsort([str(ids) for ids in prompts]))
    made = Sampled(rank[np.repeat(np.arange(3), 7)], made.prompt_tokens_R, made.tokens_R, made.calls, settings)
    assert all_of(made)[:2] == pytest.approx([seen["passes"], seen["tokens"]])
