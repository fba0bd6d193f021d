"""The veto against numbers worked by hand and a plain loop over exact fractions."""

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.settings import VetoSettings
from tasks.train.objective import veto as veto_of
from tasks.train.tokens import TokenBatch
from tests.train.batches import result_of, update
from tests.train.test_objective import batch_of, close, nav, ratio, steady

ROW = [1.1, 0.05, 2.0, 0.5, 0.02, 1.0]
OFF = [0.1833333, 0.0083333, 0.3333333, 0.0833333, 0.0033333, 0.1666667]
SCOPES = ["response", "suffix_inclusive", "suffix", "suffix_nontrigger", "trigger_only"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("veto", "kept", "loss", "loss_over_kept"),
    [
        ({"scope": "off"}, [0, 1, 2, 3, 4, 5], 0.7783333, 0.7783333),
        ({"scope": "trigger_only"}, [0, 2, 3, 5], 0.7666667, 1.15),
        ({"scope": "suffix_nontrigger"}, [0, 1, 4], 0.195, 0.39),
        ({"scope": "suffix"}, [0, 1], 0.1916667, 0.575),
        ({"scope": "suffix_inclusive"}, [0], 0.1833333, 1.1),
        ({"scope": "response"}, [], 0, 0),
        ({"direction": "above", "kappa": 1.5}, [0, 1, 2], 0.525, 1.05),
        ({"direction": "both"}, [0, 1], 0.1916667, 0.575),
        ({"trigger_count": 2}, [0, 1, 2, 3, 4], 0.6116667, 0.734),
        ({"window": 2}, [0, 1, 4, 5], 0.3616667, 0.5425),
    ],
)
def test_scopes_and_triggers_worked_numbers(
    dtype: torch.dtype, veto: dict[str, Any], kept: list[int], loss: float, loss_over_kept: float
) -> None:
    gradient = [g if place in kept else 0 for place, g in enumerate(OFF)]
    assert update([batch_of([(-1.0, ROW)], dtype)], nav(veto=veto)) == (close(loss), close(gradient))
    over_kept = nav(veto=veto, denominator="kept")
    per_kept = [g * 6 / max(len(kept), 1) for g in gradient]
    assert update([batch_of([(-1.0, ROW)], dtype)], over_kept) == (close(loss_over_kept), close(per_kept, 3e-7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kappa", [0.5, 0.2, 0.1, 1e-2, 1e-3, 1e-4])
def test_a_ratio_equal_to_kappa_is_no_trigger(kappa: float, dtype: torch.dtype) -> None:
    behavior_T = -torch.linspace(0, 30, 997, dtype=torch.float64).to(dtype)
    for factor, expected in ((1.0, False), (1.0001, False), (0.9999, True)):
        logp_T = behavior_T + math.log(kappa * factor)
        batch = TokenBatch(logp_T, behavior_T, -torch.ones(997), torch.arange(997), 997)
        trigger_T, _ = veto_of(batch, VetoSettings(direction="below", kappa=kappa))
        assert (trigger_T == expected).all()


def by_loop(row: list[tuple[Fraction, Fraction]], advantage: float, veto: VetoSettings) -> list[tuple[bool, bool]]:
    """Trigger and veto of every token (behavior probability, ratio) of a response, one after the other."""
    kappa, product = Fraction(str(veto.kappa)), Fraction(1)
    triggers: list[bool] = []
    for behavior, token_ratio in row:
        product *= token_ratio
        value, bound = {
            "token_ratio": (token_ratio, kappa),
            "prefix_product": (product, kappa),
            "running_geo": (product, kappa ** (len(triggers) + 1)),
            "token_prob": (behavior * (1 if veto.recompute == "once_per_stage" else token_ratio), kappa),
        }[veto.statistic]
        beyond = {"below": value < bound, "above": value > bound, "both": value < bound or value > 1 / bound}
        triggers.append((advantage < 0 or veto.advantage_sign == "all") and beyond[veto.direction])
    places = [place for place, trigger in enumerate(triggers) if trigger][getattr(veto, "trigger_count", 1) - 1 :]
    tau, window = places[0] if places else len(row), getattr(veto, "window", None) or len(row)

    def vetoed(place: int, trigger: bool) -> bool:
        return {
            "off": False,
            "suffix": tau < place <= tau + window,
            "suffix_nontrigger": tau < place <= tau + window and not trigger,
            "suffix_inclusive": tau <= place <= tau + window,
            "response": bool(places),
            "trigger_only": tau <= place and trigger,
        }[veto.scope]

    return [(trigger, vetoed(place, trigger)) for place, trigger in enumerate(triggers)]


def allowed(values: dict[str, Any]) -> VetoSettings:
    """Settings in which what does not go together is left at its default."""
    if values["statistic"] == "token_prob":
        values["direction"] = "below"
    else:
        values["recompute"] = "every_update"
    if not values["scope"].startswith("suffix"):
        del values["window"]
    if values["scope"] == "off":
        del values["trigger_count"]
    values["kappa"] = values["kappa"] if values["direction"] != "above" else 1 / values["kappa"]
    return VetoSettings.parse(values)


any_veto = st.fixed_dictionaries(
    {
        "scope": st.sampled_from([*SCOPES, "off"]),
        "statistic": st.sampled_from(["token_ratio", "prefix_product", "token_prob", "running_geo"]),
        "direction": st.sampled_from(["below", "above", "both"]),
        "kappa": st.sampled_from([0.5, 0.2, 0.1]),
        "trigger_count": st.integers(1, 3),
        "window": st.sampled_from([None, 1, 2, 3]),
        "advantage_sign": st.sampled_from(["negative", "all"]),
        "recompute": st.sampled_from(["every_update", "once_per_stage"]),
    }
).map(allowed)
# Products of these meet kappa exactly, or miss it by much more than rounding.
fractions = st.sampled_from([Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(1, 2), Fraction(1)])
token = st.tuples(fractions, st.one_of(fractions, fractions.map(lambda f: 1 / f)))
exact_responses = st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), st.lists(token, max_size=9)), max_size=4)


