"""Settings of the objective, one class per component. A preset (``presets``) is a named row of these settings."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tasks.settings.base import Kinds, Number, Settings


class AdvantageSettings(Settings):
    """Advantages from the rewards of a group: (reward - baseline) / scale."""

    baseline: Literal["mean", "logavgexp", "none"] = "mean"
    """Baseline of a group: the mean of its rewards, their log-average-exp (OPMD as in Trinity), or none."""
    baseline_offset: Number = 0.0
    """Number that is added to the baseline: -0.1 puts it below the mean (AsymRE)."""
    temperature: Number = Field(1.0, gt=0)
    """Temperature of baseline logavgexp; other baselines have none."""
    scale: Literal["std", "std_biased", "sqrt_eps", "batch_std", "none"] = "std"
    """Divisor of the advantages: std is the group's standard deviation with ddof 1, std_biased the one with ddof 0,
    sqrt_eps sqrt(variance + epsilon), batch_std the standard deviation of all rewards of the stage (of the refresh,
    where generation and training alternate), and none 1 (Dr.GRPO)."""
    epsilon: Number = Field(1e-6, ge=0)
    """Number that is added to the standard deviation, or to the variance with scale sqrt_eps."""

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if self.scale == "none" and self.epsilon != 1e-6:
            raise ValueError(f"epsilon {self.epsilon} with scale none; allowed: with another scale")
        if self.temperature != 1 and self.baseline != "logavgexp":
            raise ValueError(f"temperature {self.temperature} with baseline {self.baseline}; allowed: with logavgexp")
        return self


class RatioSettings(Kinds):
    """Importance ratio of gate and weight: the probability of a token by the current policy over that by another."""

    tag: ClassVar[str] = "reference"
    reference: str = "behavior"
    """The denominator policy, which is not the reference of a regulariser (the base policy)."""
    level: Literal["token", "prefix_minimum", "sequence_geometric", "sequence_product"] = "token"
    """Level of the ratio: token is the ratio of each token; prefix_minimum multiplies it, only in the weight, by the
    smallest ratio before it, at most 1 (MinPRO); sequence_geometric and sequence_product are the geometric mean and the
    product over the response, the same for all its tokens."""


class BehaviorRatio(RatioSettings):
    """Ratio to the behavior policy, which sampled the response."""

    reference: Literal["behavior"] = "behavior"


class ProximalRatio(RatioSettings):
    """Ratio to the proximal policy, times the ratio of the proximal to the behavior policy (decoupled PPO)."""

    reference: Literal["proximal"] = "proximal"
    behavior_cap: Number = Field(5.0, gt=0)
    """Largest ratio of the proximal to the behavior policy."""
    beyond_cap: Literal["mask", "truncate"] = "mask"
    """Leave out (mask) tokens whose ratio is above behavior_cap, or set their ratio to behavior_cap (truncate)."""


class GateSettings(Kinds):
    """Gate: which tokens keep their gradient, by ratio and sign of the advantage."""

    kind: str = "one_side"
    """Rule of the gate. one_side stops tokens outside the interval only where the objective would grow (PPO's min());
    two_side stops all of them."""
    dual_clip: Number | None = Field(None, gt=1)
    """Largest ratio of tokens with negative advantage; no limit when null."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the interval of the ratio; None if it is computed for every update."""
        if isinstance(self, IntervalGate) and self.bounds != "static":
            return None
        return (self.low, self.high) if isinstance(self, RatioInterval) else (0.0, math.inf)


class RatioInterval(Settings):
    """A fixed interval of the ratio."""

    low: Number = Field(0.8, ge=0)
    """Lower end of the ratio interval."""
    high: Number = Field(1.2, gt=0)
    """Upper end of the ratio interval."""

    @model_validator(mode="after")
    def _interval_is_ordered(self) -> Self:
        if self.low >= self.high or not self.low <= 1 <= self.high:
            raise ValueError(f"low {self.low} with high {self.high}; allowed: low < high, with 1 between them")
        return self


class NoGate(GateSettings):
    """All tokens keep their gradient."""

    kind: Literal["none"] = "none"


class IntervalGate(GateSettings):
    """Gate with one interval of the ratio."""

    tag: ClassVar[str] = "bounds"
    kind: Literal["one_side", "two_side"] = "one_side"
    bounds: str = "static"
    """Source of the interval: low and high from the settings (static), or computed for every update."""


class StaticGate(RatioInterval, IntervalGate):
    """The same interval for all updates."""

    bounds: Literal["static"] = "static"


class SecondMomentSettings(Settings):
    """Bounds from the second moment of the log-ratio (M2PO), over the tokens of a whole update."""

    threshold: Number = Field(0.04, gt=0)
    """Largest mean of the squared log-ratio."""
    form: Literal["winsorize", "drop"] = "winsorize"
    """Cap the largest values until the mean fits (winsorize, the authors' code), or drop them (the paper's text)."""
    harmful_only: bool = True
    """Count only tokens whose update moves the ratio further from 1: A > 0 with r > 1, A < 0 with r < 1. When false,
    all tokens count; gate.kind two_side can then leave out any of them."""


class SecondMomentGate(IntervalGate):
    """An interval around 1 that bounds the second moment of the log-ratio in every update (M2PO)."""

    bounds: Literal["second_moment"] = "second_moment"
    second_moment: SecondMomentSettings = SecondMomentSettings()


class BalanceSettings(Settings):
    """Bounds that rise from gate.low and gate.high to increase the share of positive advantages in an update (BAPO)."""

    target: Number = Field(1.0, gt=0)
    """Mass of tokens with A >= 0, as a multiple of that of tokens with A < 0, at which the bounds stop rising."""
    low_max: Number = Field(0.8, gt=0)
    """Largest lower end of the interval."""
    high_max: Number = Field(2.0, gt=0)
    """Largest upper end of the interval."""
    step: Number = Field(0.05, gt=0)
    """Step by which the lower or the upper end rises."""
    statistic: Literal["code", "gradient"] = "code"
    """Tokens beyond a bound have the bound as their ratio (code, the authors' code), or do not count (gradient)."""


class BalanceGate(RatioInterval, IntervalGate):
    """An interval that rises in every update until positive advantages have enough weight (BAPO)."""

    bounds: Literal["balance"] = "balance"
    balance: BalanceSettings = BalanceSettings()

    @model_validator(mode="after")
    def _maxima_are_in_order(self) -> Self:
        if self.balance.low_max >= self.high:
            raise ValueError(f"balance.low_max {self.balance.low_max} with high {self.high}; allowed: low_max < high")
        if self.balance.low_max < self.low or self.balance.high_max < self.high:
            raise ValueError(
                f"balance.low_max {self.balance.low_max} and balance.high_max {self.balance.high_max} with low "
                f"{self.low} and high {self.high}; allowed: maxima that are not below low and high"
            )
        return self


class RingGate(RatioInterval, GateSettings):
    """Gate that passes tokens inside the interval, and beyond the outer bounds those that move back towards 1 (REC)."""

    kind: Literal["ring"] = "ring"
    outer_low: Number = Field(0.4, ge=0)
    """Tokens with A >= 0 pass at and below this ratio, too."""
    outer_high: Number = Field(3.0, gt=0)
    """Tokens with A <= 0 pass at and above this ratio, too."""

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
    """Weight: the factor of a token that passes the gate; it carries no gradient."""

    kind: str = "ratio"


class OneWeight(WeightSettings):
    """The weight is 1."""

    kind: Literal["one"] = "one"


class RatioWeight(WeightSettings):
    """The weight is the ratio."""

    kind: Literal["ratio"] = "ratio"


class BoundedWeight(Settings):
    """Base of weights that are the ratio, clipped to an interval."""


class ClippedWeight(RatioInterval, BoundedWeight, WeightSettings):
    """The weight is the ratio, clipped to [low, high] (CISPO)."""

    kind: Literal["clipped"] = "clipped"
    low: Number = Field(0.0, ge=0)
    """Smallest weight."""
    high: Number = Field(5.0, gt=0)
    """Largest weight."""


class TaperWeight(BoundedWeight, WeightSettings):
    """The weight is the ratio, clipped to an interval for each sign of the advantage (TOPR)."""

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


class PreserveWeight(RatioInterval, BoundedWeight, WeightSettings):
    """The weight is the ratio, or a share of the bound where PPO would clip (GPPO)."""

    kind: Literal["preserve"] = "preserve"
    preserve_low: Number = Field(1.0, ge=0)
    """Weight of clipped tokens with A < 0, as a share of low."""
    preserve_high: Number = Field(1.0, ge=0)
    """Weight of clipped tokens with A > 0, as a share of high."""


class ExponentialWeight(WeightSettings):
    """The weight is exp(advantage / temperature) (RED)."""

    kind: Literal["exponential"] = "exponential"
    temperature: Number = Field(1.0, gt=0)
    """Divisor of the advantage."""


class MismatchSettings(Kinds):
    """Correction for an engine whose probabilities differ from the trainer's for the same weights.

    TIS and MIS multiply any objective by the ratio of the trainer's to the engine's probability.
    """

    kind: str = "none"


class NoFactor(MismatchSettings):
    """No factor. With bypass the engine's probabilities are those of the behavior policy in all ratios."""

    kind: Literal["none", "bypass"] = "none"


class _Correction(Settings):
    level: Literal["token", "sequence_geometric", "sequence_product"] = "token"
    """Level of this ratio: the token's ratio, or the geometric mean or the product over the response."""


class TruncateMismatch(_Correction, MismatchSettings):
    """The factor is the trainer's over the engine's probability, at most high (TIS)."""

    kind: Literal["truncate"] = "truncate"
    high: Number = Field(2.0, gt=0)
    """Largest ratio."""


class MaskMismatch(RatioInterval, _Correction, MismatchSettings):
    """The factor is the trainer's over the engine's probability; tokens outside [low, high] are left out (MIS)."""

    kind: Literal["mask"] = "mask"
    low: Number = Field(0.5, ge=0)
    """Smallest ratio of a token that is not left out."""
    high: Number = Field(2.0, gt=0)
    """Largest ratio of a token that is not left out."""


class VetoSettings(Kinds):
    """The negative-advantage veto (NAV).

    The paper states its effect. Statistic, direction and threshold are chosen here (docs/laboratory.md).
    Triggers are also counted without a veto.
    """

    tag: ClassVar[str] = "scope"
    scope: str = "off"
    """Tokens that the veto removes from the update: suffix is all tokens after a trigger, suffix_nontrigger only those
    that are not triggers, suffix_inclusive the trigger and all tokens after it, response the whole response, and
    trigger_only only the triggers."""
    statistic: Literal["token_ratio", "prefix_product", "token_prob", "running_geo", "sequence_geo"] = "token_ratio"
    """Statistic that is compared with kappa: token_ratio is the ratio of the token, prefix_product and running_geo the
    product and the geometric mean of the ratios up to it, token_prob its probability by the current policy, and
    sequence_geo the geometric mean of the ratios of the whole response."""
    direction: Literal["below", "above", "both"] = "above"
    """A token is a trigger if its statistic is below kappa, above kappa, or outside [kappa, 1 / kappa] (both)."""
    kappa: Number = Field(2.0, gt=0)
    """Threshold of the statistic: below 1 for directions below and both, above 1 for direction above."""
    advantage_sign: Literal["negative", "all"] = "negative"
    """Responses that the veto acts on: those with negative advantage, or all (ablation)."""
    recompute: Literal["every_update", "once_per_stage"] = "every_update"
    """Compute triggers with the current policy at every update, or once with the behavior policy."""

    @classmethod
    def of_kind(cls, values: Mapping[str, Any]) -> type[Self] | None:
        """Return the class for the scope in plain values; see ``_off``."""
        return super().of_kind({**values, "scope": _off(values["scope"])} if "scope" in values else values)

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


def _off(scope: Any) -> Any:
    """Return off for false, as which YAML reads off without quotes; any other scope is returned unchanged."""
    return "off" if scope is False else scope


class NoVeto(VetoSettings):
    """No veto."""

    scope: Annotated[Literal["off"], BeforeValidator(_off)] = "off"


class _Vetoing(Settings):
    trigger_count: int = Field(1, ge=1)
    """Number of the trigger, from 1, at which the veto of a response starts."""


class SuffixVeto(_Vetoing, VetoSettings):
    """Veto of the tokens after a trigger."""

    scope: Literal["suffix", "suffix_nontrigger", "suffix_inclusive"] = "suffix"
    window: int | None = Field(None, ge=1)
    """Largest number of tokens after the trigger that are removed; all of them when null."""


class ResponseVeto(_Vetoing, VetoSettings):
    """Veto of the whole response, or of only the triggers."""

    scope: Literal["response", "trigger_only"] = "response"


class RegulariserSettings(Kinds):
    """Penalty on every response token, which is added to the loss."""

    kind: str = "none"


class NoPenalty(RegulariserSettings):
    """No penalty."""

    kind: Literal["none"] = "none"


class _Weighted(Settings):
    coefficient: Number = Field(ge=0)
    """Factor of the penalty."""


class ReferencePenalty(_Weighted, RegulariserSettings):
    """The KL divergence from the reference, which is the base policy of the run."""

    kind: Literal["reference_kl"] = "reference_kl"
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL divergence: x (k1), x^2 / 2 (k2), or exp(-x) - 1 + x (k3), with x the log-ratio to the
    reference."""
    unbiased: bool = False
    """Multiply the estimate by the importance ratio (DeepSeek-V3.2)."""


class TokenPenalty(_Weighted, RegulariserSettings):
    """The squared log-ratio to the behavior policy (OPMD), or minus the log-probability (AsymRE's other form)."""

    kind: Literal["behavior_l2", "likelihood"] = "behavior_l2"


class DataSettings(Settings):
    """Selection of the responses of an update, and changes to their rewards, before advantages are computed."""

    zero_variance: Literal["keep", "drop"] = "keep"
    """Keep groups whose rewards are equal, so that they count in the denominator, or leave them out (drop)."""
    balance_negatives: bool = False
    """Remove random responses with rewards below the group's mean from the group until at most as many remain as are
    above it (RED-Drop). Their advantage is 0, and their tokens count in the denominator."""
    truncated: Literal["keep", "mask"] = "keep"
    """Train on responses that were cut off at max_new_tokens, or mask them: their rewards count in the group, but they
    have no gradient and count in no denominator (DAPO's overlong filtering)."""
    overlong_buffer_share: Number | None = Field(None, gt=0, le=1)
    """Length of DAPO's buffer as a share of max_new_tokens. The reward of a response that ends in this last part falls
    linearly with its length, by 1 at max_new_tokens."""


class ScheduleSettings(Settings):
    """Schedule of the updates on a stage's responses."""

    updates_per_batch: int = Field(1, ge=1)
    """Number of consecutive updates on each batch of responses_per_update responses."""
    batches_per_proximal: int = Field(1, ge=1)
    """Number of batches that share a proximal policy, which is the weights before the first of these batches."""


class ObjectiveSettings(Settings):
    """The loss of every algorithm: its gradient is a coefficient times the gradient of the log-probability."""

    advantage: AdvantageSettings = AdvantageSettings()
    ratio: RatioSettings = BehaviorRatio()
    gate: GateSettings = StaticGate()
    weight: WeightSettings = RatioWeight()
    mismatch: MismatchSettings = NoFactor()
    veto: VetoSettings = NoVeto()
    aggregation: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "const"] = "token_mean"
    """Reduction of token losses to one number; const divides their sum by responses x max_new_tokens (Dr.GRPO)."""
    denominator: Literal["original", "kept"] = "original"
    """Tokens that the aggregation counts: all (original), or those that are neither vetoed nor rejected (kept)."""
    regulariser: RegulariserSettings = NoPenalty()
    data: DataSettings = DataSettings()
    schedule: ScheduleSettings = ScheduleSettings()

    @model_validator(mode="after")
    def _components_fit_together(self) -> Self:
        weighs = not isinstance(self.weight, OneWeight | ExponentialWeight)
        gates = not isinstance(self.gate, NoGate) or self.gate.dual_clip is not None
        if self.ratio.level != "token" and not weighs and not (gates and self.ratio.level != "prefix_minimum"):
            raise ValueError(
                f"ratio.level {self.ratio.level} with gate.kind {self.gate.kind} and weight.kind {self.weight.kind}, "
                "which do not use it; allowed: level token"
            )
        if self.ratio.level.startswith("sequence") and (self.gate.interval is None or self.gate.kind == "centred"):
            interval = "gate.kind centred" if self.gate.kind == "centred" else "gate.bounds other than static"
            raise ValueError(f"ratio.level {self.ratio.level} with {interval}; allowed: level token")
        if isinstance(self.ratio, ProximalRatio) and isinstance(self.gate, CentredGate):
            raise ValueError("gate.kind centred with ratio.reference proximal: the ratio is centred already")
        if isinstance(self.weight, PreserveWeight) and not isinstance(self.gate, NoGate):
            raise ValueError(
                f"weight.kind preserve with gate.kind {self.gate.kind}, which removes the tokens that it keeps; "
                "allowed: gate.kind none"
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
        """Return True if the loss needs log-probabilities of the proximal policy."""
        return isinstance(self.ratio, ProximalRatio) or isinstance(self.gate, CentredGate)

    @property
    def needs_reference(self) -> bool:
        """Return True if the loss needs log-probabilities of the reference."""
        return isinstance(self.regulariser, ReferencePenalty) and self.regulariser.coefficient > 0
