"""Settings of the objective, one class per component. An algorithm is a named row of them, see ``presets``."""

from typing import Literal

from pydantic import Field, model_validator

from tasks.settings.base import Number, Settings


class AdvantageSettings(Settings):
    """How rewards of a group become advantages: reward minus baseline, over scale."""

    baseline: Literal["mean", "logavgexp", "none"] = "mean"
    """The group's mean, its log-average-exp (OPMD as in Trinity), or nothing."""
    baseline_offset: Number = 0.0
    """Added to the baseline: -0.1 puts it below the mean (AsymRE)."""
    temperature: Number = Field(1.0, gt=0)
    """Of the log-average-exp."""
    scale: Literal["std", "std_biased", "sqrt_eps", "batch_std", "none"] = "std"
    """Divide by the group's standard deviation (ddof 1), by the biased one (ddof 0), by sqrt(variance + epsilon), by
    the standard deviation of all rewards of the stage (of the refresh, where they alternate), or by nothing
    (Dr.GRPO)."""
    epsilon: Number = Field(1e-6, ge=0)
    """Added to the standard deviation, or to the variance with sqrt_eps."""


class RatioSettings(Settings):
    """The importance ratio that gate and weight look at."""

    reference: Literal["behavior", "proximal"] = "behavior"
    """Current policy over the policy that sampled, or over the weights at the start of the batch (decoupled PPO)."""
    level: Literal["token", "prefix_minimum", "sequence_geometric", "sequence_product"] = "token"
    """Per token; times the smallest ratio before it, at most 1, in the weight alone (MinPRO); or the geometric mean or
    product over the response, the same for all its tokens."""


class SecondMomentSettings(Settings):
    """Bounds from the second moment of the log-ratio (M2PO), over the tokens of a whole update."""

    threshold: Number = Field(0.04, gt=0)
    """Largest mean of the squared log-ratio."""
    form: Literal["winsorize", "drop"] = "winsorize"
    """Cap the largest values until the mean fits (the authors' code), or drop them (the paper's wording)."""
    harmful_only: bool = True
    """Count only tokens whose update moves the ratio further from 1: A > 0 with r > 1, A < 0 with r < 1. Without it, a
    gate of kind two_side leaves out the others too."""


class BalanceSettings(Settings):
    """Bounds that raise the positive share of an update (BAPO), from gate.low and gate.high up to the maxima."""

    target: Number = Field(1.0, gt=0)
    """Positive over negative mass that ends the search."""
    low_max: Number = Field(0.8, gt=0)
    high_max: Number = Field(2.0, gt=0)
    step: Number = Field(0.05, gt=0)
    statistic: Literal["code", "gradient"] = "code"
    """Clipped tokens count with the bound as weight (the authors' code), or not at all, as in the gradient."""


class GateSettings(Settings):
    """Which tokens keep their gradient, by ratio and sign of the advantage."""

    kind: Literal["none", "one_side", "two_side", "ring", "centred"] = "one_side"
    """All; PPO's min(), which stops only where the objective would grow; only those inside the interval; the interval
    and beyond the outer bounds where the update leads back (REC); or within half_width of the proximal policy's ratio,
    one-sided (off-policy GRPO)."""
    low: Number = Field(0.8, ge=0)
    """Lower end of the ratio interval."""
    high: Number = Field(1.2, gt=0)
    """Upper end of the ratio interval."""
    outer_low: Number = Field(0.4, ge=0)
    """Of the ring: positive advantages pass again at and below this ratio."""
    outer_high: Number = Field(3.0, gt=0)
    """Of the ring: negative advantages pass again at and above this ratio."""
    half_width: Number = Field(0.2, gt=0)
    """Of the centred gate."""
    bounds: Literal["static", "second_moment", "balance"] = "static"
    """Whether low and high are as given or found anew for every update."""
    second_moment: SecondMomentSettings = SecondMomentSettings()
    balance: BalanceSettings = BalanceSettings()
    dual_clip: Number | None = Field(None, gt=1)
    """Largest ratio for negative advantages; none when null."""

    @model_validator(mode="after")
    def _intervals_are_ordered(self) -> "GateSettings":
        if self.low >= self.high:
            raise ValueError(f"low {self.low} with high {self.high}; allowed: low < high")
        if self.kind == "ring" and not (self.outer_low < self.low and self.high < self.outer_high):
            raise ValueError(
                f"outer_low {self.outer_low} and outer_high {self.outer_high} around [{self.low}, {self.high}]; "
                "allowed: outer_low < low and high < outer_high"
            )
        if self.bounds != "static" and self.kind not in ("one_side", "two_side"):
            raise ValueError(f"bounds {self.bounds} with kind {self.kind}; allowed: kind one_side or two_side")
        if self.bounds == "balance" and self.balance.low_max >= self.high:
            raise ValueError(f"balance.low_max {self.balance.low_max} with high {self.high}; allowed: low_max < high")
        if self.bounds == "balance" and (self.balance.low_max < self.low or self.balance.high_max < self.high):
            raise ValueError(
                f"balance.low_max {self.balance.low_max} and balance.high_max {self.balance.high_max} with low "
                f"{self.low} and high {self.high}; allowed: maxima at or above where the search starts"
            )
        return self


