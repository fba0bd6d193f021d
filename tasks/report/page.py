"""One self-contained HTML page about a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tasks.report.closeups import Group
from tasks.report.evaluated import EvaluatedPolicy
from tasks.report.examples import pick_examples
from tasks.report.figures import OVER_STALENESS, words_of
from tasks.report.formats import points
from tasks.report.history import History, Stage
from tasks.report.ledger import ROWS, Ledger, training_seconds
from tasks.report.parameters import chosen_here, resolved_settings
from tasks.report.series import Drawn
from tasks.report.templates import render

_OUTCOMES = ("correct", "wrong", "no_answer", "gold_unparsable", "timeout", "crashed", "missing")
_LEVELS_SHOWN = 6


@dataclass(frozen=True)
class TrainingRow:
    """What a stage learned from."""

    number: int
    responses: int | None
    reward: float | None
    truncated: float | None
    groups: int | None
    zero_variance_groups: int | None
    unscored: int | None
    logp_mismatch: float | None


@dataclass(frozen=True)
class Counted:
    """Outcomes of the responses of a policy or stage."""

    name: str
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """All responses."""
        return sum(self.counts.values())


def render_page(history: History, ledger: Ledger, figures: dict[str, Drawn], groups: Sequence[Group] = ()) -> str:
    """The page: figures inline, no script, nothing from elsewhere. Texts of responses are escaped.

    Args:
        history: the run.
        ledger: its seconds.
        figures: by name, as ``make_figures`` gives them.
        groups: responses that it learned from, as ``pick_groups`` gives them.
    """
    counted = _outcomes(history)
    return render(
        "report/page.html.j2",
        history=history,
        lacking=next((stage for stage in history.planned if stage.lacks), None),
        base=history.evaluated[0],
        final=history.evaluated[-1],
        gain=_gain(history),
        levels=_levels(history.evaluated),
        training=[_training(stage) for stage in history.stages],
        counted=counted,
        outcomes=_outcome_columns(counted),
        warnings=_warnings(history),
        ledger=ledger,
        ledger_words=ROWS,
        training_seconds=training_seconds,
        figures={name: figure.svg for name, figure in figures.items()},
        words=words_of(history),
        over_staleness=[name for name in OVER_STALENESS if name in figures],
        examples=pick_examples(history),
        groups=groups,
        parameters=resolved_settings(history),
        chosen_here=chosen_here(history),
        packages=_packages(history),
        code=_code(history),
        started=_started(history),
    )


def _gain(history: History) -> str | None:
    if len(history.evaluated) < 2:
        return None
    return points(history.evaluated[-1].accuracy.value - history.evaluated[0].accuracy.value)


def _levels(evaluated: list[EvaluatedPolicy]) -> list[str]:
    levels = sorted({level for policy in evaluated for level in policy.by_level}, key=lambda level: (len(level), level))
    return levels if 1 < len(levels) <= _LEVELS_SHOWN else []


def _training(stage: Stage) -> TrainingRow:
    facts = stage.policy.facts
    verdicts = [manifest.facts for manifest in stage.verdicts]
    responses = sum(sum((one.get("outcomes") or {}).values()) for one in verdicts)
    return TrainingRow(
        number=stage.number,
        responses=responses or None,
        reward=_mean([one.get("reward") for one in verdicts]),
        truncated=_mean([one.get("truncated") for one in verdicts]),
        groups=facts.get("groups"),
        zero_variance_groups=facts.get("zero_variance_groups"),
        unscored=facts.get("unscored"),
        logp_mismatch=facts.get("logp_mismatch"),
    )


def _mean(values: list[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _outcomes(history: History) -> list[Counted]:
    counted = [
        Counted(f"{one.benchmark}, {policy.label}".replace("_", "-"), one.outcomes)
        for policy in history.evaluated
        for one in policy.evaluations
    ]
    for stage in history.stages:
        counts: dict[str, int] = {}
        for manifest in stage.verdicts:
            for name, count in (manifest.facts.get("outcomes") or {}).items():
                counts[name] = counts.get(name, 0) + count
        counted.append(Counted(f"training, stage {stage.number}", counts))
    return [row for row in counted if row.total]


def _warnings(history: History) -> list[str]:
    """Those of every evaluation, and of the first of a stage's shards that has one."""
    found = [[history.manifests[one.evaluation]] for policy in history.evaluated for one in policy.evaluations]
    found += [stage.rollouts for stage in history.stages]
    told = [[one.facts["warning"] for one in manifests if "warning" in one.facts] for manifests in found]
    return [warnings[0] for warnings in told if warnings]


def _outcome_columns(counted: list[Counted]) -> list[str]:
    """Every outcome that occurs; ``correct`` and ``wrong`` always."""
    seen = {name for row in counted for name, count in row.counts.items() if count} | {"correct", "wrong"}
    return [name for name in _OUTCOMES if name in seen] + sorted(seen - set(_OUTCOMES))


def _packages(history: History) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for manifest in history.manifests.values():
        for name, version in manifest.packages.items():
            found.setdefault(name, []).append(version)
    return {name: ", ".join(sorted(set(versions))) for name, versions in sorted(found.items())}


def _code(history: History) -> str:
    commits = {manifest.commit for manifest in history.manifests.values() if manifest.commit}
    return ", ".join(sorted(commits)) or "not a checkout"


def _started(history: History) -> str:
    first = min(manifest.timings.started for manifest in history.manifests.values())
    return datetime.fromtimestamp(first, UTC).strftime("%Y-%m-%d %H:%M UTC")
