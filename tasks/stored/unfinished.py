"""Unfinished runs: finds runs without a report by their artifacts."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from tasks.errors import DataError
from tasks.report.history import History, load_history
from tasks.store import ArtifactRef, Store
from tasks.store.layout import Kind
from tasks.store.lineage import Lineage
from tasks.store.records import Manifest
from tasks.stored.garbage import shard_set
from tasks.stored.runs import find_reports, run_key

_KINDS: tuple[Kind, ...] = ("policy", "prompts", "rollouts", "verdicts", "evaluation", "average", "report")
Part = TypeVar("Part")


@dataclass(frozen=True)
class JudgedResponses:
    """Rollouts that were verified together, with their verdicts and the policy that learned from them."""

    title: str
    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef | None
    policy: Manifest | None
    """Policy that learned from the rollouts."""

    @classmethod
    def of_policy(cls, title: str, policy: Manifest) -> "JudgedResponses":
        """Return the responses that a policy learned from."""
        return cls(title, policy.parents["rollouts"], policy.parents["verdicts"][0], policy)


@dataclass(frozen=True)
class UnfinishedRun:
    """A run without a report, with the artifacts that it has made."""

    seed: int
    policies: list[Manifest]
    """Policies in the order of stages; the first one is the base policy."""
    finished_stages: int
    """Number of first stages that also belong to a finished run."""
    averages: list[Manifest]
    """Mean accuracies of these policies, in their order; a policy may have none."""
    rollouts: list[Manifest]
    """Rollouts by the last policy, for the next stage."""
    verdicts: list[Manifest]
    """Verdicts on these rollouts."""

    @property
    def latest(self) -> float:
        """Time at which the run made its last artifact, in Unix seconds."""
        manifests = chain(self.policies, self.averages, self.rollouts, self.verdicts)
        return max(manifest.timings.finished for manifest in manifests)

    @property
    def reached(self) -> str:
        """Name of the last artifact, such as ``the verdicts of stage 2``."""
        trained = len(self.policies) - 1
        if self.rollouts:
            return f"the {'verdicts' if self.verdicts else 'rollouts'} of stage {trained + 1}"
        return f"the policy of stage {trained}" if trained else "the base policy"

    def history(self, store: Store) -> History:
        """Return the history for the run's report.

        Raises:
            ArtifactError: an artifact of the run is missing or corrupted.
        """
        unfinished = [manifest.ref for manifest in (*self.rollouts, *self.verdicts)]
        history = load_history(store, [average.ref for average in self.averages], self.policies[-1].ref, unfinished)
        return replace(history, seed=self.seed, reached=self.reached)

    def stage(self, number: int) -> JudgedResponses | None:
        """Return the responses of a stage that belongs to no finished run; ``number`` counts from 1."""
        title, trained = f"stage {number} of a run that is not finished", self.policies[1:]
        if self.finished_stages < number <= len(trained):
            return JudgedResponses.of_policy(title, trained[number - 1])
        if number != len(trained) + 1 or not self.rollouts:
            return None
        verdicts = self.verdicts[0] if self.verdicts else None
        shards = verdicts.parents["rollouts"] if verdicts else [manifest.ref for manifest in self.rollouts]
        return JudgedResponses(title, shards, verdicts.ref if verdicts else None, None)


def find_unfinished(store: Store, seed: int | None = None, algorithm: str | None = None) -> list[UnfinishedRun]:
    """Return the runs whose last policy, rollouts or verdicts belong to no report, the latest run first.

    A run that has only its base policy has no algorithm yet.
    """
    manifests = store.manifests(*_KINDS, title="read manifests")
    known = {kind: [manifest for manifest in manifests if manifest.kind == kind] for kind in _KINDS}
    lineage = Lineage({manifest.ref.folder: manifest for manifest in manifests})
    trained = [policy for policy in known["policy"] if policy.parents.get("policy")]
    learned = {ref.digest for policy in trained for ref in policy.parents.get("verdicts", ())}
    waiting = [verdicts for verdicts in known["verdicts"] if verdicts.digest not in learned]
    # A run with other rewards may share rollouts. An execution that evaluates nothing has rescored a stored run.
    running = {evaluation.timings.execution for evaluation in known["evaluation"]}
    used = {ref.digest for policy in trained for ref in policy.parents.get("rollouts", ())}
    used -= {ref.digest for one in waiting if one.timings.execution in running for ref in one.parents["rollouts"]}
    unused: dict[tuple[str, int], dict[str, list[Manifest]]] = defaultdict(lambda: defaultdict(list))
    for rollouts in known["rollouts"]:
        if rollouts.digest not in used and rollouts.parents.get("policy"):
            unused[_sampler(rollouts)][_sampling(lineage, rollouts)].append(rollouts)
    averages: dict[tuple[str, int], dict[str, Manifest]] = defaultdict(dict)
    for average in reversed(known["average"]):  # Of equal measures the latest counts.
        averages[_sampler(average)][_measure(lineage, average)] = average
    reported = {
        (policy.digest, report.seed)
        for report in known["report"]
        for evaluated in lineage.evaluated_policies(report)
        for policy in lineage.policies(evaluated)
    }
    finished = {digest for digest, _ in reported}
    # The seed of a base policy is that of each run that evaluated it or sampled from it. A trained policy has one seed:
    # an average with another one is an evaluation of a stored policy.
    own_seeds = {policy.digest: policy.seed for policy in trained}
    all_policies = own_seeds.items() | {sampler for sampler in averages if sampler[0] not in own_seeds}
    ends = (all_policies - {*map(_sampler, trained)} - reported) | unused.keys()
    policies = {policy.digest: policy for policy in known["policy"]}
    runs = []
    for digest, run_seed in sorted(ends):
        last = policies.get(digest)
        if not last or seed not in (None, run_seed) or algorithm not in (None, last.known_facts.get("preset")):
            continue
        stages = lineage.policies(last)
        for shards in unused.get((digest, run_seed), {"": []}).values():
            digests = {shard.digest for shard in shards}
            runs.append(
                UnfinishedRun(
                    seed=run_seed,
                    policies=stages,
                    finished_stages=sum(policy.digest in finished for policy in stages[1:]),
                    averages=_averages_of_run([averages.get((policy.digest, run_seed), {}) for policy in stages]),
                    rollouts=shards,
                    verdicts=[one for one in waiting if digests & {ref.digest for ref in one.parents["rollouts"]}],
                )
            )
    return sorted(runs, key=lambda run: -run.latest)


def latest_run(
    store: Store, seed: int | None, algorithm: str | None, name: str, part: Callable[[UnfinishedRun], Part | None]
) -> Manifest | Part:
    """Return the report of the latest run, or what ``part`` returns for it if it is not finished.

    Unfinished runs for which ``part`` returns None are left out. The first report of a finished run decides its age.

    Raises:
        DataError: the store has no such run. The message names the part.
    """
    unfinished = find_unfinished(store, seed, algorithm)
    latest, found = next(((run.latest, made) for run in unfinished if (made := part(run))), (0.0, None))
    reports = find_reports(store, seed, algorithm, or_none=bool(unfinished))
    first = min((one.timings.finished for one in reports if run_key(one) == run_key(reports[0])), default=0.0)
    if found is not None and first < latest:
        return found
    if not reports:
        raise DataError(f"{name}: the run is not finished; its last artifact is {unfinished[0].reached}.")
    return reports[0]


def _measure(lineage: Lineage, average: Manifest) -> str:
    """Return a key that is equal for averages over the same benchmarks with the same settings."""
    evaluations = lineage.parents_of(average, "evaluations")
    return json.dumps([[one.parents["prompts"][0].digest, one.settings] for one in evaluations], sort_keys=True)


def _averages_of_run(measured: Sequence[Mapping[str, Manifest]]) -> list[Manifest]:
    """Choose the averages of one run; ``measured`` holds those of each of its policies by measure, also by other runs.

    The measure of the run is the one that most of its policies have, or the latest of several such measures.
    """
    numbers = Counter(chain(*measured))
    latest = {measure: average.timings.finished for averages in measured for measure, average in averages.items()}
    own = max(numbers, key=lambda measure: (numbers[measure], latest[measure]), default="")
    return [averages[own] for averages in measured if own in averages]


def _sampling(lineage: Lineage, rollouts: Manifest) -> str:
    """Return a key that is equal for all rollouts of a stage of one run, among those with an equal ``_sampler``."""
    sets = [shard_set(prompts) for prompts in lineage.parents_of(rollouts, "prompts")]
    return json.dumps([sets, rollouts.settings, rollouts.code_version], sort_keys=True)


def _sampler(manifest: Manifest) -> tuple[str, int]:
    """Return the digest of the policy from which an artifact was made, and the seed of the run."""
    return manifest.parents["policy"][0].digest, manifest.seed