class WeightSettings(Settings):
    """What a token that passes the gate is multiplied by; carries no gradient."""

    kind: Literal["one", "ratio", "clipped", "taper", "preserve", "exponential"] = "ratio"
    """1; the ratio; the ratio cut to [low, high] (CISPO); cut by sign of the advantage (TOPR); the ratio inside the
    gate's interval and a share of its bound outside (GPPO); or exp(advantage / temperature) (RED)."""
    low: Number = Field(0.0, ge=0)
    high: Number = Field(5.0, gt=0)
    positive: list[Number] = Field([1.0, 1.0], min_length=2, max_length=2)
    """Of the taper: smallest and largest weight for advantages of 0 and more."""
    negative: list[Number] = Field([0.0, 1.0], min_length=2, max_length=2)
    """Of the taper: the same for advantages below 0."""
    preserve_low: Number = Field(1.0, ge=0)
    """Share of gate.low that clipped tokens with A < 0 keep."""
    preserve_high: Number = Field(1.0, ge=0)
    """Share of gate.high that clipped tokens with A > 0 keep."""
    temperature: Number = Field(1.0, gt=0)
    """Of exponential."""
    behavior_cap: Number = Field(5.0, gt=0)
    """With ratio.reference proximal: largest ratio of the proximal to the behavior policy."""
    beyond_cap: Literal["mask", "truncate"] = "mask"
    """Whether a token beyond the cap is left out or takes the cap."""

    @model_validator(mode="after")
    def _intervals_are_ordered(self) -> "WeightSettings":
        pairs = {"low, high": [self.low, self.high], "positive": self.positive, "negative": self.negative}
        for name, (low, high) in pairs.items():
            if not 0 <= low <= high:
                raise ValueError(f"{name}: {low:g} to {high:g}; allowed: 0 <= smallest <= largest")
        return self


class MismatchSettings(Settings):
    """Correction for an engine whose probabilities differ from the trainer's for the same weights (TIS, MIS).

    It multiplies any objective by the trainer's probability over the engine's.
    """

    kind: Literal["none", "truncate", "mask"] = "none"
    """No correction; the ratio cut to at most high; or the ratio, with tokens (at a sequence level, responses) outside
    [low, high] left out."""
    level: Literal["token", "sequence_geometric", "sequence_product"] = "token"
    low: Number = Field(0.5, ge=0)
    high: Number = Field(2.0, gt=0)

    @model_validator(mode="after")
    def _interval_is_ordered(self) -> "MismatchSettings":
        if self.low >= self.high:
            raise ValueError(f"low {self.low} with high {self.high}; allowed: low < high")
        return self


class VetoSettings(Settings):
    """The negative-advantage veto (NAV).

    The paper states its effect; threshold and direction are chosen here, by what docs/laboratory.md found.
    """

    scope: Literal["off", "suffix", "suffix_nontrigger", "suffix_inclusive", "response", "trigger_only"] = "off"
    """Which tokens a trigger removes: those after it, those after it that are no triggers, it and those after it, the
    whole response, or the triggers alone. With a trigger_count, those from that one on."""
    statistic: Literal["token_ratio", "prefix_product", "token_prob", "running_geo", "sequence_geo"] = "token_ratio"
    """What is held against kappa: the token's ratio, the product or geometric mean of the ratios up to it, the current
    policy's probability of the token, or the geometric mean over the whole response."""
    direction: Literal["below", "above", "both"] = "above"
    """A trigger is a statistic below kappa, above kappa, or outside [kappa, 1 / kappa]."""
    kappa: Number = Field(2.0, gt=0)
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
        if self.statistic == "sequence_geo" and self.scope != "response":
            raise ValueError(f"scope {self.scope} with statistic sequence_geo; allowed: response")
        if self.recompute == "once_per_stage" and self.statistic != "token_prob":
            raise ValueError(
                f"recompute once_per_stage with statistic {self.statistic}: at a stage's start every ratio is 1, so "
                "nothing could trigger; allowed: every_update, or statistic token_prob"
            )
        if self.window is not None and not self.scope.startswith("suffix"):
            raise ValueError(f"window {self.window} with scope {self.scope}; allowed: null, or a suffix scope")
        return self


