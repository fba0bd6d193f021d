"""Which responses of a stage take part, with what reward and what advantage: by hand, through ``select``."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tasks.settings import PRESETS, OptimizeSettings
from tasks.train.advantages import Selection, overlong_penalty, select
from tasks.train.batches import Ragged, Responses
from tests.train.test_objective import Response, batch_of, close, update

NAN = float("nan")
LONGEST = 20


def settings(name: str, **over: Any) -> OptimizeSettings:
    return OptimizeSettings.parse({"preset": name, "responses_per_update": 4, "objective": over})


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
    return select(responses, settings(name, **over), LONGEST, dropped_R, seed)


def advantages(*arguments: Any, **over: Any) -> list[float]:
    return selected(*arguments, **over).advantage_R.tolist()


def near(values: Any) -> Any:
    """Within what the epsilon of a scale changes."""
    return pytest.approx(values, abs=2e-5)


def test_the_overlong_penalty_by_hand() -> None:
    lengths = np.array([1, 16384, 17408, 18432, 20480, 30000])
    assert overlong_penalty(lengths, 20480, 0.2).tolist() == [0, 0, -0.25, -0.5, -1, -1]
    assert overlong_penalty(np.array([0, 10, 20]), 20, 1.0).tolist() == [0, -0.5, -1]


def test_dapo_compares_rewards_after_the_overlong_penalty() -> None:
    # Rewards 1, 0.5, 0, -1 of mean 0.125 and standard deviation 0.8539.
    got = advantages("dapo", [[1, 1, 0, 0]], lengths=[16, 18, 16, 20])
    assert got == near([1.0246951, 0.4391550, -0.1463850, -1.3174651])
    assert advantages("grpo", [[1, 1, 0, 0]], lengths=[16, 18, 16, 20]) == near([0.8660254] * 2 + [-0.8660254] * 2)


def test_the_rewards_of_a_stage_are_left_as_they_were() -> None:
    responses = responses_of([[1, 0, 1, 0]], lengths=[20, 20, 3, 3], truncated=[0])
    before = responses.reward_R.copy()
    select(responses, settings("dapo", data={"truncated": "mask"}), LONGEST, np.zeros(4, dtype=bool), (0,))
    assert responses.reward_R.tolist() == before.tolist()


def test_balanced_drop_by_hand() -> None:
    seen = set()
    for seed in range(20):
        selection = selected("red_drop", [[1, 0, 0, 0]], seed=(7, 1, seed))
        got = selection.advantage_R.tolist()
        assert got[0] == 0.5
        assert sorted(got[1:]) == [-0.5, 0, 0]
        assert selection.surplus == 2
        assert selection.takes_part_R.all()
        assert got == advantages("red_drop", [[1, 0, 0, 0]], seed=(7, 1, seed))
        seen.add(got.index(-0.5))
    assert seen == {1, 2, 3}


def test_balanced_drop_never_touches_what_is_above_its_mean() -> None:
    assert advantages("red_drop", [[1, 1, 1, 0]]) == [0.25, 0.25, 0.25, -0.75]
    assert advantages("red_drop", [[1, 0, 1, 0]]) == [0.5, -0.5, 0.5, -0.5]
    assert advantages("red_drop", [[0, 0, 0, 0], [1, 1, 1, 1]]) == [0] * 8
    # Of a middle reward at the mean none is lost, and every group is balanced by itself.
    got = advantages("red_drop", [[1, 0.5, 0], [0, 0, 1]])
    assert got[:3] == [0.5, 0, -0.5]
    assert sorted(got[3:]) == [-0.5, 0, 0.5]
    # A response without a reward is neither above nor below.
    selection = selected("red_drop", [[1, NAN, 0, 0]])
    assert sorted(selection.advantage_R.tolist()) == [-0.5, 0, 0, 0.5]
    assert (selection.unscored, selection.surplus) == (1, 1)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "red_drop"])
def test_without_balanced_drop_the_seed_changes_nothing(name: str) -> None:
    groups = [[1, 0, 0, 0], [1, 1, 0, NAN]]
    assert advantages(name, groups, seed=(1,)) == advantages(name, groups, seed=(2,))


def test_log_average_exp_by_hand() -> None:
    form = {"baseline": "logavgexp"}
    assert advantages("opmd", [[1, 0, 0, 0]], advantage=form) == close([0.6426260, *[-0.3573740] * 3])
    assert advantages("opmd", [[2, 2, 2]], advantage=form) == [0, 0, 0]
    # tau log mean exp(R / tau) goes from the mean to the largest reward as tau goes from large to small.
    assert advantages("opmd", [[1, 0, 0, 0]], advantage={**form, "temperature": 1e6}) == near([0.75, *[-0.25] * 3])
    assert advantages("opmd", [[1, 0, 0, 0]], advantage={**form, "temperature": 1e-4}) == near(
        [1e-4 * math.log(4), *[1e-4 * math.log(4) - 1] * 3]
    )


def test_a_shifted_baseline_by_hand() -> None:
    assert advantages("asymre", [[1, 0, 0, 0]]) == close([0.85, -0.15, -0.15, -0.15])
    # Groups without two different rewards learn a little from all their responses.
    got = selected("asymre", [[1, 1, 1, 1], [0, 0, 0, 0]])
    assert got.advantage_R.tolist() == close([0.1] * 8)
    assert got.zero_variance_groups == 2


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("std", [1.5, *[-0.5] * 3, *[0.8660254] * 2, *[-0.8660254] * 2]),
        ("std_biased", [1.7320508, *[-0.5773503] * 3, *[1] * 2, *[-1] * 2]),
        ("sqrt_eps", [1.7320508, *[-0.5773503] * 3, *[1] * 2, *[-1] * 2]),
        # Three of eight rewards are 1: standard deviation 0.5175492.
        ("batch_std", [1.4491377, *[-0.4830459] * 3, *[0.9660918] * 2, *[-0.9660918] * 2]),
        ("none", [0.75, *[-0.25] * 3, *[0.5] * 2, *[-0.5] * 2]),
    ],
)
def test_scales_by_hand(scale: str, expected: list[float]) -> None:
    assert advantages("grpo", [[1, 0, 0, 0], [1, 1, 0, 0]], advantage={"scale": scale}) == near(expected)
    assert advantages("grpo", [[1, 0], [1, 1]], advantage={"scale": scale})[2:] == [0, 0]


@pytest.mark.parametrize(
    ("scale", "divisor"), [("sqrt_eps", 0.5**0.5), ("std_biased", 0.75), ("batch_std", 3**-0.5 + 0.25)]
)
def test_epsilon_enters_under_the_root_or_beside_it(scale: str, divisor: float) -> None:
    got = advantages("grpo", [[1, 0, 0, 1]], advantage={"scale": scale, "epsilon": 0.25})
    assert got == close([0.5 / divisor, -0.5 / divisor, -0.5 / divisor, 0.5 / divisor])


def test_topr_subtracts_its_offset_alone() -> None:
    selection = selected("topr", [[1, 0, 0, 0], [1, 1, 1, 1], [0, 0, NAN, 0]])
    assert selection.advantage_R.tolist() == [0.5, *[-0.5] * 3, *[0.5] * 4, -0.5, -0.5, 0, -0.5]
    assert selection.takes_part_R.all()


def gradient_of(selection: Selection, ratios: Sequence[Sequence[float]], chosen: OptimizeSettings) -> list[float]:
    """Of an update over the responses that take part, as the trainer leaves the others out."""
    taken = np.flatnonzero(selection.takes_part_R)
    rows: list[Response] = [(float(selection.advantage_R[place]), ratios[place]) for place in taken]
    return update([batch_of(rows)], chosen.objective)[1]


@pytest.mark.parametrize(
    ("name", "share"),
    [("dapo", 10 / 6), ("relaxed", 10 / 6), ("grpo", 2), ("dr_grpo", 2), ("topr", 2)],
)
def test_dropping_groups_without_variance_changes_the_denominator_alone(name: str, share: float) -> None:
    groups, ratios = [[1, 0], [1, 1]], [[1.1, 0.9], [1.0, 0.9, 1.1, 1.0], [1.0], [2.0, 0.5, 1.0]]
    over = {"baseline": "mean", "baseline_offset": 0}
    kept, dropped = (
        gradient_of(selected(name, groups, data=rule, advantage=over), ratios, settings(name, data=rule))
        for rule in ({"zero_variance": "keep"}, {"zero_variance": "drop"})
    )
    assert kept[6:] == [0] * 4
    assert any(dropped)
    assert dropped == close([share * g for g in kept[:6]])


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
    assert got.advantage_R.tolist() == near([1.5, -0.5, -0.5, 0, 0.8660254, 0.8660254, 0, 0])
    assert got.unscored == 0
    assert advantages("grpo", groups, truncated=[3, 6, 7]) == advantages("grpo", groups)
    # What is left of the second group has one reward; as a whole it has two.
    both = {"truncated": "mask", "zero_variance": "drop"}
    assert selected("grpo", groups, truncated=[3, 6, 7], data=both).takes_part_R.tolist() == got.takes_part_R.tolist()


@pytest.mark.parametrize("name", PRESETS)
def test_responses_that_cannot_be_used_take_no_part(name: str) -> None:
    got = selected(name, [[1, 0, 0, 1], [1, 1, 0, 0]], dropped=[1, 6])
    assert got.takes_part_R.tolist() == [place not in (1, 6) for place in range(8)]
    assert got.advantage_R[[1, 6]].tolist() == [0, 0]
    assert torch.isfinite(got.advantage_R).all()
