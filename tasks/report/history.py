"""Everything about a run that its report shows, gathered by walking the parents of its evaluations."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tasks.errors import DamagedError, DataError
from tasks.evaluate.statistics import Interval
from tasks.store.layout import ACCURACY_FILE, METRICS_FILE, SAMPLES_FILE, Kind
from tasks.store.lineage import ancestry
from tasks.store.records import ArtifactRef, Manifest
from tasks.store.store import Store
from tasks.store.tables import read_table
from tasks.train.outcome import EDGES

Column = NDArray[np.float64]


def _none_if_nan(value: Any) -> Any:
    """Return None for what is not a number, and an interval without ends with its value for both."""
    number = value.get("value") if isinstance(value, dict) else value
    if number is None or math.isnan(number):
        return None
    return value if value is number else dict.fromkeys(("low", "high"), number) | value


_Estimate = Annotated[Interval | None, BeforeValidator(_none_if_nan)]
_Number = Annotated[float | None, BeforeValidator(_none_if_nan)]


class Result(BaseModel):
    """Accuracies of a policy on one benchmark, or on average over several: the contents of metrics.json."""

    model_config = ConfigDict(frozen=True)

    accuracy: Annotated[Interval, BeforeValidator(_none_if_nan)]
    """avg@k, as a share with its 95 % interval, as all of these."""
    greedy: _Estimate = None
    pass_at: dict[int, _Estimate] = Field(default_factory=dict, alias="pass")
    """The expected share of problems of which one of so many samples is correct; empty over several benchmarks."""
    majority: _Estimate = None
    """Share of problems of which most samples agree on the correct answer."""
    working: _Estimate = None
    """Share of the sampled responses that show working."""
    response_tokens: _Number = None
    truncated: _Number = None
    outcomes: dict[str, int] = Field(default_factory=dict)
    by_level: dict[str, float] = Field(default_factory=dict)
    problems: int
    samples_per_problem: int = Field(alias="k")
    """k of avg@k; 0 where benchmarks differ in it."""


class Evaluation(Result):
    """A policy on a benchmark."""

    benchmark: str
    prompts: ArtifactRef | None
    evaluation: ArtifactRef
    samples: Path


class EvaluatedPolicy(Result):
    """A policy, with its averages over the benchmarks."""

    policy: ArtifactRef
    stage: int
    """Finished stages; 0 is the base policy."""
    updates: int
    evaluations: list[Evaluation]
    """Its evaluations, in the order of the settings."""

    @property
    def label(self) -> str:
        """``base`` or ``stage 3``."""
        return f"stage {self.stage}" if self.stage else "base"


def headline(samples_per_problem: int, benchmarks: int) -> str:
    """Return the name of the accuracy of a policy: ``avg@4``, or ``mean of 5 benchmarks``."""
    return f"mean of {benchmarks} benchmarks" if benchmarks > 1 else f"avg@{samples_per_problem}"


@dataclass(frozen=True)
class Stage:
    """A finished stage: its policy, and what this policy learned from."""

    number: int
    """Counts from 1."""
    first_update: int
    last_update: int
    policy: Manifest
    rollouts: list[Manifest]
    verdicts: list[Manifest]


@dataclass(frozen=True)
class History:
    """A run, as far as it went."""

    evaluated: list[EvaluatedPolicy]
    """Evaluated policies, in the order of updates."""
    stages: list[Stage]
    updates: dict[str, Column]
    """Columns of the policies' metrics, one entry per update of the run; what was null or absent is NaN."""
    histograms: dict[str, Column]
    """Counts per bin, [updates, bins], by column; the row of an update without counts is NaN."""
    manifests: dict[ArtifactRef, Manifest]
    """The evaluations and all of their ancestors."""
    algorithm: str
    """The preset, or ``base`` before the first stage."""
    updates_per_rollout: int
    seed: int
    reached: str = ""
    """The last that an unfinished run made."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the run; empty where they are not known."""

    @property
    def problems(self) -> int:
        """The number of problems of all benchmarks."""
        return self.evaluated[-1].problems

    @property
    def benchmarks(self) -> list[str]:
        """Names of the benchmarks on which every policy was evaluated."""
        named = [[one.benchmark for one in policy.evaluations] for policy in self.evaluated]
        return [name for name in named[-1] if all(name in names for names in named)]

    @property
    def headline(self) -> str:
        """The name of the accuracy: ``avg@4``, or ``mean of 5 benchmarks``."""
        return headline(self.evaluated[-1].samples_per_problem, len(self.evaluated[-1].evaluations))

    @property
    def boundaries(self) -> list[int]:
        """The updates that end a stage, without the last one."""
        return [stage.last_update for stage in self.stages[:-1]]

    @property
    def objective(self) -> dict[str, Any]:
        """Settings of the objective; empty before the first stage."""
        if not self.stages:
            return {}
        own = (self.settings.get("optimize") or {}).get("objective")
        return dict(own or self.stages[-1].policy.settings.get("objective") or {})

    @property
    def vetoes(self) -> bool:
        """True if the objective leaves tokens out after a trigger."""
        return bool(self.objective.get("veto", {}).get("scope") != "off")

    def column(self, name: str) -> Column:
        """Return a column of the updates; it is NaN throughout when the run has none of that name."""
        return self.updates.get(name, np.full(len(self.updates.get("update", ())), np.nan))

    def has_numbers(self, *names: str) -> bool:
        """Return whether some update has a number in one of these columns."""
        return any(bool(np.any(~np.isnan(self.column(name)))) for name in names)

    def of_kind(self, kind: Kind) -> list[Manifest]:
        """Return the manifests of one kind, in the order in which they were made."""
        found = [manifest for manifest in self.manifests.values() if manifest.kind == kind]
        return sorted(found, key=lambda manifest: (manifest.timings.started, manifest.digest))


