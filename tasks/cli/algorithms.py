"""Tables of presets with their formulas, of known benchmarks and of known training sets."""

from rich.table import Table

from tasks.formats import DASH, first_names, percent
from tasks.report.tables import folding_table
from tasks.settings import MODIFIERS, PRESETS, ObjectiveSettings
from tasks.settings import objective as kinds
from tasks.settings.data_sets import BENCHMARKS, TRAINING_SETS, BenchmarkSettings, SourceSettings

_DIVISORS = {
    "token_mean": "tokens",
    "seq_mean_token_mean": "responses * n",
    "seq_mean_token_sum": "responses",
    "const": "responses * max_new_tokens",
}
_STATISTICS = {"token_ratio": "r", "token_prob": "pi"}
_GOLD = {"plain": "", "hashes": " (after ####)", "boxed": " (in a box)", "livecodebench": ""}


def algorithms_table() -> Table:
    """Return a table of presets and modifiers with their formulas and sources."""
    table = folding_table("name", *describe(ObjectiveSettings()), "source", "chosen here")
    for name, preset in PRESETS.items():
        formulas = describe(ObjectiveSettings.parse(preset.row))
        table.add_row(name, *formulas.values(), preset.source, preset.chosen or DASH)
    for name, modifier in MODIFIERS.items():
        if modifier.row:
            objective = ObjectiveSettings.parse(modifier.row)
            coefficient, rules = " * ".join(["any", *_corrections(objective)]), "; ".join(["any", *_bypass(objective)])
            table.add_row(f"+ {name}", "any", coefficient, "any", rules, modifier.source, modifier.chosen or DASH)
    return table


def describe(objective: ObjectiveSettings) -> dict[str, str]:
    """Describe an objective by its advantage, coefficient and divisor as formulas, and its other rules as a text."""
    factors = [*_gate(objective), *_veto(objective.veto), *_weight(objective), *_corrections(objective), "A"]
    rules = [*_bounds(objective.gate), *_penalty(objective.regulariser), *_bypass(objective), *_data(objective)]
    return {
        "advantage": _advantage(objective.advantage),
        "coefficient": " * ".join(factors),
        "divided by": _DIVISORS[objective.aggregation]
        + (", of kept tokens" if objective.denominator == "kept" else ""),
        "other rules": "; ".join(rules) or DASH,
    }


def _advantage(settings: kinds.AdvantageSettings) -> str:
    baseline = {"mean": "R - mean", "logavgexp": f"R - logavgexp({settings.temperature:g})", "none": "R"}
    offset = f" {'-' if settings.baseline_offset > 0 else '+'} {abs(settings.baseline_offset):g}"
    numerator = baseline[settings.baseline] + (offset if settings.baseline_offset else "")
    return numerator if settings.scale == "none" else f"({numerator}) / {settings.scale}"


def _ratio(objective: ObjectiveSettings) -> str:
    """Return the name of the ratio that the gate compares with its bounds."""
    return _at_level("r" if objective.ratio.reference == "behavior" else "r / q", objective.ratio.level)


def _at_level(ratio: str, level: str) -> str:
    return f"{level.removeprefix('sequence_')}({ratio})" if level.startswith("sequence") else ratio


def _gate(objective: ObjectiveSettings) -> list[str]:
    gate, ratio = objective.gate, _ratio(objective)
    match gate:
        case kinds.NoGate():
            factors = []
        case kinds.CentredGate(half_width=width):
            factors = [f"one_side({ratio}, q - {width:g}, q + {width:g})"]
        case kinds.RingGate():
            ends = f"{gate.low:.5g}, {gate.high:.5g}, {gate.outer_low:g}, {gate.outer_high:g}"
            factors = [f"ring({ratio}, {ends})"]
        case kinds.IntervalGate():
            ends = "low, high" if gate.interval is None else f"{gate.interval[0]:.5g}, {gate.interval[1]:.5g}"
            factors = [f"{gate.kind}({ratio}, {ends})"]
        case _:
            raise NotImplementedError(f"a formula for gate.kind {gate.kind}")
    return factors + ([f"dual({ratio}, {gate.dual_clip:g})"] if gate.dual_clip is not None else [])


def _bounds(gate: kinds.GateSettings) -> list[str]:
    match gate:
        case kinds.SecondMomentGate(second_moment=moment):
            tokens = "harmful tokens" if moment.harmful_only else "all tokens"
            limit = f"{moment.threshold:g} over {tokens}, {moment.form}"
            return [f"low and high keep the second moment of log r below {limit}"]
        case kinds.BalanceGate(balance=balance):
            ends = f"[{gate.low:g}, {gate.high:g}] up to [{balance.low_max:g}, {balance.high_max:g}]"
            target = f"until the mass of A >= 0 is {balance.target:g} times that of A < 0 ({balance.statistic})"
            return [f"low and high rise from {ends} {target}"]
    return []


