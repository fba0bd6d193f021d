"""Every preset against numbers worked by hand: advantages of a group, and coefficients and gradients of an update."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tasks.settings.presets import PRESETS
from tasks.train.advantages import group_advantages
from tasks.train.tokens import TokenBatch
from tests.train.batches import LONGEST, result_of, update, with_policies
from tests.train.test_objective import BELOW, Response, batch_of, close, preset

ONLY_GATED = ("grpo", "relaxed", "rec_twoside_is", "rec_ring_nois")
"""Presets in which nothing but the gate can take a coefficient away."""
RATIOS = [0.05, 0.3, 0.7, 1.0, 1.3, 3.5, 6.0]


@dataclass(frozen=True)
class Case:
    """An update worked by hand."""

    responses: Sequence[Response]
    coefficients: Sequence[float | None]
    """What each token's log-probability is multiplied by; None where rounding decides."""
    over: Sequence[float]
    """What each response's tokens are divided by."""
    pull: Sequence[float] | None = None
    """What a penalty adds to the gradient of each token, before division."""
    proximal: Sequence[float] | None = None
    """Proximal over behavior probability of each token."""

    def batch(self, dtype: torch.dtype) -> TokenBatch:
        batch = batch_of(self.responses, dtype)
        return batch if self.proximal is None else with_policies(batch, proximal=self.proximal)

    def gradient(self) -> list[float | None]:
        over = [divisor for divisor, (_, row) in zip(self.over, self.responses, strict=True) for _ in row]
        pull = self.pull or [0.0] * len(over)
        rows = zip(self.coefficients, pull, over, strict=True)
        return [None if c is None else (p - c) / divisor for c, p, divisor in rows]


def grid(positive: list[float], negative: list[float], over: float = 7, pull: list[float] | None = None) -> list[Case]:
    """Seven responses of one token each, once with A = 1 and once with A = -1."""
    rows = ((1.0, positive), (-1.0, negative))
    return [Case([(a, [ratio]) for ratio in RATIOS], row, [over] * 7, pull) for a, row in rows]


PLUS, MINUS = [1.0] * 7, [-1.0] * 7
TIGHT = [0.05, 0.3, 0.7, 1, 0, 0, 0], [0, 0, 0, -1, -1.3, -3.5, -6]
RELAXED = [0.05, 0.3, 0.7, 1, 1.3, 3.5, 0], [-0.05, -0.3, -0.7, -1, -1.3, -3.5, -6]
CAPPED = [0.05, 0.3, 0.7, 1, 1.3, 3.5, 5], [-0.05, -0.3, -0.7, -1, -1.3, -3.5, -5]
PRESERVED = [0.05, 0.3, 0.7, 1, 1.28, 1.28, 1.28]
PULL = [-0.5991465, -0.2407946, -0.0713350, 0, 0.0524729, 0.2505526, 0.3583519]
"""0.2 ln r: twice OPMD's coefficient times the log-ratio."""
E = math.e

TWO: list[Response] = [(1.0, [1.1, 1.25]), (-1.0, [0.5, 1.0, 1.3, 0.9])]
TWO_TIGHT = [1.1, 0, 0, -1, -1.3, -0.9]
TWO_ONES = [1, 1, -1, -1, -1, -1]
STALE: Response = (-1.0, [1.1, 0.05, 2.5, 0.5, 0.02, 1.0])
STALE_ALL = [-1.1, -0.05, -2.5, -0.5, -0.02, -1.0]
LAGGED: list[Response] = [(1.0, [1.5, 1.7]), (-1.0, [1.1, 1.3]), (-1.0, [0.01, 0.31])]
FALLING: Response = (-1.0, [1.0, 0.2, 0.9])
CAP: list[Response] = [(1.0, [3.3, 3.9, 6.6]), (-1.0, [1.4, 0.55, 0.65])]
MINIMA = [0.5, 1.1, 0.2, 1.0, 2.0]