class RegulariserSettings(Settings):
    """A penalty on every response token, added to the loss."""

    kind: Literal["none", "reference_kl", "behavior_l2", "likelihood"] = "none"
    """KL to the run's base policy; squared log-ratio to the behavior policy (OPMD); or minus the log-probability
    (AsymRE's other form)."""
    coefficient: Number = Field(0.0, ge=0)
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Of the KL: log-ratio, half its square, or exp(-x) - 1 + x with x the log-ratio to the reference."""
    unbiased: bool = False
    """Multiply the estimate by the importance ratio (DeepSeek-V3.2)."""

    @model_validator(mode="after")
    def _has_a_coefficient(self) -> "RegulariserSettings":
        if self.kind != "none" and "coefficient" not in self.model_fields_set:
            raise ValueError(f"kind {self.kind} without a coefficient has no effect; allowed: a coefficient beside it")
        return self


class DataSettings(Settings):
    """Which responses take part, and what their rewards are, before advantages are computed."""

    zero_variance: Literal["keep", "drop"] = "keep"
    """Whether groups without two different rewards count in the denominator. They never have a gradient."""
    balance_negatives: bool = False
    """Leave out random responses below the group's mean until they are no more than those above it (RED-Drop)."""
    truncated: Literal["keep", "mask"] = "keep"
    """Whether responses that were cut off at max_new_tokens are trained on. Masked ones are compared with their group,
    but have no gradient and no share of the denominators (DAPO's overlong filtering)."""
    overlong_buffer_share: Number | None = Field(None, gt=0, le=1)
    """Rewards of responses that end in this last share of max_new_tokens fall linearly, by 1 at the end (DAPO)."""


class ScheduleSettings(Settings):
    """How updates consume responses."""

    updates_per_batch: int = Field(1, ge=1)
    """Updates that each batch of responses_per_update responses is used for, one after the other."""
    batches_per_proximal: int = Field(1, ge=1)
    """Batches that share a proximal policy: the weights before the first of them."""


class ObjectiveSettings(Settings):
    """One loss for every algorithm: its gradient is a coefficient times the gradient of the log-probability."""

    advantage: AdvantageSettings = AdvantageSettings()
    ratio: RatioSettings = RatioSettings()
    gate: GateSettings = GateSettings()
    weight: WeightSettings = WeightSettings()
    mismatch: MismatchSettings = MismatchSettings()
    veto: VetoSettings = VetoSettings()
    aggregation: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "const"] = "token_mean"
    """How token losses become one number; const divides by responses x max_new_tokens (Dr.GRPO)."""
    denominator: Literal["original", "kept"] = "original"
    """Whether vetoed and masked tokens still count; without effect on seq_mean_token_sum and const, which count no
    tokens."""
    regulariser: RegulariserSettings = RegulariserSettings()
    data: DataSettings = DataSettings()
    schedule: ScheduleSettings = ScheduleSettings()

    @model_validator(mode="after")
    def _components_fit_together(self) -> "ObjectiveSettings":
        if self.ratio.level.startswith("sequence") and self.gate.bounds != "static":
            raise ValueError(
                f"gate.bounds {self.gate.bounds} with ratio.level {self.ratio.level}; allowed: level token"
            )
        if self.ratio.reference == "proximal" and self.gate.kind == "centred":
            raise ValueError("gate.kind centred with ratio.reference proximal: the ratio is centred already")
        if self.weight.kind == "preserve" and self.gate.kind != "none":
            raise ValueError(
                f"weight.kind preserve with gate.kind {self.gate.kind}, which leaves it nothing to keep; allowed: "
                "gate.kind none"
            )
        if self.regulariser.kind != "none" and self.denominator == "kept":
            raise ValueError(
                f"denominator kept with regulariser.kind {self.regulariser.kind}, a mean over all tokens; allowed: "
                "denominator original"
            )
        return self

    @property
    def needs_proximal(self) -> bool:
        """Whether log-probabilities of the proximal policy are needed."""
        return self.ratio.reference == "proximal" or self.gate.kind == "centred"

    @property
    def needs_reference(self) -> bool:
        """Whether log-probabilities of the base policy are needed."""
        return self.regulariser.kind == "reference_kl" and self.regulariser.coefficient > 0