def _weight(objective: ObjectiveSettings) -> list[str]:
    ratio = _ratio(objective)
    ratio = f"({ratio})" if ratio == "r / q" else ratio
    if objective.ratio.level == "prefix_minimum":
        ratio = f"{ratio} * r_min"
    match objective.weight:
        case kinds.RatioWeight():
            return [ratio]
        case kinds.ClippedWeight(low=low, high=high):
            return [_clip(ratio, low, high)]
        case kinds.TaperWeight(positive=positive, negative=negative):
            return [f"({_clip(ratio, *positive)} if A >= 0 else {_clip(ratio, *negative)})"]
        case kinds.PreserveWeight(low=low, high=high, preserve_low=below, preserve_high=above):
            return [f"preserve({ratio}, {low:g}, {high:g}, {below:g} * {low:g}, {above:g} * {high:g})"]
        case kinds.ExponentialWeight(temperature=temperature):
            return [f"exp(A / {temperature:g})"]
        case kinds.OneWeight():
            return []
    raise NotImplementedError(f"a formula for weight.kind {objective.weight.kind}")


def _corrections(objective: ObjectiveSettings) -> list[str]:
    factors = []
    if isinstance(objective.ratio, kinds.ProximalRatio):
        factors.append(f"{objective.ratio.beyond_cap}(q, {objective.ratio.behavior_cap:g})")
    match objective.mismatch:
        case kinds.TruncateMismatch(level=level, high=high):
            factors.append(f"truncate({_at_level('e', level)}, {high:g})")
        case kinds.MaskMismatch(level=level, low=low, high=high):
            factors.append(f"mask({_at_level('e', level)}, {low:g}, {high:g})")
    return factors


def _bypass(objective: ObjectiveSettings) -> list[str]:
    return ["ratios to the engine's probabilities"] if objective.mismatch.kind == "bypass" else []


def _clip(ratio: str, low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"clip({ratio}, {low:g}, {high:g})"


def _veto(settings: kinds.VetoSettings) -> list[str]:
    if not isinstance(settings, kinds.SuffixVeto | kinds.ResponseVeto):
        return []
    statistic = _STATISTICS.get(settings.statistic, f"{settings.statistic}(r)")
    trigger = {
        "below": f"{statistic} < {settings.kappa:.4g}",
        "above": f"{statistic} > {settings.kappa:.4g}",
        "both": f"{statistic} outside {settings.kappa:.4g} to {1 / settings.kappa:.4g}",
    }[settings.direction]
    rules = [settings.scope, trigger]
    rules += [f"trigger_count={settings.trigger_count}"] if settings.trigger_count > 1 else []
    rules += [f"window={settings.window}"] if isinstance(settings, kinds.SuffixVeto) and settings.window else []
    rules += ["any A"] if settings.advantage_sign == "all" else []
    rules += [settings.recompute] if settings.recompute != "every_update" else []
    return [f"veto({', '.join(rules)})"]


def _penalty(settings: kinds.RegulariserSettings) -> list[str]:
    match settings:
        case kinds.ReferencePenalty(coefficient=coefficient, estimator=estimator, unbiased=unbiased):
            return [f"penalty {coefficient:g} * {estimator} of the KL to the reference{', unbiased' * unbiased}"]
        case kinds.TokenPenalty(coefficient=coefficient, kind=kind):
            return [f"penalty {coefficient:g} * {'(log r)^2' if kind == 'behavior_l2' else '-log pi'}"]
        case kinds.NoPenalty():
            return []
    raise NotImplementedError(f"a text for regulariser.kind {settings.kind}")


def _data(objective: ObjectiveSettings) -> list[str]:
    """Return the rules by which responses are selected and updates are scheduled."""
    data, schedule = objective.data, objective.schedule
    rules = {
        "drops zero-variance groups": data.zero_variance == "drop",
        "drops surplus negatives": data.balance_negatives,
        "masks truncated responses": data.truncated == "mask",
        f"overlong penalty in the last {percent(data.overlong_buffer_share, 0)}": data.overlong_buffer_share,
        f"{schedule.updates_per_batch} updates per batch": schedule.updates_per_batch > 1,
        f"new proximal policy every {schedule.batches_per_proximal} batches": schedule.batches_per_proximal > 1,
    }
    return [rule for rule, applies in rules.items() if applies]


def benchmarks_table() -> Table:
    """Return a table of known benchmarks, with the statements of the paper and the choices made here."""
    table = folding_table("name", "source", "commit", "fields", "problems", "samples", "the paper", "chosen here")
    for name, benchmark in BENCHMARKS.items():
        settings = BenchmarkSettings.parse({"name": name})
        samples = str(settings.samples_per_problem or "as in the run")
        table.add_row(
            name,
            *_source(settings.source),
            str(settings.problems or "as in the run"),
            f"{samples}{', greedy' if settings.greedy else ''}",
            benchmark.stated,
            benchmark.chosen or DASH,
        )
    return table


def training_sets_table() -> Table:
    """Return a table of known training sets."""
    table = folding_table("name", "source", "commit", "fields", "rows", "about")
    for name, training_set in TRAINING_SETS.items():
        source = _source(SourceSettings.parse(training_set.source))
        table.add_row(name, *source, str(training_set.rows or DASH), training_set.about)
    return table


def _source(source: SourceSettings | None) -> tuple[str, str, str]:
    if source is None:
        return "held-out prompts", DASH, DASH
    identity = f", {source.id}" if source.id else ""
    fields = f"{source.prompt}, {source.answer}{_GOLD[source.gold]}{identity}"
    return f"{source.hub}: {first_names(source.files, 1)}", source.pinned[:12] or "looked up", fields