WORKED: dict[str, list[Case]] = {
    # The first ratio above 2 is the third: what follows it is vetoed, in the grid nothing does.
    "mu_grpo": [*grid(*RELAXED), Case([STALE], [-1.1, -0.05, -2.5, 0, 0, 0], [6])],
    "relaxed": [*grid(*RELAXED), Case([STALE], STALE_ALL, [6])],
    "grpo": [*grid(*TIGHT), Case(TWO, TWO_TIGHT, [2 * 2, 2 * 4])],
    "dr_grpo": [*grid(*TIGHT, over=7 * LONGEST), Case(TWO, TWO_TIGHT, [2 * LONGEST] * 2)],
    "dapo": [
        *grid(*TIGHT),
        Case(TWO, [1.1, 1.25, *TWO_TIGHT[2:]], [6] * 2),
        Case([(1.0, [1.25, 1.29])], [1.25, 0], [2]),
    ],
    # Geometric means 1, 1, 1.0005, 1.0005, 0.9996: of them only the second pair is above 1.0004.
    "gspo": [
        *grid(*TIGHT),
        Case(
            [(a, row) for row in ([2.0, 0.5], [E**5e-4] * 2) for a in (1.0, -1.0)] + [(-1.0, [E**-4e-4])],
            [1, 1, -1, -1, 0, 0, -(E**5e-4), -(E**5e-4), 0],
            [5 * 2] * 4 + [5],
        ),
        # The interval is [1 - 3e-4, 1 + 4e-4]; the last response has the geometric mean 2.
        Case(
            [(a, [E**log] * 2) for log in (4e-4, -4e-4) for a in (1.0, -1.0)],
            [0, 0, -1.00040008, -1.00040008, 0.99960008, 0.99960008, 0, 0],
            [4 * 2] * 4,
        ),
        Case(
            [(1.0, [E**3.9e-4]), (-1.0, [E**-2.9e-4]), (-1.0, [8.0, 1.0, 1.0])],
            [1.00039008, -0.99971004, -2, -2, -2],
            [3, 3, 3 * 3],
        ),
    ],
    "cispo": [*grid(*CAPPED), Case(TWO, [1.1, 1.25, -0.5, -1, -1.3, -0.9], [6] * 2)],
    # Squares .01, .04, .09, .36: capped at .04 their mean is .0325. With A = -1 a ratio above 1 does no harm. The mean
    # of .09 and three times .0025 is within the threshold as it is.
    "m2po": [
        *grid(*TIGHT),
        Case([(1.0, [E**0.1, E**0.2, E**0.3, E**0.6])], [E**0.1, None, 0, 0], [4]),
        Case([(-1.0, [E**0.1, E**0.2, E**0.3, E**0.6])], [-(E**0.1), -(E**0.2), -(E**0.3), -(E**0.6)], [4]),
        Case([(1.0, [E**0.3, *[E**0.05] * 3])], [E**0.3, *[E**0.05] * 3], [4]),
        # The last token has no advantage, so that it is not counted: the mean of .01 and .0625 is within the threshold.
        Case([(1.0, [E**0.1, E**0.25]), (0.0, [E**0.6])], [E**0.1, E**0.25, 0], [3] * 2),
    ],
    "reinforce": [*grid(PLUS, MINUS), Case(TWO, TWO_ONES, [6] * 2)],
    "rec_oneside_is": [*grid(*TIGHT), Case(TWO, TWO_TIGHT, [6] * 2)],
    "rec_oneside_nois": [
        *grid([1, 1, 1, 1, 0, 0, 0], [0, 0, 0, -1, -1, -1, -1]),
        Case(TWO, [1, *[0] * 2, *[-1] * 3], [6] * 2),
    ],
    "rec_twoside_is": [
        *grid([0, 0, 0, 1, 0, 0, 0], [0, 0, 0, -1, 0, 0, 0]),
        Case(TWO, [1.1, 0, 0, -1, 0, -0.9], [6] * 2),
    ],
    "rec_ring_nois": [*grid([1, 1, 0, 1, 0, 0, 0], [0, 0, 0, -1, 0, -1, -1]), Case(TWO, [1, 0, 0, -1, 0, -1], [6] * 2)],
    "opmd": grid(PLUS, MINUS, pull=PULL),
    "asymre": [*grid(PLUS, MINUS), Case(TWO, TWO_ONES, [6] * 2)],
    "red_drop": [*grid(PLUS, MINUS), Case(TWO, TWO_ONES, [6] * 2)],
    "red_weight": [*grid([E] * 7, [-1 / E] * 7), Case([(0.5, [3.0, 0.2])], [E**0.5 / 2] * 2, [2])],
    # Within 0.2 of the proximal ratio, one-sided; around 0.1 the lower end is 0.
    "off_policy_grpo": [
        Case(LAGGED, [1.5, 0, 0, -1.3, -0.01, -0.31], [3 * 2] * 3, proximal=[1.4] * 4 + [0.1] * 2),
        Case(LAGGED, [0, 0, -1.1, -1.3, 0, 0], [3 * 2] * 3, proximal=[1.0] * 6),
        Case([(1.0, [0.2, 0.2]), (-1.0, [1.5, 3.0])], [0.2, 0.2, -1.5, -3], [2 * 2] * 2, proximal=[1.4, 0.1, 1.4, 1.4]),
        Case([(1.0, [0.31]), (-1.0, [0.001, 9.0])], [0, -0.001, -9], [2, 2 * 2], proximal=[0.1, 0.1, 9.0]),
    ],
    # Products 0.5 and 4 of negatives, 0.5 of a positive.
    "topr": [
        *grid(PLUS, [-0.05, -0.3, -0.7, -1, -1, -1, -1]),
        Case([(-1.0, [2, 0.25]), (-1.0, [2, 2]), (1.0, [2, 0.25])], [-0.5, -0.5, -1, -1, 1, 1], [3] * 3),
        Case([(0.5, [0.01] * 2), (0.0, [2, 0.25]), (-0.5, [0.1, 0.1, 1])], [0.5, 0.5, 0, 0, *[-0.005] * 3], [3] * 3),
    ],
    # The interval ends at [0.8, 2]; negatives stop at 3 as well.
    "bapo": [
        Case([(1.0, [1.5, 0.5]), (-1.0, [0.3, 0.3, 1, 1])], [1.5, 0.5, 0, 0, -1, -1], [6] * 2),
        Case([(1.0, [1.9, 4.0]), (-1.0, [2.5, 3.5])], [1.9, 0, -2.5, 0], [4] * 2),
    ],
    "gppo": [*grid(PRESERVED, [-0.8, -0.8, -0.8, -1, -1.3, -3.5, -6]), Case([(-1.0, [9.0, 11.0])], [-9, 0], [2])],
    "ce_gppo": [*grid(PRESERVED, [-0.2, -0.2, -0.2, -1, -1.3, -3.5, -6]), Case([(-1.0, [9.0, 11.0])], [-9, 0], [2])],
    # Ratios to the proximal policy 1.1, 1.3, 1.1, 0.7, 1.1, 1.3, times 3, 3, 6, 2, 0.5, 0.5; 6 is beyond the cap.
    "decoupled_ppo": [Case(CAP, [3.3, 0, 0, 0, -0.55, -0.65], [6] * 2, proximal=[3, 3, 6, 2, 0.5, 0.5])],
    # Mean log-ratios -0.57, -0.57, -0.35 against -0.5.
    "opsm": [
        *grid(*TIGHT),
        Case([FALLING, (1.0, FALLING[1]), (-1.0, [1.0, 0.9, 0.4])], [0, 0, 0, 1, 0.2, 0.9, -1, -0.9, 0], [3 * 3] * 3),
    ],
    # The smallest ratio before each token, at most 1: 1, .5, .5, .5 and 1, 1, .9.
    "minpro": [
        *grid(*TIGHT),
        Case([(1.0, [0.5, 1.1, 0.9, 1.1]), (-1.0, [1.1, 0.9, 1])], [0.5, 0.55, 0.45, 0.55, -1.1, -0.9, -0.9], [7] * 2),
        # 1, .5, .5, .2, .2. The gate is on the token's own ratio.
        Case([(a, MINIMA) for a in (1.0, -1.0)], [0.5, 0.55, 0.1, 0.2, 0, 0, -0.55, 0, -0.2, -0.4], [10] * 2),
    ],
}

