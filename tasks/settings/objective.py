"""Settings of the objective, one class per component. An algorithm is a named row of them, see ``presets``."""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasks.settings.base import Kinds, Number, Settings


class AdvantageSettings(Settings):
    """Advantages from the rewards of a group: reward minus baseline, over scale."""

    baseline: Literal["mean", "logavgexp", "none"] = "mean"
    """The group's mean, its log-average-exp (OPMD as in Trinity), or nothing."""
    baseline_offset: Number = 0.0
    """Added to the baseline: -0.1 puts it below the mean (AsymRE)."""
    temperature: Number = Field(1.0, gt=0)
    """Temperature of the log-average-exp; no other baseline has one."""
    scale: Literal["std", "std_biased", "sqrt_eps", "batch_std", "none"] = "std"
    """Divide by the group's standard deviation (ddof 1), by the biased one (ddof 0), by sqrt(variance + epsilon), by
    the standard deviation of all rewards of the stage (of the refresh, where they alternate), or by nothing
    (Dr.GRPO)."""
    epsilon: Number = Field(1e-6, ge=0)
    """Added to the standard deviation, or to the variance with sqrt_eps."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.scale == "none" and self.epsilon != 1e-6:
            raise ValueError(f"epsilon {self.epsilon} with scale none; allowed: with another scale")
        if self.temperature != 1 and self.baseline != "logavgexp":
            raise ValueError(
                f"temperature {self.temperature} with baseline {self.baseline}; allowed: with baseline logavgexp"
            )
        return self


class RatioSettings(Kinds):
    """The importance ratio that gate and weight look at: the current policy's probability over another's."""

    tag: ClassVar[str] = "reference"
    reference: str = "behavior"
    level: Literal["token", "prefix_minimum", "sequence_geometric", "sequence_product"] = "token"
    """The token's ratio; times the smallest ratio before it, at most 1, in the weight alone (MinPRO); or the geometric
    mean or product over the response, the same for all its tokens."""


class BehaviorRatio(RatioSettings):
    """Ratio to the behavior policy, which sampled."""

    reference: Literal["behavior"] = "behavior"


class ProximalRatio(RatioSettings):
    """Ratio to the proximal policy, which is corrected to the behavior policy (decoupled PPO)."""

    reference: Literal["proximal"] = "proximal"
    behavior_cap: Number = Field(5.0, gt=0)
    """Largest ratio of the proximal to the behavior policy."""
    beyond_cap: Literal["mask", "truncate"] = "mask"
    """Leave out a token beyond the cap, or give it the cap."""


class GateSettings(Kinds):
    """Which tokens keep their gradient, by ratio and sign of the advantage."""

    kind: str = "one_side"
    dual_clip: Number | None = Field(None, gt=1)
    """Largest ratio for negative advantages; none when null."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the ratio; None where it is found anew for every update."""
        return 0.0, math.inf


class Interval(Settings):
    """An interval of the ratio that is set."""

    low: Number = Field(0.8, ge=0)
    """Lower end of the ratio interval."""
    high: Number = Field(1.2, gt=0)
    """Upper end of the ratio interval."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval that is set."""
        return self.low, self.high

    @model_validator(mode="after")
    def _interval_is_ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} with high {self.high}; allowed: low < high")
        return self


class NoGate(GateSettings):
    """All tokens keep their gradient."""

    kind: Literal["none"] = "none"


class IntervalGate(GateSettings):
    """PPO's min(), which stops only where the objective would grow; or all that are inside the interval."""

    tag: ClassVar[str] = "bounds"
    kind: Literal["one_side", "two_side"] = "one_side"
    bounds: str = "static"
    """Source of the interval: given, or found anew for every update."""


class StaticGate(Interval, IntervalGate):
    """An interval that is the same for all updates."""

    bounds: Literal["static"] = "static"


class SecondMomentSettings(Settings):
    """Bounds from the second moment of the log-ratio (M2PO), over the tokens of a whole update."""

    threshold: Number = Field(0.04, gt=0)
    """Largest mean of the squared log-ratio."""
    form: Literal["winsorize", "drop"] = "winsorize"
    """Cap the largest values until the mean fits (the authors' code), or drop them (the paper's wording)."""
    harmful_only: bool = True
    """Count only tokens whose update moves the ratio further from 1: A > 0 with r > 1, A < 0 with r < 1. Without it, a
    gate of kind two_side leaves out the others too."""


class SecondMomentGate(IntervalGate):
    """An interval around 1 that bounds the second moment of the log-ratio in every update (M2PO)."""

    bounds: Literal["second_moment"] = "second_moment"
    second_moment: SecondMomentSettings = SecondMomentSettings()

    @property
    def interval(self) -> None:
        """None: it is found anew for every update."""