@steady
@given(exact_responses, any_veto, st.sampled_from([torch.float32, torch.float64]))
def test_every_option_is_what_a_loop_over_the_tokens_gives(
    responses: list[tuple[float, list[tuple[Fraction, Fraction]]]], veto: VetoSettings, dtype: torch.dtype
) -> None:
    tokens = [(a, index, *token) for index, (a, row) in enumerate(responses) for token in row]
    a, index, behavior, ratios = zip(*tokens, strict=True) if tokens else ([], [], [], [])
    behavior_T = torch.tensor([float(b) for b in behavior], dtype=torch.float64).log().to(dtype)
    logp_T = behavior_T + torch.tensor([float(r) for r in ratios], dtype=torch.float64).log().to(dtype)
    advantage_T, response_T = torch.tensor(a, dtype=dtype), torch.tensor(index, dtype=torch.int64)
    batch = TokenBatch(logp_T, behavior_T, advantage_T, response_T, len(responses))
    trigger_T, vetoed_T = veto_of(batch, veto)
    expected = [pair for advantage, row in responses for pair in by_loop(row, advantage, veto)]
    assert list(zip(trigger_T.tolist(), vetoed_T.tolist(), strict=True)) == expected


@steady
@given(st.lists(ratio, min_size=1, max_size=6), st.lists(st.lists(ratio, max_size=40), max_size=4))
def test_what_comes_before_in_the_micro_batch_changes_no_trigger(row: list[float], before: list[list[float]]) -> None:
    settings = nav(veto={"statistic": "prefix_product", "kappa": 0.5})
    alone = result_of(batch_of([(-1.0, row)], torch.float32), settings)
    # Five tokens of behavior log-probabilities repeat: the same ones must stand under the row.
    pad = [1.0] * (-sum(map(len, before)) % 5)
    behind = result_of(batch_of([*((-1.0, r) for r in [*before, pad]), (-1.0, row)], torch.float32), settings)
    assert torch.equal(alone.trigger_T, behind.trigger_T[-len(row) :])
