"""Which responses of a stage take part, with what reward and what advantage: by hand, and for any groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.settings import PRESETS, AdvantageSettings, ObjectiveSettings, OptimizeSettings
from tasks.train.advantages import Selection, group_advantages, overlong_penalty, select
from tasks.train.batches import Ragged, Responses
from tasks.train.scoring import draws

NAN = float("nan")
LONGEST = 20
rewards = st.sampled_from([0.0, 1.0, 0.1, 0.3, -0.5, NAN])
some_groups = st.lists(st.lists(rewards, min_size=2, max_size=6), min_size=1, max_size=5)
LOGAVGEXP = {"baseline": "logavgexp"}
ONE, HALF = [1, 0, 0, 0], [1, 1, 0, 0]


def settings(name: str, **over: Any) -> ObjectiveSettings:
    return OptimizeSettings.parse({"preset": name, "responses_per_update": 4, "objective": over}).objective


def responses_of(
    groups: Sequence[Sequence[float]], lengths: Sequence[int] | None = None, truncated: Sequence[int] = ()
) -> Responses:
    """Responses of given rewards, group by group."""
    rewards = [reward for group in groups for reward in group]
    sizes = np.asarray(lengths if lengths is not None else [3] * len(rewards), dtype=np.int64)
    response = Ragged(np.zeros(sizes.sum(), dtype=np.int64), np.append(0, sizes.cumsum()))
    prompt = Ragged(np.zeros(len(rewards), dtype=np.int64), np.arange(len(rewards) + 1))
    return Responses(
        prompt_tokens=prompt,
        response_tokens=response,
        engine_logp=Ragged(np.zeros(sizes.sum(), dtype=np.float32), response.offsets),
        reward_R=np.asarray(rewards, dtype=np.float32),
        group_R=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
        truncated_R=np.isin(np.arange(len(rewards)), list(truncated)),
    )


def selected(
    name: str,
    groups: Sequence[Sequence[float]],
    lengths: Sequence[int] | None = None,
    truncated: Sequence[int] = (),
    dropped: Sequence[int] = (),
    seed: Sequence[int] = (0, 0, 0),
    **over: Any,
) -> Selection:
    responses = responses_of(groups, lengths, truncated)
    dropped_R = np.isin(np.arange(len(responses.reward_R)), list(dropped))
    return select(
        responses, settings(name, **over), LONGEST, dropped_R, draws(len(dropped_R), np.arange(len(dropped_R)), seed)
    )


def compared(rewards: Sequence[float], groups: Sequence[int] | None = None, **over: Any) -> torch.Tensor:
    """Advantages without an epsilon; all rewards are of one group unless others are given."""
    return group_advantages(
        torch.tensor(rewards, dtype=torch.float32),
        torch.tensor(groups if groups is not None else [0] * len(rewards), dtype=torch.int64),
        AdvantageSettings.parse(over if over.get("scale") == "none" else {"epsilon": 0, **over}),
    )


def scale(kind: str, **over: Any) -> dict[str, Any]:
    return {"advantage": {"scale": kind, **over}}


@pytest.mark.parametrize(
    ("name", "groups", "over", "expected"),
    [
        ("grpo", [ONE, HALF], scale("std"), [1.5, *[-0.5] * 3, *[0.8660254] * 2, *[-0.8660254] * 2]),
        ("grpo", [ONE, HALF], scale("std_biased"), [1.7320508, *[-0.5773503] * 3, 1, 1, -1, -1]),
        ("grpo", [ONE, HALF], scale("sqrt_eps"), [1.7320508, *[-0.5773503] * 3, 1, 1, -1, -1]),
        # Three of eight rewards are 1: standard deviation 0.5175492.
        ("grpo", [ONE, HALF], scale("batch_std"), [1.4491377, *[-0.4830459] * 3, *[0.9660918] * 2, *[-0.9660918] * 2]),
        ("grpo", [ONE, HALF], scale("none"), [0.75, *[-0.25] * 3, 0.5, 0.5, -0.5, -0.5]),
        ("grpo", [[1, 0]], scale("std", epsilon=0.25), [0.5 / (2**-0.5 + 0.25), -0.5 / (2**-0.5 + 0.25)]),
        ("grpo", [HALF], scale("batch_std", epsilon=0.25), [0.6043390] * 2 + [-0.6043390] * 2),
        ("grpo", [HALF], scale("std_biased", epsilon=0.25), [0.5 / 0.75] * 2 + [-0.5 / 0.75] * 2),
        ("grpo", [HALF], scale("sqrt_eps", epsilon=0.25), [0.5**0.5] * 2 + [-(0.5**0.5)] * 2),
        ("opmd", [ONE], {"advantage": LOGAVGEXP}, [0.6426260, *[-0.3573740] * 3]),
        ("opmd", [[2, 2, 2]], {"advantage": LOGAVGEXP}, [0, 0, 0]),
        # tau log mean exp(R / tau) goes from the mean to the largest reward as tau goes from large to small.
        ("opmd", [ONE], {"advantage": {**LOGAVGEXP, "temperature": 1e6}}, [0.75, *[-0.25] * 3]),
        ("opmd", [ONE], {"advantage": {**LOGAVGEXP, "temperature": 1e-4}}, [1.386e-4, *[1.386e-4 - 1] * 3]),
        # Groups without two different rewards learn a little from all their responses.
        ("asymre", [ONE, [1] * 4, [0] * 4], {}, [0.85, *[-0.15] * 3, *[0.1] * 8]),
        ("topr", [ONE, [1] * 4, [0, 0, NAN, 0]], {}, [0.5, *[-0.5] * 3, *[0.5] * 4, -0.5, -0.5, 0, -0.5]),
        # Rewards 1, 0.5, 0, -1 of mean 0.125 and standard deviation 0.8539, with the penalty of long responses.
        ("dapo", [HALF], {"lengths": [16, 18, 16, 20]}, [1.0246951, 0.4391550, -0.1463850, -1.3174651]),
        ("grpo", [HALF], {"lengths": [16, 18, 16, 20]}, [0.8660254] * 2 + [-0.8660254] * 2),
        # Only so many below the mean of their group as are above it, and none at it.
        ("red_drop", [[1, 1, 1, 0]], {}, [0.25, 0.25, 0.25, -0.75]),
    ],
)
def test_worked_advantages(name: str, groups: list[list[float]], over: dict[str, Any], expected: list[float]) -> None:
    selection = selected(name, groups, **over)
    assert selection.advantage_R.dtype == torch.float32
    # Within what the epsilon of a scale changes.
    assert selection.advantage_R.tolist() == pytest.approx(expected, abs=2e-5)
    assert selection.takes_part_R.all()


def test_the_deviation_of_the_stage_divides_every_group() -> None:
    """Also groups of one response, and those whose rewards are equal where they have an advantage."""
    alone = compared([10, 0, 0, 10, 5], range(5), scale="batch_std")
    assert alone.tolist() == pytest.approx([2, 0, 0, 2, 1])
    groups = compared([1, 1, 1, 1, 1, 0, 0, 0], [0] * 4 + [1] * 4, scale="batch_std", baseline="none")
    assert groups.tolist() == pytest.approx([1 / 0.5175492] * 5 + [0] * 3)
    equal = compared([1, 1, 1], [0, 0, 1], scale="batch_std", baseline="none")
    assert equal.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["std", "std_biased", "none"])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e-30, -7.7, 1e30])
def test_rewards_that_equal_their_mean_give_exactly_zero(kind: str, reward: float) -> None:
    for size in (2, 3, 7, 64):
        assert compared([reward] * size, scale=kind, epsilon=1e-6).tolist() == [0] * size
    assert compared([reward, 2 * reward, 3 * reward], scale=kind, epsilon=1e-6)[1] == 0


@pytest.mark.parametrize(
    ("groups", "kind", "expected", "counts"),
    [
        ([[1, NAN, 0, 0, 1], [NAN, NAN, 0, 0]], "none", [0.5, 0, -0.5, -0.5, 0.5, *[0] * 4], (2, 1, 3)),
        ([[1, NAN], [NAN, NAN]], "std", [0] * 4, (2, 2, 3)),
        ([[1, NAN], [NAN, NAN]], "none", [0] * 4, (2, 2, 3)),
        # A prompt's only response has its reward.
        ([[1], [0.25], [NAN]], "none", [1, 0.25, 0], (3, 1, 1)),
        ([[1], [0.25], [NAN]], "std", [1, 0.25, 0], (3, 1, 1)),
        ([], "std", [], (0, 0, 0)),
    ],
)
def test_responses_without_a_reward_are_left_out_of_the_baseline(
    groups: list[list[float]], kind: str, expected: list[float], counts: tuple[int, int, int]
) -> None:
    got = selected("grpo", groups, **scale(kind))
    assert got.advantage_R.tolist() == expected
    assert (got.groups, got.zero_variance_groups, got.unscored) == counts


@hypothesis_settings(deadline=None, derandomize=True, max_examples=150)
@given(some_groups, st.sampled_from(["std", "std_biased", "none"]), st.data())
def test_groups_do_not_depend_on_each_other(rows: list[list[float]], kind: str, data: st.DataObject) -> None:
    flat = [(reward, group) for group, row in enumerate(rows) for reward in row]
    order = data.draw(st.permutations(range(len(flat))))
    mixed = compared([flat[i][0] for i in order], [10 - 3 * flat[i][1] for i in order], scale=kind)
    back = torch.empty(len(flat)).scatter_(0, torch.tensor(order), mixed)
    alone = [compared(row, scale=kind) for row in rows]
    torch.testing.assert_close(back, torch.cat(alone), rtol=1e-6, atol=1e-7)
    for advantage_R, row in zip(alone, rows, strict=True):
        assert float(advantage_R.sum()) == pytest.approx(0, abs=1e-5)
        assert bool(advantage_R.any()) == (len({reward for reward in row if reward == reward}) > 1)


def test_the_overlong_penalty_worked_numbers() -> None:
    lengths = np.array([1, 16384, 17408, 18432, 20480, 30000])
    assert overlong_penalty(lengths, 20480, 0.2).tolist() == [0, 0, -0.25, -0.5, -1, -1]
    assert overlong_penalty(np.array([0, 10, 20]), 20, 1.0).tolist() == [0, -0.5, -1]


def test_balance_negatives_draws_by_the_seed() -> None:
    seen = set()
    for seed in range(20):
        got = selected("red_drop", [ONE], seed=(7, 1, seed)).advantage_R.tolist()
        assert got[0] == 0.5
        assert sorted(got[1:]) == [-0.5, 0, 0]
        assert got == selected("red_drop", [ONE], seed=(7, 1, seed)).advantage_R.tolist()
        seen.add(got.index(-0.5))
        at_mean = selected("red_drop", [[0.3, 0.2, 0.1]], seed=(7, 1, seed)).advantage_R
        assert at_mean.tolist() == pytest.approx([0.1, 0, -0.1])
    assert seen == {1, 2, 3}
    # A response without a reward is neither above nor below, and every group is balanced by itself.
    selection = selected("red_drop", [[1, NAN, 0, 0], [1, 0, 1, 0]])
    assert sorted(selection.advantage_R.tolist()[:4]) == [-0.5, 0, 0, 0.5]
    assert (selection.advantage_R.tolist()[4:], selection.unscored) == ([0.5, -0.5, 0.5, -0.5], 1)
    assert draws(3, np.array([2, 0, 1]), (7, 1))[[2, 0, 1]].equal(draws(3, np.arange(3), (7, 1))), "not by place"


@pytest.mark.parametrize("name", ["dapo", "red_drop"])
def test_groups_without_variance_are_counted_by_rewards_without_the_penalty_for_length(name: str) -> None:
    data = {"zero_variance": "drop", "overlong_buffer_share": 1}
    selection = selected(name, [[1, 1], [1, 0]], lengths=[1, 4, 1, 4], data=data)
    assert selection.takes_part_R.tolist() == [False, False, True, True]
    assert selection.zero_variance_groups == 1


@pytest.mark.parametrize("name", PRESETS)
def test_groups_without_variance_take_part_unless_the_preset_drops_them(name: str) -> None:
    selection = selected(name, [[1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, NAN]])
    leaves_out = name in ("dapo", "off_policy_grpo")
    assert selection.takes_part_R.tolist() == [True] * 4 + [not leaves_out] * 8
    assert selection.zero_variance_groups == 2
    if name not in ("asymre", "topr"):
        assert selection.advantage_R[4:].tolist() == [0] * 8


def test_masked_truncated_responses_are_compared_but_not_trained_on() -> None:
    groups = [[1, 0, 0, 0], [1, 1, 0, 0]]
    got = selected("grpo", groups, truncated=[3, 6, 7], data={"truncated": "mask"})
    assert got.takes_part_R.tolist() == [True, True, True, False, True, True, False, False]
    assert got.advantage_R.tolist() == pytest.approx([1.5, -0.5, -0.5, 0, 0.8660254, 0.8660254, 0, 0], abs=2e-5)
    assert got.unscored == 0
    kept = selected("grpo", groups, truncated=[3, 6, 7])
    assert torch.equal(kept.advantage_R, selected("grpo", groups).advantage_R)
    # What is left of the second group has one reward; as a whole it has two.
    both = {"truncated": "mask", "zero_variance": "drop"}
    assert selected("grpo", groups, truncated=[3, 6, 7], data=both).takes_part_R.tolist() == got.takes_part_R.tolist()


@pytest.mark.parametrize("name", PRESETS)
def test_responses_that_cannot_be_used_take_no_part(name: str) -> None:
    got = selected(name, [[1, 0, 0, 1, NAN], [1, 1, 0, 0, NAN]], lengths=[3, 3, 3, 3, 0] * 2, dropped=[1, 7])
    assert got.takes_part_R.tolist() == [place not in (1, 4, 7, 9) for place in range(10)]
    assert got.advantage_R[[1, 4, 7, 9]].tolist() == [0, 0, 0, 0]
    assert torch.isfinite(got.advantage_R).all()