def load_finished(store: Store, report: Manifest) -> History:
    """Load the run that a report is about.

    Raises:
        ArtifactError: an artifact of the run's lineage is missing or corrupted.
    """
    return load_history(
        store,
        report.parents["evaluations"],
        seed=report.seed,
        settings=report.settings,
        trained_from=report.facts.get("trained_from", 0),
    )


def load_history(
    store: Store,
    evaluations: Sequence[ArtifactRef],
    last: ArtifactRef | None = None,
    unfinished: Sequence[ArtifactRef] = (),
    *,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    trained_from: int = 0,
) -> History:
    """Load everything about a run that its report shows.

    An artifact that another run made first, with settings that gave the same, has the settings of that run in its
    manifest. In the result it has those of this run.

    Args:
        store: where the run's artifacts are.
        evaluations: averages, one per evaluated policy of one run, in any order; an unfinished run has fewer. An
            evaluation stands for the average over it alone.
        last: the run's last policy, where it is not evaluated.
        unfinished: rollouts and verdicts of the stage after it.
        seed: the run's; that of the last policy when None.
        settings: the run's, as far as they are known.
        trained_from: stages until this one are another run's, and keep their settings.

    Raises:
        ArtifactError: an artifact of the run's lineage is missing or corrupted.
        DataError: there is no evaluation, or they belong to different runs.
    """
    if not evaluations:
        raise DataError("report: no evaluation was given; a report needs at least that of the base policy.")
    found = ancestry(store, dict.fromkeys([*evaluations, *([last] if last else []), *unfinished]))
    for why in found.missing.values():
        raise DamagedError(why)
    manifests = {one.ref: one for one in found.manifests.values()}
    evaluated = sorted(
        (read_evaluated(store, manifests, ref) for ref in dict.fromkeys(evaluations)),
        key=lambda policy: (policy.updates, policy.policy.digest),
    )
    final = manifests[last or evaluated[-1].policy]
    chain = found.policies(final)
    strangers = [policy for policy in evaluated if manifests[policy.policy] not in chain]
    if strangers:
        raise DataError(
            f"report: {strangers[0].policy} is no ancestor of {evaluated[-1].policy}, so their evaluations belong to "
            "different runs. Give the evaluations of one run; `compare` puts runs side by side."
        )
    own = settings or {}
    stages = [
        _stage(manifests, before, after, own if after.facts["stage"] > trained_from else {})
        for before, after in pairwise(chain)
    ]
    tables = [read_table(store.file(policy, METRICS_FILE)) for policy in chain[1:]]
    metrics = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    preset = (own.get("optimize") or {}).get("preset") or final.facts.get("preset") or final.settings.get("preset")
    return History(
        evaluated=evaluated,
        stages=stages,
        updates=number_columns(metrics),
        histograms=histogram_columns(metrics),
        manifests=manifests,
        algorithm=str(preset) if preset and stages else "base",
        updates_per_rollout=int(final.facts.get("updates_per_rollout") or 0),
        seed=final.seed if seed is None else seed,
        settings=own,
    )


