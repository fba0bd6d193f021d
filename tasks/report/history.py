"""The history of a run: all data of its report, collected from the lineage of its evaluations."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import AliasChoices, Field

from tasks.errors import DataError, SettingsError
from tasks.evaluate.statistics import Interval, Values
from tasks.formats import DASH
from tasks.settings.base import FlyteModel, flat
from tasks.settings.run import RunSettings
from tasks.store.layout import ACCURACY_FILE, METRICS_FILE, Kind
from tasks.store.lineage import ancestry
from tasks.store.records import ArtifactRef, Manifest
from tasks.store.store import Store
from tasks.store.tables import read_table
from tasks.train.results import EDGES

OTHER_STEPS = ("rollout", "verify")
"""Settings of other steps that an alternating step also has; they are shown once."""


class Accuracies(FlyteModel):
    """Accuracies of a policy on one benchmark, or their averages over several: the contents of metrics.json."""

    accuracy: Interval
    """avg@k. This and every other interval is a share with its 95 % interval."""
    reward: float | None = None
    """Mean reward of the sampled responses; None where rewards are 1 and 0."""
    greedy: Interval | None = None
    pass_at: dict[int, Interval] = Field(default_factory=dict, validation_alias=AliasChoices("pass_at", "pass"))
    """pass@n by n: the expected share of problems with at least one correct sample of n; empty over benchmarks."""
    majority: Interval | None = None
    """Share of problems where the correct answer has the most votes of the samples."""
    working: Interval | None = None
    """Share of the sampled responses that show their working."""
    response_tokens: float
    """Mean length of the sampled responses, in tokens."""
    truncated: float
    """Share of the sampled responses that were cut off at the token limit."""
    outcomes: dict[str, int] = Field(default_factory=dict)
    """Number of sampled and greedy responses by outcome."""
    by_level: dict[str, float] = Field(default_factory=dict)
    """avg@k by level of the problems; empty over several benchmarks, and where problems have no level."""
    problems: int
    samples_per_problem: int = Field(validation_alias=AliasChoices("samples_per_problem", "k"))
    """k of avg@k; 0 where benchmarks differ in it."""

    @property
    def pass_at_k(self) -> Interval | None:
        """pass@k for the k of avg@k; None over several benchmarks."""
        return self.pass_at.get(self.samples_per_problem)


class Evaluation(Accuracies):
    """An evaluation of a policy on one benchmark."""

    benchmark: str
    prompts: ArtifactRef
    evaluation: ArtifactRef


class EvaluatedPolicy(Accuracies):
    """A policy with its averages over the benchmarks."""

    policy: ArtifactRef
    stage: int
    """Number of finished stages; 0 for the base policy."""
    updates: int
    evaluations: list[Evaluation]
    """Evaluations of the policy, in the order of the settings."""

    @property
    def label(self) -> str:
        """``base`` or ``stage 3``."""
        return f"stage {self.stage}" if self.stage else "base"

    @property
    def headline(self) -> str:
        """The name of the accuracy: ``avg@4``, or ``mean of 5 benchmarks``."""
        count = len(self.evaluations)
        return f"mean of {count} benchmarks" if count > 1 else f"avg@{self.samples_per_problem}"


@dataclass(frozen=True)
class Stage:
    """A finished stage: its policy, and the rollouts and their verdicts that the policy was trained on."""

    number: int
    """Number of the stage, from 1."""
    first_update: int
    last_update: int
    policy: Manifest
    rollouts: list[Manifest]
    verdicts: Manifest

    @property
    def steps(self) -> list[Manifest]:
        """The artifacts of generation, verification and optimization."""
        return [*self.rollouts, self.verdicts, self.policy]

    @property
    def veto(self) -> dict[str, Any]:
        """Settings of the objective's veto; empty if it is off."""
        veto = dict(self.policy.settings["objective"].get("veto", {}))
        return veto if veto.get("scope", "off") != "off" else {}


