"""Every preset as a row, every component of the objective as a column."""

from rich import box
from rich.table import Table

from tasks.settings import MODIFIERS, PRESETS, ObjectiveSettings
from tasks.settings.objective import (
    AdvantageSettings,
    DataSettings,
    GateSettings,
    RatioSettings,
    RegulariserSettings,
    ScheduleSettings,
    VetoSettings,
)
from tasks.settings.presets import Preset

_NOTHING = "-"


def algorithms_table() -> Table:
    """Return the table of presets and modifiers, with their components and sources."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    for component in [*describe(ObjectiveSettings()), "source", "chosen here"]:
        table.add_column(component, overflow="fold")
    for name, preset in PRESETS.items():
        described = describe(ObjectiveSettings.parse(preset.row))
        table.add_row(name, *described.values(), preset.source, preset.chosen or _NOTHING)
    for name, modifier in MODIFIERS.items():
        if modifier.row:
            table.add_row(f"+ {name}", *_modified(modifier), modifier.source, modifier.chosen or _NOTHING)
    return table


def _modified(modifier: Preset) -> list[str]:
    plain, changed = describe(ObjectiveSettings()), describe(ObjectiveSettings.parse(modifier.row))
    return [value if value != plain[name] else "any" for name, value in changed.items()]


def describe(objective: ObjectiveSettings) -> dict[str, str]:
    """Return an objective in a few words for each component."""
    denominator = "" if objective.denominator == "original" else ", kept tokens"
    return {
        "advantage": _advantage(objective.advantage),
        "ratio": _ratio(objective.ratio),
        "gate": _gate(objective.gate),
        "weight": _weight(objective),
        "keep": _veto(objective.veto),
        "aggregation": objective.aggregation + denominator,
        "regulariser": _regulariser(objective.regulariser),
        "data": _data(objective.data),
        "schedule": _schedule(objective.schedule),
    }


def _advantage(settings: AdvantageSettings) -> str:
    baseline = {"mean": "R - mean", "logavgexp": f"R - logavgexp({settings.temperature:g})", "none": "R"}
    offset = f" {'-' if settings.baseline_offset > 0 else '+'} {abs(settings.baseline_offset):g}"
    above = baseline[settings.baseline] + (offset if settings.baseline_offset else "")
    return above if settings.scale == "none" else f"({above}) / {settings.scale}"


def _ratio(settings: RatioSettings) -> str:
    return f"{settings.level} / {settings.reference}"


def _gate(settings: GateSettings) -> str:
    interval = f"[{settings.low:.5g}, {settings.high:.5g}]"
    match settings.kind:
        case "none":
            shown = "none"
        case "ring":
            shown = f"ring {interval}, {settings.outer_low:g}, {settings.outer_high:g}"
        case "centred":
            shown = f"proximal ± {settings.half_width:g}, one_side"
        case _:
            shown = f"{settings.kind} {interval}"
    if settings.bounds == "second_moment":
        shown = f"{settings.kind}, second moment {settings.second_moment.threshold:g}, {settings.second_moment.form}"
    if settings.bounds == "balance":
        shown += f" up to [{settings.balance.low_max:g}, {settings.balance.high_max:g}] for balance"
    return shown if settings.dual_clip is None else f"{shown}, dual {settings.dual_clip:g}"


def _weight(objective: ObjectiveSettings) -> str:
    settings, ratio, gate, mismatch = objective.weight, objective.ratio, objective.gate, objective.mismatch
    match settings.kind:
        case "one":
            shown = "1"
        case "ratio":
            shown = "ratio"
        case "clipped":
            shown = f"ratio in [{settings.low:g}, {settings.high:g}]"
        case "taper":
            positive, negative = (f"[{low:g}, {high:g}]" for low, high in (settings.positive, settings.negative))
            shown = f"ratio in {positive} if A >= 0, {negative} if A < 0"
        case "preserve":
            below, above = settings.preserve_low * gate.low, settings.preserve_high * gate.high
            bounds = f"{below:g} below {gate.low:g}, {above:g} above {gate.high:g}"
            shown = f"ratio; {bounds}"
        case "exponential":
            shown = f"exp(A / {settings.temperature:g})"
    if ratio.reference == "proximal":
        shown += f" x proximal / behavior, {settings.beyond_cap} above {settings.behavior_cap:g}"
    if mismatch.kind == "truncate":
        shown += f" x trainer / engine, at most {mismatch.high:g}"
    if mismatch.kind == "mask":
        shown += f" x trainer / engine in [{mismatch.low:g}, {mismatch.high:g}]"
    return shown


def _veto(settings: VetoSettings) -> str:
    if settings.scope == "off":
        return _NOTHING
    trigger = f"{settings.statistic} {settings.direction} {settings.kappa:.4g}"
    sign = "A < 0" if settings.advantage_sign == "negative" else "any A"
    return f"veto {settings.scope}: {trigger}, {sign}"


def _regulariser(settings: RegulariserSettings) -> str:
    if settings.kind == "none" or settings.coefficient == 0:
        return _NOTHING
    shown = {
        "reference_kl": f"KL {settings.estimator}{', unbiased' if settings.unbiased else ''} to base",
        "behavior_l2": "squared log-ratio to behavior",
        "likelihood": "-logp",
    }[settings.kind]
    return f"{settings.coefficient:g} {shown}"


def _data(settings: DataSettings) -> str:
    rules = [
        "zero-variance groups out" if settings.zero_variance == "drop" else "",
        "surplus negatives out" if settings.balance_negatives else "",
        "truncated masked" if settings.truncated == "mask" else "",
        f"overlong penalty over {settings.overlong_buffer_share:.0%}" if settings.overlong_buffer_share else "",
    ]
    return ", ".join(rule for rule in rules if rule) or _NOTHING


def _schedule(settings: ScheduleSettings) -> str:
    rules = [
        f"{settings.updates_per_batch} updates per batch" if settings.updates_per_batch > 1 else "",
        f"proximal every {settings.batches_per_proximal} batches" if settings.batches_per_proximal > 1 else "",
    ]
    return ", ".join(rule for rule in rules if rule) or "any mu"
