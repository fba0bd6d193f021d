"""Everything about a run that its report shows, gathered by walking the parents of its evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.errors import DamagedError, DataError
from tasks.report.evaluated import EvaluatedPolicy, headline, read_evaluated
from tasks.store.layout import METRICS_FILE, Kind
from tasks.store.lineage import ancestry
from tasks.store.records import ArtifactRef, Manifest
from tasks.store.store import Store
from tasks.store.tables import read_table
from tasks.train.outcome import EDGES

Column = NDArray[np.float64]


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

    def known(self, *names: str) -> bool:
        """Return whether some update has a number in one of these columns."""
        return any(bool(np.any(~np.isnan(self.column(name)))) for name in names)

    def of_kind(self, kind: Kind) -> list[Manifest]:
        """Return the manifests of one kind, in the order in which they were made."""
        found = [manifest for manifest in self.manifests.values() if manifest.kind == kind]
        return sorted(found, key=lambda manifest: (manifest.timings.started, manifest.digest))


def load_finished(store: Store, report: Manifest, settings: Mapping[str, Any] | None = None) -> History:
    """Load the run that a report is about, with settings where the report does not have them itself.

    Raises:
        ArtifactError: an artifact of the run's lineage is missing or corrupted.
    """
    own, trained_from = report.settings if settings is None else settings, report.facts.get("trained_from", 0)
    evaluations = report.parents["evaluations"]
    return load_history(store, evaluations, seed=report.seed, settings=own, trained_from=trained_from)


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


def _stage(
    manifests: dict[ArtifactRef, Manifest], before: Manifest, after: Manifest, settings: Mapping[str, Any]
) -> Stage:
    """Return a stage, whose artifacts get the settings of the run."""

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