@dataclass(frozen=True)
class History:
    """A run, finished or not."""

    evaluated: list[EvaluatedPolicy]
    """Evaluated policies, in the order of updates."""
    stages: list[Stage]
    updates: dict[str, Values]
    """Columns of the policies' metrics, one entry per update of the run; NaN if the value is null or missing."""
    histograms: dict[str, Values]
    """Counts per bin, [updates, bins], by column; empty before the first update."""
    manifests: dict[ArtifactRef, Manifest]
    """The evaluations and all of their ancestors."""
    algorithm: str
    """The preset, or ``base`` before the first stage."""
    updates_per_rollout: int
    seed: int
    reached: str = ""
    """The last artifact of an unfinished run."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the run; empty if they are unknown."""

    @property
    def benchmarks(self) -> list[str]:
        """Names of the benchmarks, on all of which every policy was evaluated."""
        return [one.benchmark for one in self.evaluated[-1].evaluations]

    @property
    def boundaries(self) -> list[int]:
        """The last update of every stage but the last stage."""
        return [stage.last_update for stage in self.stages[:-1]]

    @property
    def last_update(self) -> int:
        """The last update of the last stage, whose policy may not be evaluated yet; 0 before the first stage."""
        return self.stages[-1].last_update if self.stages else 0

    @property
    def veto(self) -> dict[str, Any]:
        """Settings of the veto of the last stage that has one; empty if none has."""
        return next((stage.veto for stage in reversed(self.stages) if stage.veto), {})

    def column(self, name: str) -> Values:
        """Return a column of the updates. It is all NaN if the run has no column of that name."""
        return self.updates.get(name, np.full(len(self.updates.get("update", ())), np.nan))

    def has_numbers(self, name: str) -> bool:
        """Return whether a column of the updates has a number."""
        return bool(np.any(~np.isnan(self.column(name))))

    def unfinished(self, kind: Kind) -> list[Manifest]:
        """Return the rollouts or verdicts of the stage that follows the last policy."""
        used = {one.digest for stage in self.stages for one in stage.steps}
        return [one for one in self.of_kind(kind) if one.digest not in used]

    def of_kind(self, kind: Kind) -> list[Manifest]:
        """Return the manifests of one kind, by the time at which their steps started."""
        manifests = [manifest for manifest in self.manifests.values() if manifest.kind == kind]
        return sorted(manifests, key=lambda manifest: (manifest.timings.started, manifest.digest))


def load_finished(store: Store, report: Manifest) -> History:
    """Load the history of the run that a report describes.

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
    """Load the history of a run.

    An artifact can come from an earlier run whose settings lead to the same artifact. Its manifest in the store has the
    settings of the earlier run; its manifest in the result has the settings of this run.

    Args:
        store: the store with the artifacts of the run.
        evaluations: averages, one per evaluated policy of one run, in any order. A reference to an evaluation counts as
            an average over this evaluation alone.
        last: the last policy of the run, if it is not evaluated.
        unfinished: rollouts and verdicts of the stage that follows the last policy.
        seed: seed of the run; None means the seed of the last policy.
        settings: settings of the run, as far as they are known.
        trained_from: the first stage of this run, from 0; earlier stages belong to another run and keep its settings.

    Raises:
        ArtifactError: an artifact of the run's lineage is missing or corrupted.
        DataError: there is no evaluation, or the evaluations belong to different runs.
    """
    if not evaluations:
        raise DataError("report: no evaluation was given; a report needs at least that of the base policy.")
    lineage = ancestry(store, dict.fromkeys([*evaluations, *([last] if last else []), *unfinished]))
    for error in lineage.missing.values():
        raise error
    manifests = {manifest.ref: manifest for manifest in lineage.manifests.values()}
    read = [(one, name) for one in manifests.values() for name in (ACCURACY_FILE, METRICS_FILE) if name in one.files]
    # On S3, all are fetched in parallel.
    store.fetch({f"{one.ref.folder}/{name}": one.files[name] for one, name in read})
    evaluated = sorted(
        (_read_evaluated(store, manifests, ref) for ref in dict.fromkeys(evaluations)),
        key=lambda policy: (policy.updates, policy.policy.digest),
    )
    final = manifests[last or evaluated[-1].policy]
    chain = lineage.policies(final)
    unrelated = [policy for policy in evaluated if manifests[policy.policy] not in chain]
    if unrelated:
        raise DataError(
            f"report: {unrelated[0].policy} is not an ancestor of {evaluated[-1].policy}, so their evaluations belong "
            "to different runs. Give the evaluations of one run; `compare` puts runs side by side."
        )
    settings = settings or {}
    stages = [
        _stage(manifests, before, after, settings if after.facts["stage"] > trained_from else {})
        for before, after in pairwise(chain)
    ]
    tables = [read_table(store.file(policy, METRICS_FILE)) for policy in chain[1:]]
    metrics = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    return History(
        evaluated=evaluated,
        stages=stages,
        updates=number_columns(metrics),
        histograms={name: np.array(metrics[name].to_pylist(), dtype=np.float64) for name in EDGES if metrics.num_rows},
        manifests=manifests,
        algorithm=stages[-1].policy.settings["preset"] if stages else "base",
        updates_per_rollout=int(final.facts.get("updates_per_rollout") or 0),
        seed=final.seed if seed is None else seed,
        settings=settings,
    )


def _read_evaluated(store: Store, manifests: Mapping[ArtifactRef, Manifest], ref: ArtifactRef) -> EvaluatedPolicy:
    """Read the evaluated policy of an average. An evaluation counts as an average over this evaluation alone."""
    manifest = manifests[ref]
    (policy,) = manifest.parents["policy"]

    def metrics(one: Manifest) -> dict[str, Any]:
        return dict(json.loads(store.file(one, ACCURACY_FILE).read_text()))

    evaluations = [
        {**metrics(one), "prompts": one.parents["prompts"][0], "evaluation": one.ref}
        for one in (manifests[each] for each in manifest.parents.get("evaluations", [ref]))
    ]
    facts = manifests[policy].known_facts
    own = {"policy": policy, "stage": facts["stage"], "updates": facts["updates"], "evaluations": evaluations}
    return EvaluatedPolicy.model_validate({**metrics(manifest), **own})


def _stage(
    manifests: dict[ArtifactRef, Manifest], before: Manifest, after: Manifest, settings: Mapping[str, Any]
) -> Stage:
    """Return the stage between two policies, and put the run's settings into the manifests of its artifacts."""

    def with_settings(refs: Sequence[ArtifactRef], section: str) -> list[Manifest]:
        for ref in refs:
            values = {**manifests[ref].settings, **(settings.get(section) or {})}
            manifests[ref] = manifests[ref].model_copy(update={"settings": values})
        return [manifests[ref] for ref in refs]

    return Stage(
        number=int(after.facts["stage"]),
        first_update=int(before.facts["updates"]) + 1,
        last_update=int(after.facts["updates"]),
        policy=with_settings([after.ref], "optimize")[0],
        rollouts=with_settings(after.parents["rollouts"], "rollout"),
        verdicts=with_settings(after.parents["verdicts"], "verify")[0],
    )


