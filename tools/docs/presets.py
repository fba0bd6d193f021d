"""Every preset as one line of the loss in docs/objective.md, made from its settings."""

from tasks.cli.algorithms import describe
from tasks.settings import PRESETS, ObjectiveSettings
from tasks.settings.objective import GateSettings, RegulariserSettings, VetoSettings

_DIVISORS = {
    "token_mean": "tokens",
    "seq_mean_token_mean": "responses * n",
    "seq_mean_token_sum": "responses",
    "const": "responses * max_new_tokens",
}
_STATISTICS = {"token_ratio": "r", "token_prob": "pi"}


def preset_lines() -> str:
    """The table of presets: advantage, coefficient, divisor, and what a preset does besides."""
    rows = ["| preset | `A` | `c` | divided by | besides |", "|---|---|---|---|---|"]
    for name, preset in PRESETS.items():
        cells = line(ObjectiveSettings.parse(preset.row))
        shown = [f"`{cell}`" for cell in cells[:3]] + [cells[3] or "-"]
        rows.append(f"| `{name}` | {' | '.join(shown)} |")
    return "\n".join(rows) + "\n"


def line(objective: ObjectiveSettings) -> tuple[str, str, str, str]:
    """An objective as formulas: advantage, coefficient, divisor; and a text about penalty, data and schedule."""
    factors = [*_gate(objective), *_veto(objective.veto), *_weight(objective), "A"]
    divisor = _DIVISORS[objective.aggregation] + (", of kept tokens" if objective.denominator == "kept" else "")
    described = describe(objective)
    others = [described[name] for name in ("data", "schedule") if described[name] not in ("-", "any mu")]
    besides = [*_bounds(objective.gate), *_penalty(objective.regulariser), *others]
    return described["advantage"], " * ".join(factors), divisor, "; ".join(besides)


def _ratio(objective: ObjectiveSettings) -> str:
    """The name of the ratio that the gate compares."""
    ratio = "r" if objective.ratio.reference == "behavior" else "(r / q)"
    if objective.ratio.level.startswith("sequence"):
        return f"{objective.ratio.level.removeprefix('sequence_')}({ratio.strip('()')})"
    return ratio


def _gate(objective: ObjectiveSettings) -> list[str]:
    gate, ratio = objective.gate, _ratio(objective)
    ratio = "r / q" if ratio == "(r / q)" else ratio
    factors = []
    if gate.kind == "centred":
        factors.append(f"one_side({ratio}, q - {gate.half_width:g}, q + {gate.half_width:g})")
    elif gate.kind != "none":
        given = gate.bounds == "static"
        interval = [f"{gate.low:.5g}", f"{gate.high:.5g}"] if given else ["low", "high"]
        outer = [f"{gate.outer_low:g}", f"{gate.outer_high:g}"] if gate.kind == "ring" else []
        factors.append(f"{gate.kind}({', '.join([ratio, *interval, *outer])})")
    return factors + ([f"dual({ratio}, {gate.dual_clip:g})"] if gate.dual_clip is not None else [])


def _bounds(gate: GateSettings) -> list[str]:
    if gate.bounds == "second_moment":
        found = gate.second_moment
        tokens = "harmful tokens" if found.harmful_only else "all tokens"
        return [f"low and high by the second moment of log r, {found.threshold:g} over {tokens}, {found.form}"]
    if gate.bounds == "balance":
        most = gate.balance
        ends = f"[{gate.low:g}, {gate.high:g}] to [{most.low_max:g}, {most.high_max:g}]"
        return [f"low and high from {ends} until positives weigh {most.target:g} times negatives, by {most.statistic}"]
    return []


def _weight(objective: ObjectiveSettings) -> list[str]:
    settings, ratio = objective.weight, _ratio(objective)
    if objective.ratio.level == "prefix_minimum":
        ratio = f"{ratio} * r_min"
    match settings.kind:
        case "one":
            factors = []
        case "ratio":
            factors = [ratio]
        case "clipped":
            factors = [f"clip({ratio}, {settings.low:g}, {settings.high:g})"]
        case "taper":
            shown = [_clip(ratio, *ends) for ends in (settings.positive, settings.negative)]
            factors = [f"({shown[0]} if A >= 0 else {shown[1]})"]
        case "preserve":
            low = f"{settings.preserve_low:g} * {objective.gate.low:g}"
            factors = [f"preserve({ratio}, {low}, {settings.preserve_high:g} * {objective.gate.high:g})"]
        case "exponential":
            factors = [f"exp(A / {settings.temperature:g})"]
    if objective.ratio.reference == "proximal":
        factors.append(f"{settings.beyond_cap}(q, {settings.behavior_cap:g})")
    if objective.mismatch.kind != "none":
        ends = f"{objective.mismatch.low:g}, " if objective.mismatch.kind == "mask" else ""
        factors.append(f"{objective.mismatch.kind}(e, {ends}{objective.mismatch.high:g})")
    return factors


def _clip(ratio: str, low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"clip({ratio}, {low:g}, {high:g})"


def _veto(settings: VetoSettings) -> list[str]:
    if settings.scope == "off":
        return []
    statistic = _STATISTICS.get(settings.statistic, f"{settings.statistic}(r)")
    beyond = {
        "below": f"{statistic} < {settings.kappa:.4g}",
        "above": f"{statistic} > {settings.kappa:.4g}",
        "both": f"{statistic} outside {settings.kappa:.4g} to {1 / settings.kappa:.4g}",
    }[settings.direction]
    given = [settings.scope, beyond]
    given += [f"trigger_count={settings.trigger_count}"] if settings.trigger_count > 1 else []
    given += [f"window={settings.window}"] if settings.window is not None else []
    given += ["any A"] if settings.advantage_sign == "all" else []
    given += [settings.recompute] if settings.recompute != "every_update" else []
    return [f"veto({', '.join(given)})"]


def _penalty(settings: RegulariserSettings) -> list[str]:
    if settings.kind == "none":
        return []
    penalty = {
        "reference_kl": f"{settings.estimator} of the KL to the reference{', unbiased' if settings.unbiased else ''}",
        "behavior_l2": "(log r)^2",
        "likelihood": "-log pi",
    }[settings.kind]
    return [f"penalty {settings.coefficient:g} * {penalty}"]