class BalanceSettings(Settings):
    """Bounds that raise the positive share of an update (BAPO), from gate.low and gate.high up to the maxima."""

    target: Number = Field(1.0, gt=0)
    """Positive over negative mass that ends the search."""
    low_max: Number = Field(0.8, gt=0)
    """Largest lower end of the interval."""
    high_max: Number = Field(2.0, gt=0)
    """Largest upper end of the interval."""
    step: Number = Field(0.05, gt=0)
    """Step by which an end of the interval rises."""
    statistic: Literal["code", "gradient"] = "code"
    """Clipped tokens count with the bound as weight (the authors' code), or not at all, as in the gradient."""


class BalanceGate(Interval, IntervalGate):
    """An interval that rises in every update until positive advantages weigh enough (BAPO)."""

    bounds: Literal["balance"] = "balance"
    balance: BalanceSettings = BalanceSettings()

    @property
    def interval(self) -> None:
        """None: it is found anew for every update."""

    @model_validator(mode="after")
    def _maxima_are_in_order(self) -> Self:
        if self.balance.low_max >= self.high:
            raise ValueError(f"balance.low_max {self.balance.low_max} with high {self.high}; allowed: low_max < high")
        if self.balance.low_max < self.low or self.balance.high_max < self.high:
            raise ValueError(
                f"balance.low_max {self.balance.low_max} and balance.high_max {self.balance.high_max} with low "
                f"{self.low} and high {self.high}; allowed: maxima at or above where the search starts"
            )
        return self


class RingGate(Interval, GateSettings):
    """Tokens inside the interval, and those beyond the outer bounds where the update leads back (REC)."""

    kind: Literal["ring"] = "ring"
    outer_low: Number = Field(0.4, ge=0)
    """Positive advantages pass again at and below this ratio."""
    outer_high: Number = Field(3.0, gt=0)
    """Negative advantages pass again at and above this ratio."""

    @model_validator(mode="after")
    def _outer_bounds_are_outside(self) -> Self:
        if not (self.outer_low < self.low and self.high < self.outer_high):
            raise ValueError(
                f"outer_low {self.outer_low} and outer_high {self.outer_high} around [{self.low}, {self.high}]; "
                "allowed: outer_low < low and high < outer_high"
            )
        return self


class CentredGate(GateSettings):
    """PPO's min() with an interval around the proximal policy's ratio (off-policy GRPO)."""

    kind: Literal["centred"] = "centred"
    half_width: Number = Field(0.2, gt=0)
    """Largest distance from the proximal policy's ratio."""


class WeightSettings(Kinds):
    """Factor of a token that passes the gate; carries no gradient."""

    kind: str = "ratio"


class OneWeight(WeightSettings):
    """1."""

    kind: Literal["one"] = "one"


class RatioWeight(WeightSettings):
    """The ratio."""

    kind: Literal["ratio"] = "ratio"


class BoundedWeight(Settings):
    """A weight that is the ratio, cut to bounds."""


class ClippedWeight(Interval, BoundedWeight, WeightSettings):
    """The ratio cut to [low, high] (CISPO)."""

    kind: Literal["clipped"] = "clipped"
    low: Number = Field(0.0, ge=0)
    """Smallest weight."""
    high: Number = Field(5.0, gt=0)
    """Largest weight."""


class TaperWeight(BoundedWeight, WeightSettings):
    """The ratio cut to an interval for each sign of the advantage (TOPR)."""

    kind: Literal["taper"] = "taper"
    positive: list[Number] = Field([1.0, 1.0], min_length=2, max_length=2)
    """Smallest and largest weight for advantages of 0 and more."""
    negative: list[Number] = Field([0.0, 1.0], min_length=2, max_length=2)
    """Smallest and largest weight for advantages below 0."""

    @model_validator(mode="after")
    def _intervals_are_ordered(self) -> Self:
        for name, (low, high) in {"positive": self.positive, "negative": self.negative}.items():
            if not 0 <= low <= high:
                raise ValueError(f"{name}: {low:g} to {high:g}; allowed: 0 <= smallest <= largest")
        return self


class PreserveWeight(Interval, BoundedWeight, WeightSettings):
    """The ratio inside the interval; outside of it, where PPO would clip, a share of the bound (GPPO)."""

    kind: Literal["preserve"] = "preserve"
    preserve_low: Number = Field(1.0, ge=0)
    """Share of low that clipped tokens with A < 0 keep."""
    preserve_high: Number = Field(1.0, ge=0)
    """Share of high that clipped tokens with A > 0 keep."""


class ExponentialWeight(WeightSettings):
    """exp(advantage / temperature) (RED)."""

    kind: Literal["exponential"] = "exponential"
    temperature: Number = Field(1.0, gt=0)
    """Divisor of the advantage."""