def read_evaluated(store: Store, manifests: Mapping[ArtifactRef, Manifest], ref: ArtifactRef) -> EvaluatedPolicy:
    """Read what an average says of its policy, or an evaluation, which stands for the average over it alone.

    Raises:
        DataError: it is something else.
    """
    manifest = manifests[ref]
    parents = manifest.parents.get("policy", [])
    if ref.kind not in ("average", "evaluation") or len(parents) != 1:
        raise DataError(f"report: {ref} is not the evaluation of one policy (its policies: {len(parents)}).")
    facts = manifests[parents[0]].facts
    evaluations = [
        {
            **_metrics(store, one),
            "benchmark": one.facts.get("benchmark", "held_out"),
            "prompts": next(iter(one.parents.get("prompts", ())), None),
            "evaluation": one.ref,
            "samples": store.file(one, SAMPLES_FILE),
        }
        for one in (manifests[each] for each in manifest.parents.get("evaluations", [ref]))
    ]
    own = {"policy": parents[0], "stage": facts.get("stage", 0), "updates": facts.get("updates", 0)}
    return EvaluatedPolicy.model_validate({**_metrics(store, manifest), **own, "evaluations": evaluations})


def _metrics(store: Store, manifest: Manifest) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads(store.file(manifest, ACCURACY_FILE).read_text())
    if _none_if_nan(metrics.get("accuracy")) is None:
        raise DataError(f"report: {manifest.ref} has no accuracy in its {ACCURACY_FILE}; evaluate its policy again.")
    return metrics


def _stage(
    manifests: dict[ArtifactRef, Manifest], before: Manifest, after: Manifest, settings: Mapping[str, Any]
) -> Stage:

    def own(role: str, section: str) -> list[Manifest]:
        refs = after.parents.get(role, []) if role else [after.ref]
        for ref in refs:
            values = {**manifests[ref].settings, **(settings.get(section) or {})}
            manifests[ref] = manifests[ref].model_copy(update={"settings": values})
        return [manifests[ref] for ref in refs]

    return Stage(
        number=int(after.facts["stage"]),
        first_update=int(before.facts.get("updates", 0)) + 1,
        last_update=int(after.facts["updates"]),
        policy=own("", "optimize")[0],
        rollouts=own("rollouts", "rollout"),
        verdicts=own("verdicts", "verify"),
    )


def number_columns(metrics: pa.Table) -> dict[str, Column]:
    """Return the columns of numbers; what is null is NaN."""
    names = [field.name for field in metrics.schema if not pa.types.is_nested(field.type)]
    return {name: metrics[name].cast(pa.float64()).to_numpy() for name in names}


def histogram_columns(metrics: pa.Table) -> dict[str, Column]:
    """Return counts per bin, [updates, bins], by column; the row of an update without counts is NaN."""
    found = {}
    for name, edges in EDGES.items():
        bins = len(edges) - 1
        rows = metrics[name].to_pylist() if name in metrics.column_names else [None] * metrics.num_rows
        known = [counts if counts and len(counts) == bins else [np.nan] * bins for counts in rows]
        found[name] = np.array(known, dtype=np.float64).reshape(-1, bins)
    return found