def number_columns(metrics: pa.Table) -> dict[str, Values]:
    """Return the numeric columns of a table by name, with NaN for null."""
    names = [field.name for field in metrics.schema if not pa.types.is_nested(field.type)]
    return {name: metrics[name].cast(pa.float64()).to_numpy() for name in names}


def resolved_settings(history: History) -> dict[str, dict[str, str]]:
    """Return the settings of every step of the run; values that changed during the run are joined by an arrow."""
    finals = [stage.policy for stage in history.stages]
    artifacts: dict[str, list[Manifest]] = {
        "base policy": [one for one in history.of_kind("policy") if one not in finals],
        # Prompts with the fact "data" come from a data set, not from the settings of the prompts.
        "prompts": [one for one in history.of_kind("prompts") if "data" not in one.facts],
        "rollout": history.of_kind("rollouts"),
        "verify": history.of_kind("verdicts"),
        "optimize": finals,
    }
    settings = {step: [one.settings for one in manifests] for step, manifests in artifacts.items()}
    # Runs share these artifacts, whose manifests have the settings of the first run. The page shows those of this run.
    for step, section in (("base policy", "policy"), ("prompts", "prompts")):
        settings[step] = [history.settings[section]] if section in history.settings else settings[step]
    own = _evaluation_settings(history)
    for index, name in enumerate(history.benchmarks):
        step = "evaluate" if len(history.benchmarks) == 1 else f"evaluate, {name}"
        evaluations = [policy.evaluations[index].evaluation for policy in history.evaluated]
        settings[step] = [history.manifests[evaluation].settings | own.get(name, {}) for evaluation in evaluations]
    return {step: parameters for step, values in settings.items() if (parameters := parameters_of(values))}


def _evaluation_settings(history: History) -> dict[str, dict[str, Any]]:
    """Return the run's settings of the evaluations by benchmark; empty if this version of the code cannot read them."""
    try:
        measurements = RunSettings.parse(history.settings).measurements
    except SettingsError:
        return {}
    return {measurement.benchmark.name: measurement.evaluation.result_values() for measurement in measurements}


def parameters_of(settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings of a step's artifacts; values that differ between artifacts are joined by an arrow."""
    values: dict[str, list[str]] = {}
    for one in settings:
        own = {name: value for name, value in one.items() if name not in OTHER_STEPS}
        for name, value in flat(own).items():
            seen = values.setdefault(name, [])
            if format_value(value) not in seen:
                seen.append(format_value(value))
    return {name: " → ".join(seen) for name, seen in values.items()}


def format_value(value: Any) -> str:
    """Return the value of a setting as a page shows it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(format_value(one) for one in value)
    if isinstance(value, Mapping):
        return " ".join(f"{name}={format_value(one)}" for name, one in flat(value).items() if one not in (None, "", []))
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def format_values(settings: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    """Return the value of a setting in each of several flat settings, and a dash where it is missing."""
    return [format_value(values[name]) if name in values else DASH for values in settings]
