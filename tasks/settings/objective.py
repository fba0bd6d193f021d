"""Settings of the objective. An algorithm is a named row of them: a preset."""

from typing import Any, Literal

from pydantic import Field, model_validator

from tasks.settings.base import Number, Settings


class AdvantageSettings(Settings):
    """How rewards of a group become advantages."""

    scale: Literal["std", "std_biased", "none"] = "std"
    """Divide by the group's standard deviation (ddof 1), by the biased one (ddof 0), or not at all (Dr.GRPO)."""
    epsilon: Number = Field(1e-6, ge=0)
    """Added to the standard deviation."""


class VetoSettings(Settings):
    """The negative-advantage veto (NAV). The paper states its effect; threshold and direction are chosen here."""

    scope: Literal["off", "suffix", "suffix_nontrigger", "suffix_inclusive", "response", "trigger_only"] = "off"
    """Which tokens a trigger removes: those after it, those after it that are no triggers, it and those after it, the
    whole response, or the triggers alone. With a trigger_count, those from that one on."""
    statistic: Literal["token_ratio", "prefix_product", "token_prob", "running_geo"] = "token_ratio"
    """What is held against kappa: the token's ratio, the product or geometric mean of the ratios up to it, or the
    current policy's probability of the token."""
    direction: Literal["below", "above", "both"] = "below"
    """A trigger is a statistic below kappa, above kappa, or outside [kappa, 1 / kappa]."""
    kappa: Number = Field(0.1, gt=0)
    """The threshold; below 1 for directions below and both, above 1 for direction above."""
    trigger_count: int = Field(1, ge=1)
    """The veto starts at this trigger of a response."""
    window: int | None = Field(None, ge=1)
    """Only this many tokens after the trigger are removed; all of them when null. For the suffix scopes."""
    advantage_sign: Literal["negative", "all"] = "negative"
    """The veto acts on responses with negative advantage, or on all (ablation)."""
    recompute: Literal["every_update", "once_per_stage"] = "every_update"
    """Triggers are found with the current policy at every update, or once, with the policy that starts the stage."""

    @model_validator(mode="after")
    def _kappa_fits_direction(self) -> "VetoSettings":
        if self.scope == "off":
            return self
        if self.direction == "above" and self.statistic != "token_prob" and self.kappa <= 1:
            raise ValueError(f"kappa {self.kappa} with direction above; allowed: kappa > 1")
        if self.direction != "above" and self.kappa >= 1:
            raise ValueError(f"kappa {self.kappa} with direction {self.direction}; allowed: 0 < kappa < 1")
        if self.statistic == "token_prob" and self.direction != "below":
            raise ValueError(f"direction {self.direction} with statistic token_prob; allowed: below")
        if self.recompute == "once_per_stage" and self.statistic != "token_prob":
            raise ValueError(
                f"recompute once_per_stage with statistic {self.statistic}: at a stage's start every ratio is 1, so "
                "nothing could trigger; allowed: every_update, or statistic token_prob"
            )
        if self.window is not None and not self.scope.startswith("suffix"):
            raise ValueError(f"window {self.window} with scope {self.scope}; allowed: null, or a suffix scope")
        return self


class ObjectiveSettings(Settings):
    """One loss for every algorithm: its gradient is a coefficient times the gradient of the log-probability."""

    advantage: AdvantageSettings = AdvantageSettings()
    clip_low: Number = Field(0.8, ge=0)
    """Lower end of the importance-ratio interval."""
    clip_high: Number = Field(1.2, gt=0)
    """Upper end of the importance-ratio interval."""
    clip_mode: Literal["one_side", "two_side"] = "one_side"
    """PPO's min(), which clips only where the objective would grow; or no gradient outside the interval at all."""
    dual_clip: Number | None = Field(None, gt=1)
    """Upper bound of the ratio for negative advantages; none when null."""
    veto: VetoSettings = VetoSettings()
    aggregation: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "const"] = "token_mean"
    """How token losses become one number; const divides by responses x max_new_tokens (Dr.GRPO)."""
    denominator: Literal["original", "kept"] = "original"
    """Whether vetoed tokens still count; without effect on seq_mean_token_sum and const, which count no tokens."""

    @model_validator(mode="after")
    def _interval_is_ordered(self) -> "ObjectiveSettings":
        if self.clip_low >= self.clip_high:
            raise ValueError(f"clip_low {self.clip_low} with clip_high {self.clip_high}; allowed: clip_low < clip_high")
        return self


PRESETS: dict[str, dict[str, Any]] = {
    "mu_grpo": {"clip_low": 0.0, "clip_high": 5.0, "veto": {"scope": "suffix"}},
    "relaxed": {"clip_low": 0.0, "clip_high": 5.0},
    "grpo": {"clip_low": 0.8, "clip_high": 1.2},
}
"""Named rows of objective settings; what a row does not name has ObjectiveSettings' default."""


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``base`` with the fields of ``over``, nested dictionaries field by field."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