class MismatchSettings(Kinds):
    """Correction for an engine whose probabilities differ from the trainer's for the same weights (TIS, MIS).

    It multiplies any objective by the trainer's probability over the engine's.
    """

    kind: str = "none"


class NoMismatch(MismatchSettings):
    """No correction."""

    kind: Literal["none"] = "none"


class _Correction(Settings):
    level: Literal["token", "sequence_geometric", "sequence_product"] = "token"
    """The ratio of the token, or the geometric mean or product over the response."""


class TruncateMismatch(_Correction, MismatchSettings):
    """The ratio of the trainer's to the engine's probability, cut to at most high (TIS)."""

    kind: Literal["truncate"] = "truncate"
    high: Number = Field(2.0, gt=0)
    """Largest ratio."""


class MaskMismatch(Interval, _Correction, MismatchSettings):
    """The ratio of the trainer's to the engine's probability; what is outside [low, high] is left out (MIS)."""

    kind: Literal["mask"] = "mask"
    low: Number = Field(0.5, ge=0)
    """Smallest ratio that is not left out."""
    high: Number = Field(2.0, gt=0)
    """Largest ratio that is not left out."""


class VetoSettings(Kinds):
    """The negative-advantage veto (NAV).

    The paper states its effect; threshold and direction are chosen here, by what docs/laboratory.md found. Triggers are
    counted without a veto, too.
    """

    tag: ClassVar[str] = "scope"
    scope: str = "off"
    statistic: Literal["token_ratio", "prefix_product", "token_prob", "running_geo", "sequence_geo"] = "token_ratio"
    """Statistic that is compared with kappa: the token's ratio, the product or geometric mean of the ratios up to it,
    the current policy's probability of the token, or the geometric mean over the whole response."""
    direction: Literal["below", "above", "both"] = "above"
    """A trigger is a statistic below kappa, above kappa, or outside [kappa, 1 / kappa]."""
    kappa: Number = Field(2.0, gt=0)
    """The threshold; below 1 for directions below and both, above 1 for direction above."""
    advantage_sign: Literal["negative", "all"] = "negative"
    """The veto acts on responses with negative advantage, or on all (ablation)."""
    recompute: Literal["every_update", "once_per_stage"] = "every_update"
    """Triggers are found with the current policy at every update, or once, with the policy that starts the stage."""

    @model_validator(mode="after")
    def _trigger_is_possible(self) -> Self:
        if self.direction == "above" and self.statistic != "token_prob" and self.kappa <= 1:
            raise ValueError(f"kappa {self.kappa} with direction above; allowed: kappa > 1")
        if self.direction != "above" and self.kappa >= 1:
            raise ValueError(f"kappa {self.kappa} with direction {self.direction}; allowed: 0 < kappa < 1")
        if self.statistic == "token_prob" and self.direction != "below":
            raise ValueError(f"direction {self.direction} with statistic token_prob; allowed: below")
        if self.statistic == "sequence_geo" and self.scope not in ("off", "response"):
            raise ValueError(f"scope {self.scope} with statistic sequence_geo; allowed: response")
        if self.recompute == "once_per_stage" and self.statistic != "token_prob":
            raise ValueError(
                f"recompute once_per_stage with statistic {self.statistic}: at a stage's start every ratio is 1, so "
                "nothing could trigger; allowed: every_update, or statistic token_prob"
            )
        return self


class NoVeto(VetoSettings):
    """No token is removed."""

    scope: Literal["off"] = "off"


class _Vetoing(Settings):
    trigger_count: int = Field(1, ge=1)
    """The veto starts at this trigger of a response."""


class SuffixVeto(_Vetoing, VetoSettings):
    """The tokens after a trigger are removed, those of them that are no triggers, or the trigger and those after it."""

    scope: Literal["suffix", "suffix_nontrigger", "suffix_inclusive"] = "suffix"
    window: int | None = Field(None, ge=1)
    """Only this many tokens after the trigger are removed; all of them when null."""


class ResponseVeto(_Vetoing, VetoSettings):
    """The whole response is removed, or the triggers alone."""

    scope: Literal["response", "trigger_only"] = "response"


class RegulariserSettings(Kinds):
    """A penalty on every response token, added to the loss."""

    kind: str = "none"


class NoPenalty(RegulariserSettings):
    """No penalty."""

    kind: Literal["none"] = "none"


class _Weighted(Settings):
    coefficient: Number = Field(ge=0)
    """Factor of the penalty."""


