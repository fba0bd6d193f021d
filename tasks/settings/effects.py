"""Which fields of the objective change anything, given the others."""

from collections.abc import Mapping
from typing import Any

_Condition = Mapping[str, tuple[str, ...]]
"""Values of other fields that must all hold."""
_INTERVAL = ("one_side", "two_side", "ring")
_OF_RATIOS = ("ratio", "clipped", "taper", "preserve")
_CORRECTED = ("truncate", "mask")
_VETOING = ("suffix", "suffix_nontrigger", "suffix_inclusive", "response", "trigger_only")
_REFERENCE: _Condition = {"regulariser.kind": ("reference_kl",)}
READ_WITH: dict[str, tuple[_Condition, ...]] = {
    "advantage.temperature": ({"advantage.baseline": ("logavgexp",)},),
    "advantage.epsilon": ({"advantage.scale": ("std", "std_biased", "sqrt_eps", "batch_std")},),
    "ratio.level": ({"gate.kind": (*_INTERVAL, "centred")}, {"weight.kind": _OF_RATIOS}),
    "gate.low": ({"gate.kind": _INTERVAL, "gate.bounds": ("static", "balance")}, {"weight.kind": ("preserve",)}),
    "gate.high": ({"gate.kind": _INTERVAL, "gate.bounds": ("static", "balance")}, {"weight.kind": ("preserve",)}),
    "gate.outer_low": ({"gate.kind": ("ring",)},),
    "gate.outer_high": ({"gate.kind": ("ring",)},),
    "gate.half_width": ({"gate.kind": ("centred",)},),
    "gate.second_moment": ({"gate.bounds": ("second_moment",)},),
    "gate.balance": ({"gate.bounds": ("balance",)},),
    "weight.low": ({"weight.kind": ("clipped",)},),
    "weight.high": ({"weight.kind": ("clipped",)},),
    "weight.positive": ({"weight.kind": ("taper",)},),
    "weight.negative": ({"weight.kind": ("taper",)},),
    "weight.preserve_low": ({"weight.kind": ("preserve",)},),
    "weight.preserve_high": ({"weight.kind": ("preserve",)},),
    "weight.temperature": ({"weight.kind": ("exponential",)},),
    "weight.behavior_cap": ({"ratio.reference": ("proximal",)},),
    "weight.beyond_cap": ({"ratio.reference": ("proximal",)},),
    "mismatch.level": ({"mismatch.kind": _CORRECTED},),
    "mismatch.low": ({"mismatch.kind": ("mask",)},),
    "mismatch.high": ({"mismatch.kind": _CORRECTED},),
    # Triggers are counted without a veto, too.
    "veto.trigger_count": ({"veto.scope": _VETOING},),
    "veto.window": ({"veto.scope": _VETOING},),
    "denominator": ({"aggregation": ("token_mean", "seq_mean_token_mean")},),
    "regulariser.coefficient": ({"regulariser.kind": ("reference_kl", "behavior_l2", "likelihood")},),
    "regulariser.estimator": (_REFERENCE,),
    "regulariser.unbiased": (_REFERENCE,),
    "schedule.batches_per_proximal": ({"ratio.reference": ("proximal",)}, {"gate.kind": ("centred",)}),
}
"""By field, or group of fields: it is read where one of the conditions holds. Other fields always are."""


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level, with names as in ``gate.low``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def reads(field: str, objective: Mapping[str, Any]) -> bool:
    """Whether a field of an objective changes anything.

    Args:
        field: its name, as in ``gate.low``.
        objective: all fields, flat.
    """
    conditions = _conditions(field)
    return conditions is None or any(
        all(objective.get(name) in values for name, values in condition.items()) for condition in conditions
    )


def readers(field: str) -> str:
    """With what a field changes something, as in ``gate.kind ring``."""
    return ", or ".join(
        " and ".join(f"{name} {_either(values)}" for name, values in condition.items())
        for condition in _conditions(field) or ()
    )


def _conditions(field: str) -> tuple[_Condition, ...] | None:
    return next((found for name, found in READ_WITH.items() if field == name or field.startswith(f"{name}.")), None)


def _either(values: tuple[str, ...]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"
