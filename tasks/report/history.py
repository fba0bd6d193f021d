"""Everything about a run that its report shows, gathered by walking the parents of its evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tasks.artifacts.records import ArtifactRef, Kind, Manifest
from tasks.artifacts.store import Store
from tasks.artifacts.tables import read_table
from tasks.errors import DataError
from tasks.report.evaluated import EvaluatedPolicy, headline, read_evaluated
from tasks.report.updates import Column, histogram_columns, number_columns


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
class PlannedStage:
    """A stage of an unfinished run, and what is made of it."""

    number: int
    """Counts from 1."""
    shards: int
    """Shards of prompts; 0 where their number is not known."""
    generated: int
    """Shards of rollouts that are made."""
    verified: bool
    trained: bool
    evaluated: bool

    @property
    def lacks(self) -> str:
        """The first thing that is missing; empty when the stage is whole."""
        if self.trained:
            return "" if self.evaluated else "its evaluation"
        if self.verified:
            return "its policy"
        if self.shards and self.generated < self.shards:
            return f"{self.shards - self.generated} of {self.shards} shards of rollouts"
        return "its verdicts" if self.generated else "its rollouts"


@dataclass(frozen=True)
class History:
    """A run, as far as it went."""

    evaluated: list[EvaluatedPolicy]
    """In the order of updates."""
    stages: list[Stage]
    updates: dict[str, Column]
    """Columns of the policies' metrics, one entry per update of the run; what was null or absent is NaN."""
    histograms: dict[str, Column]
    """Counts per bin, [updates, bins], see ``histogram_columns``."""
    manifests: dict[ArtifactRef, Manifest]
    """The evaluations and all of their ancestors."""
    algorithm: str
    """The preset, or ``base`` before the first stage."""
    updates_per_rollout: int
    seed: int
    planned: tuple[PlannedStage, ...] = ()
    """All stages of an unfinished run."""
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
        """What the accuracy is: ``avg@4``, or ``mean of 5 benchmarks``."""
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
        """Whether the objective leaves tokens out after a trigger."""
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


def load_finished(store: Store, report: Manifest) -> History:
    """Load the run that a report is about.

    Raises:
        ArtifactError: an artifact of the run's lineage is missing or corrupted.
    """
    trained_from = report.facts.get("trained_from", 0)
    return of_run(load_history(store, report.parents["evaluations"]), report.seed, report.settings, trained_from)


def of_run(history: History, seed: int, settings: Mapping[str, Any], trained_from: int = 0) -> History:
    """Return a history with the settings of its run, which may be empty.

    An artifact that another run made first, with settings that gave the same, has the settings of that run in its
    manifest. In the result it has those of this run, except in stages before ``trained_from``, which are another run's.
    """
    manifests = dict(history.manifests)

    def own(manifest: Manifest, section: str) -> Manifest:
        values = {**manifest.settings, **(settings.get(section) or {})}
        manifests[manifest.ref] = manifest.model_copy(update={"settings": values})
        return manifests[manifest.ref]

    stages = [
        replace(
            stage,
            policy=own(stage.policy, "optimize"),
            rollouts=[own(one, "rollout") for one in stage.rollouts],
            verdicts=[own(one, "verify") for one in stage.verdicts],
        )
        if stage.number > trained_from
        else stage
        for stage in history.stages
    ]
    preset = (settings.get("optimize") or {}).get("preset")
    algorithm = str(preset) if preset and history.stages else history.algorithm
    return replace(history, seed=seed, settings=settings, algorithm=algorithm, manifests=manifests, stages=stages)


def load_history(
    store: Store,
    evaluations: Sequence[ArtifactRef],
    last: ArtifactRef | None = None,
    unfinished: Sequence[ArtifactRef] = (),
) -> History:
    """Load everything about a run that its report shows.

    Args:
        store: where the run's artifacts are.
        evaluations: averages, one per evaluated policy of one run, in any order; an unfinished run has fewer. An
            evaluation stands for the average over it alone.
        last: the run's last policy, where it is not evaluated.
        unfinished: rollouts and verdicts of the stage after it.

    Raises:
        ArtifactError: an artifact of the run's lineage is missing or corrupted.
        DataError: there is no evaluation, or they belong to different runs.
    """
    if not evaluations:
        raise DataError("report: no evaluation was given; a report needs at least that of the base policy.")
    manifests = lineage(store, [*evaluations, *([last] if last else []), *unfinished])
    evaluated = sorted(
        (read_evaluated(store, manifests, ref) for ref in dict.fromkeys(evaluations)),
        key=lambda policy: (policy.updates, policy.policy.digest),
    )
    chain = _chain(manifests, last or evaluated[-1].policy)
    strangers = [policy for policy in evaluated if policy.policy not in {manifest.ref for manifest in chain}]
    if strangers:
        raise DataError(
            f"report: {strangers[0].policy} is no ancestor of {evaluated[-1].policy}, so their evaluations belong to "
            "different runs. Give the evaluations of one run; `compare` puts runs side by side."
        )
    tables = [read_table(store.file(policy, "metrics.parquet")) for policy in chain[1:]]
    stages = [_stage(manifests, before, after) for before, after in pairwise(chain)]
    final = chain[-1]
    return History(
        evaluated=evaluated,
        stages=stages,
        updates=number_columns(tables),
        histograms=histogram_columns(tables),
        manifests=manifests,
        algorithm=str(final.facts.get("preset") or final.settings.get("preset") or "base"),
        updates_per_rollout=int(final.facts.get("updates_per_rollout") or 0),
        seed=final.seed,
    )


def lineage(store: Store, refs: Sequence[ArtifactRef]) -> dict[ArtifactRef, Manifest]:
    """Return the manifests of artifacts and of all of their ancestors.

    Raises:
        ArtifactError: one is missing or cannot be read.
    """
    found: dict[ArtifactRef, Manifest] = {}
    waiting = list(refs)
    while waiting:
        ref = waiting.pop()
        if ref not in found:
            found[ref] = store.manifest(ref)
            waiting.extend(parent for parents in found[ref].parents.values() for parent in parents)
    return found


def _chain(manifests: dict[ArtifactRef, Manifest], last: ArtifactRef) -> list[Manifest]:
    chain = [manifests[last]]
    while parents := chain[0].parents.get("policy"):
        chain.insert(0, manifests[parents[0]])
    return chain


def _stage(manifests: dict[ArtifactRef, Manifest], before: Manifest, after: Manifest) -> Stage:
    return Stage(
        number=int(after.facts["stage"]),
        first_update=int(before.facts.get("updates", 0)) + 1,
        last_update=int(after.facts["updates"]),
        policy=after,
        rollouts=[manifests[ref] for ref in after.parents.get("rollouts", [])],
        verdicts=[manifests[ref] for ref in after.parents.get("verdicts", [])],
    )