class ReferencePenalty(_Weighted, RegulariserSettings):
    """The KL to the run's base policy."""

    kind: Literal["reference_kl"] = "reference_kl"
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL: log-ratio, half its square, or exp(-x) - 1 + x with x the log-ratio to the reference."""
    unbiased: bool = False
    """Multiply the estimate by the importance ratio (DeepSeek-V3.2)."""


class TokenPenalty(_Weighted, RegulariserSettings):
    """The squared log-ratio to the behavior policy (OPMD), or minus the log-probability (AsymRE's other form)."""

    kind: Literal["behavior_l2", "likelihood"] = "behavior_l2"


class DataSettings(Settings):
    """Choice of the responses that take part, and of their rewards, before advantages are computed."""

    zero_variance: Literal["keep", "drop"] = "keep"
    """Groups without two different rewards count in the denominator, or leave the update. They never have a
    gradient."""
    balance_negatives: bool = False
    """Leave out random responses below the group's mean until they are no more than those above it (RED-Drop)."""
    truncated: Literal["keep", "mask"] = "keep"
    """Responses that were cut off at max_new_tokens are trained on, or masked: compared with their group, but without a
    gradient and a share of the denominators (DAPO's overlong filtering)."""
    overlong_buffer_share: Number | None = Field(None, gt=0, le=1)
    """Rewards of responses that end in this last share of max_new_tokens fall linearly, by 1 at the end (DAPO)."""


class ScheduleSettings(Settings):
    """Schedule of the updates on a stage's responses."""

    updates_per_batch: int = Field(1, ge=1)
    """Updates that each batch of responses_per_update responses is used for, one after the other."""
    batches_per_proximal: int = Field(1, ge=1)
    """Batches that share a proximal policy: the weights before the first of them."""


class ObjectiveSettings(Settings):
    """One loss for every algorithm: its gradient is a coefficient times the gradient of the log-probability."""

    advantage: AdvantageSettings = AdvantageSettings()
    ratio: RatioSettings = BehaviorRatio()
    gate: GateSettings = StaticGate()
    weight: WeightSettings = RatioWeight()
    mismatch: MismatchSettings = NoMismatch()
    veto: VetoSettings = NoVeto()
    aggregation: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "const"] = "token_mean"
    """Reduction of token losses to one number; const divides by responses x max_new_tokens (Dr.GRPO)."""
    denominator: Literal["original", "kept"] = "original"
    """Tokens that count where the aggregation counts tokens: all, or those that are neither vetoed nor masked."""
    regulariser: RegulariserSettings = NoPenalty()
    data: DataSettings = DataSettings()
    schedule: ScheduleSettings = ScheduleSettings()

    @model_validator(mode="after")
    def _components_fit_together(self) -> Self:
        unlooked = isinstance(self.gate, NoGate) and isinstance(self.weight, OneWeight | ExponentialWeight)
        if self.ratio.level != "token" and unlooked:
            raise ValueError(
                f"ratio.level {self.ratio.level} with gate.kind none and weight.kind {self.weight.kind}, which look at "
                "no ratio; allowed: level token"
            )
        if self.ratio.level.startswith("sequence") and self.gate.interval is None:
            raise ValueError(f"gate with bounds of its update and ratio.level {self.ratio.level}; allowed: level token")
        if isinstance(self.ratio, ProximalRatio) and isinstance(self.gate, CentredGate):
            raise ValueError("gate.kind centred with ratio.reference proximal: the ratio is centred already")
        if isinstance(self.weight, PreserveWeight) and not isinstance(self.gate, NoGate):
            raise ValueError(
                f"weight.kind preserve with gate.kind {self.gate.kind}, which leaves it nothing to keep; allowed: "
                "gate.kind none"
            )
        if self.denominator == "kept" and self.aggregation in ("seq_mean_token_sum", "const"):
            raise ValueError(
                f"denominator kept with aggregation {self.aggregation}, which counts no tokens; allowed: denominator "
                "original"
            )
        if self.denominator == "kept" and not isinstance(self.regulariser, NoPenalty):
            raise ValueError(
                f"denominator kept with regulariser.kind {self.regulariser.kind}, a mean over all tokens; allowed: "
                "denominator original"
            )
        if self.schedule.batches_per_proximal > 1 and not self.needs_proximal:
            raise ValueError(
                f"schedule.batches_per_proximal {self.schedule.batches_per_proximal} without a proximal policy; "
                "allowed: 1, or ratio.reference proximal or gate.kind centred"
            )
        return self

    @property
    def needs_proximal(self) -> bool:
        """True if log-probabilities of the proximal policy are needed."""
        return isinstance(self.ratio, ProximalRatio) or isinstance(self.gate, CentredGate)

    @property
    def needs_reference(self) -> bool:
        """True if log-probabilities of the base policy are needed."""
        return isinstance(self.regulariser, ReferencePenalty) and self.regulariser.coefficient > 0
