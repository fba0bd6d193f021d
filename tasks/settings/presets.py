"""Named rows of objective settings: every algorithm, with where it comes from.

Rows follow the papers named in them; where a paper leaves a value open, the row says what was chosen.
"""

import math
from dataclasses import dataclass
from typing import Any

from tasks.settings.objective import ObjectiveSettings


@dataclass(frozen=True)
class Preset:
    """A row: what differs from ObjectiveSettings' defaults."""

    row: dict[str, Any]
    source: str
    chosen: str = ""
    """Choices that were made here where the source leaves them open."""


def _preset(source: str, chosen: str = "", **row: Any) -> Preset:
    return Preset(row, source, chosen)


_RELAXED = {"low": 0.0, "high": 5.0}
_PLAIN = {"scale": "none"}
_UNGATED = {"kind": "none"}
_REC = "arXiv 2509.24203"

PRESETS: dict[str, Preset] = {
    "mu_grpo": _preset(
        "arXiv 2605.17570",
        "the veto's statistic, direction and kappa (docs/laboratory.md); advantage and aggregation are inferred",
        gate=_RELAXED,
        veto={"scope": "suffix"},
    ),
    "relaxed": _preset("arXiv 2605.17570, ablation without the veto", gate=_RELAXED),
    "grpo": _preset("arXiv 2402.03300, without its KL", aggregation="seq_mean_token_mean"),
    "dr_grpo": _preset("arXiv 2503.20783, TRL's denominator", advantage=_PLAIN, aggregation="const"),
    "dapo": _preset(
        "arXiv 2503.14476",
        "groups without signal leave the update instead of being sampled again",
        gate={"high": 1.28},
        data={"zero_variance": "drop", "overlong_buffer_share": 0.2},
    ),
    "gspo": _preset(
        "arXiv 2507.18071",
        ratio={"level": "sequence_geometric"},
        gate={"low": 1 - 3e-4, "high": 1 + 4e-4},
        aggregation="seq_mean_token_mean",
    ),
    "cispo": _preset("arXiv 2506.13585, cap of 2510.13786", gate=_UNGATED, weight={"kind": "clipped"}),
    "m2po": _preset("arXiv 2510.01161", "the statistic is over the update", gate={"bounds": "second_moment"}),
    "reinforce": _preset(_REC, advantage=_PLAIN, gate=_UNGATED, weight={"kind": "one"}),
    "rec_oneside_is": _preset(_REC, advantage=_PLAIN),
    "rec_oneside_nois": _preset(_REC, advantage=_PLAIN, weight={"kind": "one"}),
    "rec_twoside_is": _preset(_REC, advantage=_PLAIN, gate={"kind": "two_side"}),
    "rec_ring_nois": _preset(_REC, advantage=_PLAIN, gate={"kind": "ring"}, weight={"kind": "one"}),
    "opmd": _preset(
        f"{_REC}; Kimi",
        advantage=_PLAIN,
        gate=_UNGATED,
        weight={"kind": "one"},
        regulariser={"kind": "behavior_l2", "coefficient": 0.1},
    ),
    "asymre": _preset(
        f"{_REC}; Meta",
        advantage={"scale": "none", "baseline_offset": -0.1},
        gate=_UNGATED,
        weight={"kind": "one"},
    ),
    "red_drop": _preset(
        _REC, advantage=_PLAIN, gate=_UNGATED, weight={"kind": "one"}, data={"balance_negatives": True}
    ),
    "red_weight": _preset(_REC, advantage=_PLAIN, gate=_UNGATED, weight={"kind": "exponential"}),
    "off_policy_grpo": _preset(
        "arXiv 2505.22257, without its KL",
        "v is updates_per_rollout / updates_per_batch",
        advantage={"scale": "sqrt_eps"},
        gate={"kind": "centred"},
        aggregation="seq_mean_token_mean",
        data={"zero_variance": "drop"},
    ),
    "topr": _preset(
        "arXiv 2503.14286",
        "offset 0.5, which makes rewards of 0 and 1 symmetric",
        advantage={"baseline": "none", "baseline_offset": 0.5, "scale": "none"},
        ratio={"level": "sequence_product"},
        gate=_UNGATED,
        weight={"kind": "taper"},
        aggregation="seq_mean_token_sum",
    ),
    "bapo": _preset(
        "arXiv 2510.18927, the code's bounds",
        gate={"low": 0.6, "high": 1.2, "bounds": "balance", "dual_clip": 3.0},
    ),
    "gppo": _preset(
        "arXiv 2508.07629",
        gate={"kind": "none", "dual_clip": 10.0},
        weight={"kind": "preserve", "high": 1.28},
    ),
    "ce_gppo": _preset(
        "arXiv 2509.20712",
        gate={"kind": "none", "dual_clip": 10.0},
        weight={"kind": "preserve", "high": 1.28, "preserve_low": 0.25},
    ),
    "decoupled_ppo": _preset(
        "arXiv 2505.24298, 2110.00641",
        ratio={"reference": "proximal"},
        schedule={"batches_per_proximal": 4},
    ),
    "opsm": _preset(
        "arXiv 2512.02556, without its KL",
        "delta 0.5, as kappa exp(-0.5)",
        advantage=_PLAIN,
        veto={"scope": "response", "statistic": "sequence_geo", "direction": "below", "kappa": math.exp(-0.5)},
        aggregation="seq_mean_token_mean",
    ),
    "minpro": _preset(
        "arXiv 2601.22718",
        "the weight's form, at most 1 before the first token; the gate is on the token's own ratio",
        ratio={"level": "prefix_minimum"},
    ),
}
"""Fields that a row does not name have ObjectiveSettings' defaults."""

MODIFIERS: dict[str, Preset] = {
    "none": _preset(""),
    "tis": _preset("truncated importance sampling: fengyao.notion.site/off-policy-rl", mismatch={"kind": "truncate"}),
    "mis": _preset("masked importance sampling: IcePop, ringtech.notion.site/icepop", mismatch={"kind": "mask"}),
}
"""Corrections for an engine that differs from the trainer; they multiply any preset."""


def resolve(preset: str, modifier: str = "none") -> dict[str, Any]:
    """Return the row of a preset with a modifier."""
    return ObjectiveSettings.merge(PRESETS[preset].row, MODIFIERS[modifier].row)