BY_STD, PLAIN = [1.5, -0.5, -0.5, -0.5], [0.75, -0.25, -0.25, -0.25]
ADVANTAGES: dict[str, list[float]] = {
    **dict.fromkeys(["mu_grpo", "relaxed", "grpo", "dapo", "gspo", "cispo", "m2po", "bapo", "gppo", "ce_gppo"], BY_STD),
    **dict.fromkeys(["decoupled_ppo", "minpro"], BY_STD),
    **dict.fromkeys(["dr_grpo", "reinforce", "opmd", "red_weight", "opsm"], PLAIN),
    **dict.fromkeys(["rec_oneside_is", "rec_oneside_nois", "rec_twoside_is", "rec_ring_nois"], PLAIN),
    "asymre": [0.85, -0.15, -0.15, -0.15],
    "red_drop": [0.5, 0, 0, -0.5],
    "off_policy_grpo": [1.7320508, -0.5773503, -0.5773503, -0.5773503],
    "topr": [0.5, -0.5, -0.5, -0.5],
}
"""Of rewards 1, 0, 0, 0."""
DROPPED: list[Response] = [(a, [0.5, 0.5]) for a in (-1.0, 1.0)] + [
    (-1.0, row) for row in ([1.0, 0.5], [E**-0.51], [E**-0.5], [4.0, 0.05], [0.2, *[1.0] * 3])
]
LIKELIHOOD = {"kind": "likelihood", "coefficient": 0.1}
VARIANTS: list[tuple[str, dict[str, Any], list[Case]]] = [
    ("grpo", {"gate": {"dual_clip": 3.0}}, grid(TIGHT[0], [0, 0, 0, -1, -1.3, 0, 0])),
    ("mu_grpo", {"veto": BELOW}, [*grid(*RELAXED), Case([STALE], [-1.1, -0.05, 0, 0, 0, 0], [6])]),
    ("relaxed", {"gate": {"dual_clip": 5.0}}, grid(RELAXED[0], [-0.05, -0.3, -0.7, -1, -1.3, -3.5, 0])),
    ("relaxed", {"gate": {"kind": "two_side"}}, grid(RELAXED[0], [-0.05, -0.3, -0.7, -1, -1.3, -3.5, 0])),
    ("gppo", {"gate": {"dual_clip": None}}, [*WORKED["gppo"][:2], Case([(-1.0, [11.0])], [-11], [1])]),
    ("ce_gppo", {"gate": {"dual_clip": None}}, [*WORKED["ce_gppo"][:2], Case([(-1.0, [11.0])], [-11], [1])]),
    ("cispo", {"weight": {"low": 0.8, "high": 1.2}}, [Case(TWO, [1.1, 1.2, -0.8, -1, -1.2, -0.9], [6] * 2)]),
    ("rec_ring_nois", {"weight": {"kind": "ratio"}}, [Case([(0.5, [0.3]), (-0.5, [3.5])], [0.15, -1.75], [2] * 2)]),
    ("rec_twoside_is", {"weight": {"kind": "one"}}, [Case(TWO, [1, 0, 0, -1, 0, -1], [6] * 2)]),
    ("red_weight", {"weight": {"temperature": 0.5}}, [Case([(-1.0, [3.0, 0.2])], [-(E**-2)] * 2, [2])]),
    # Ratios to the proximal policy 1.1, 1.1, 0.7, 0.9, times 6, 3, 6, 6, of which 6 is cut to 5.
    (
        "decoupled_ppo",
        {"ratio": {"beyond_cap": "truncate"}},
        [Case([(1.0, [6.6, 3.3]), (-1.0, [4.2, 5.4])], [5.5, 3.3, 0, -4.5], [4] * 2, proximal=[6, 3, 6, 6])],
    ),
    ("decoupled_ppo", {"ratio": {"behavior_cap": 7.0}}, [Case([(1.0, [6.6, 1])], [6.6, 1], [2], proximal=[6, 1])]),
    ("decoupled_ppo", {"denominator": "kept"}, [Case([(1.0, [6.6, 1])], [0, 1], [1], proximal=[6, 1])]),
    # Mean log-ratios -0.69, -0.69, -0.35, -0.51, -0.5, -0.80, -0.40 against -0.5.
    (
        "opsm",
        {"gate": {"low": 0.0, "high": 5.0}},
        [Case(DROPPED, [0, 0, 0.5, 0.5, -1, -0.5, 0, -(E**-0.5), 0, 0, -0.2, -1, -1, -1], [14] * 3 + [7, 7, 14, 28])],
    ),
    # AsymRE with a penalty in place of its baseline.
    ("asymre", {"advantage": {"baseline_offset": 0}, "regulariser": LIKELIHOOD}, grid(PLUS, MINUS, pull=[-0.1] * 7)),
]
"""Presets with other settings."""
CASES = [
    pytest.param(name, over, case, id=f"{name}-{over}-{place}" if over else f"{name}-{place}")
    for name, over, cases in [*((name, {}, cases) for name, cases in WORKED.items()), *VARIANTS]
    for place, case in enumerate(cases)
]


