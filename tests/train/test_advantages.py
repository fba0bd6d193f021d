"""Advantages by hand, and what rounding, missing rewards and lone responses do to them."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.errors import SettingsError
from tasks.settings import AdvantageSettings
from tasks.train.advantages import Advantages, group_advantages

NAN = float("nan")


def advantages(rewards: list[float], groups: list[int] | None = None, **settings: Any) -> Advantages:
    return group_advantages(
        torch.tensor(rewards, dtype=torch.float32),
        torch.tensor(groups if groups is not None else [0] * len(rewards), dtype=torch.int64),
        AdvantageSettings.parse({"epsilon": 0, **settings}),
    )


@pytest.mark.parametrize(
    ("scale", "rewards", "expected"),
    [
        ("std", [1, 0, 0, 1], [0.8660254, -0.8660254, -0.8660254, 0.8660254]),
        ("std_biased", [1, 0, 0, 1], [1, -1, -1, 1]),
        ("none", [1, 0, 0, 1], [0.5, -0.5, -0.5, 0.5]),
        ("std", [1, 0, 0, 0], [1.5, -0.5, -0.5, -0.5]),
        ("std_biased", [1, 0, 0, 0], [1.7320508, -0.5773503, -0.5773503, -0.5773503]),
        ("none", [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("std", [1, 1, 1, 1], [0, 0, 0, 0]),
        ("std_biased", [1, 1, 1, 1], [0, 0, 0, 0]),
        ("none", [1, 1, 1, 1], [0, 0, 0, 0]),
    ],
)
def test_by_hand(scale: str, rewards: list[float], expected: list[float]) -> None:
    got = advantages(rewards, scale=scale)
    assert got.advantage_R.dtype == torch.float32
    assert got.advantage_R.tolist() == pytest.approx(expected, abs=1e-7)
    assert (got.groups, got.zero_variance_groups, got.unscored) == (1, int(not any(expected)), 0)


def test_the_deviation_of_the_stage_divides_every_group() -> None:
    """Also groups of one response, and those whose rewards are equal where they have an advantage."""
    alone = advantages([10, 0, 0, 10, 5], list(range(5)), scale="batch_std")
    assert alone.advantage_R.tolist() == pytest.approx([2, 0, 0, 2, 1])
    groups = advantages([1, 1, 1, 1, 1, 0, 0, 0], [0] * 4 + [1] * 4, scale="batch_std", baseline="none")
    assert groups.advantage_R.tolist() == pytest.approx([1 / 0.5175492] * 5 + [0] * 3)
    equal = advantages([1, 1, 1], [0, 0, 1], scale="batch_std", baseline="none")
    assert equal.advantage_R.tolist() == [1, 1, 1]


def test_epsilon_is_added_to_the_standard_deviation() -> None:
    assert advantages([1, 0, 0, 1], epsilon=0.25).advantage_R[0] == pytest.approx(0.5 / (3**-0.5 + 0.25))


@pytest.mark.parametrize("scale", ["std", "std_biased", "none"])
@pytest.mark.parametrize("size", [2, 3, 7, 64])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e-30, -7.7, 1e30])
def test_equal_rewards_give_exactly_zero(scale: str, size: int, reward: float) -> None:
    assert advantages([reward] * size, scale=scale, epsilon=1e-6).advantage_R.tolist() == [0] * size


def test_responses_without_a_reward_stand_outside() -> None:
    got = advantages([1, NAN, 0, 0, 1, NAN, NAN, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1, 1])
    assert got.advantage_R[[0, 2, 3, 4]].tolist() == advantages([1, 0, 0, 1]).advantage_R.tolist()
    assert got.advantage_R[[1, 5, 6, 7, 8]].tolist() == [0] * 5
    assert (got.groups, got.zero_variance_groups, got.unscored) == (2, 1, 3)


@pytest.mark.parametrize("scale", ["std", "std_biased", "none"])
def test_a_group_with_one_reward_or_none_says_nothing(scale: str) -> None:
    got = advantages([1, NAN, NAN, NAN], [0, 0, 1, 1], scale=scale)
    assert got.advantage_R.tolist() == [0] * 4
    assert got.zero_variance_groups == 2


def test_a_prompts_only_response_has_its_reward() -> None:
    got = advantages([1, 0.25, NAN], [0, 1, 2], scale="none")
    assert got.advantage_R.tolist() == [1, 0.25, 0]
    assert (got.groups, got.zero_variance_groups, got.unscored) == (3, 1, 1)


@pytest.mark.parametrize("scale", ["std", "std_biased"])
def test_a_prompts_only_response_has_no_standard_deviation(scale: str) -> None:
    with pytest.raises(SettingsError, match=rf"scale '{scale}': group 7 has one response.*allowed: none"):
        advantages([1, 0, 1], [3, 3, 7], scale=scale)


def test_no_responses() -> None:
    got = advantages([], [])
    assert got.advantage_R.tolist() == []
    assert (got.groups, got.zero_variance_groups, got.unscored) == (0, 0, 0)


rewards = st.sampled_from([0.0, 1.0, 0.1, 0.3, -0.5, NAN])
groups = st.lists(st.lists(rewards, min_size=2, max_size=6), min_size=1, max_size=5)


@hypothesis_settings(deadline=None, derandomize=True, max_examples=150)
@given(groups, st.sampled_from(["std", "std_biased", "none"]), st.data())
def test_groups_are_on_their_own_wherever_they_stand(rows: list[list[float]], scale: str, data: st.DataObject) -> None:
    flat = [(reward, group) for group, row in enumerate(rows) for reward in row]
    order = data.draw(st.permutations(range(len(flat))))
    mixed = advantages([flat[i][0] for i in order], [10 - 3 * flat[i][1] for i in order], scale=scale)
    back = torch.empty(len(flat)).scatter_(0, torch.tensor(order), mixed.advantage_R)
    alone = [advantages(row, scale=scale) for row in rows]
    torch.testing.assert_close(back, torch.cat([one.advantage_R for one in alone]), rtol=1e-6, atol=1e-7)
    assert mixed.zero_variance_groups == sum(one.zero_variance_groups for one in alone)
    for one in alone:
        assert float(one.advantage_R.sum()) == pytest.approx(0, abs=1e-5)
        assert bool(one.advantage_R.any()) == (one.zero_variance_groups == 0)