def test_every_preset_has_worked_numbers() -> None:
    assert set(WORKED) == set(PRESETS)
    assert set(ADVANTAGES) == set(PRESETS)
    assert all(WORKED.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "over", "case"), CASES)
def test_worked_coefficients_and_gradients(name: str, over: dict[str, Any], case: Case, dtype: torch.dtype) -> None:
    settings, batch = preset(name, **over), case.batch(dtype)
    coefficients = result_of(batch, settings).coefficient_T.tolist()
    gradient = update([batch], settings)[1]
    known = [place for place, expected in enumerate(case.coefficients) if expected is not None]
    assert [coefficients[place] for place in known] == close([case.coefficients[place] for place in known], 4e-7)
    assert [gradient[place] for place in known] == close([case.gradient()[place] for place in known], 4e-7)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_worked_numbers(name: str) -> None:
    settings = preset(name)
    draw_R = torch.rand(4) if settings.data.balance_negatives else None
    got = group_advantages(torch.tensor([1.0, 0, 0, 0]), torch.zeros(4, dtype=torch.int64), settings.advantage, draw_R)
    others = sorted(got[1:].tolist(), reverse=True)
    assert [float(got[0]), *others] == pytest.approx(ADVANTAGES[name], abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "over", "case"), [one for one in CASES if one.values[0] in ONLY_GATED])
def test_what_the_gate_takes_is_clipped(name: str, over: dict[str, Any], case: Case, dtype: torch.dtype) -> None:
    result = result_of(case.batch(dtype), preset(name, **over))
    assert result.clipped_T.tolist() == [coefficient == 0 for coefficient in result.coefficient_T.tolist()]
