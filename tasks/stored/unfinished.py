"""A run without a report, found by what it made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tasks.artifacts import Store
from tasks.artifacts.records import Manifest
from tasks.report.history import History, PlannedStage, load_history

Manifests = Mapping[str, Manifest]
"""By digest."""


@dataclass(frozen=True)
class UnfinishedRun:
    """As far as a run came."""

    policies: list[Manifest]
    """The base policy first."""
    averages: list[Manifest]
    """The evaluations of these policies, in their order; one may miss its own."""
    prompts: list[list[Manifest]]
    """The shards of every stage that it prepared."""
    rollouts: list[Manifest]
    """By the last policy, for the next stage."""
    verdicts: list[Manifest]
    """On these."""

    @property
    def latest(self) -> float:
        """When it made its last artifact, in Unix seconds."""
        made = (*self.policies, *self.averages, *self.rollouts, *self.verdicts)
        return max(manifest.timings.finished for manifest in made)

    @property
    def planned(self) -> tuple[PlannedStage, ...]:
        """Every stage that it was to make, as far as its prompts tell, and at least the next one."""
        made = len(self.policies) - 1
        evaluated = {average.parents["policy"][0].digest for average in self.averages}
        stages = []
        for number in range(1, max(made + bool(self.rollouts), len(self.prompts)) + 1):
            shards = len(self.prompts[number - 1]) if number <= len(self.prompts) else 0
            policy = self.policies[number] if number <= made else None
            generated = len(self.rollouts) if number == made + 1 else 0
            stages.append(
                PlannedStage(
                    number=number,
                    shards=shards,
                    generated=len(policy.parents["rollouts"]) if policy else generated,
                    verified=policy is not None or (number == made + 1 and bool(self.verdicts)),
                    trained=policy is not None,
                    evaluated=policy is not None and policy.digest in evaluated,
                )
            )
        return tuple(stages)

    def history(self, store: Store) -> History:
        """What its report shows.

        Raises:
            ArtifactError: an artifact of the run is missing or corrupted.
        """
        last = self.policies[-1]
        loose = [manifest.ref for manifest in (*self.rollouts, *self.verdicts)]
        history = load_history(store, [average.ref for average in self.averages], last.ref, loose)
        return replace(history, seed=last.seed, planned=self.planned)


def find_unfinished(store: Store, seed: int | None = None, algorithm: str | None = None) -> UnfinishedRun | None:
    """The latest run of which some policy is evaluated and none of the reports is; None when there is none.

    A run that went no further than its base policy has no algorithm yet.
    """
    policies = {manifest.digest: manifest for manifest in store.manifests("policy")}
    averages: dict[str, Manifest] = {}
    for average in sorted(store.manifests("average"), key=lambda manifest: manifest.timings.finished):
        averages[average.parents["policy"][0].digest] = average
    finished = {policy.digest for policy in _reported(store, policies)}
    gone_on = {ref.digest for policy in policies.values() for ref in policy.parents.get("policy", [])}
    runs = [
        _run(store, list(_chain(policies, tip))[::-1], averages)
        for tip in policies.values()
        if tip.digest not in gone_on | finished
        and seed in (None, tip.seed)
        and algorithm in (None, tip.facts.get("preset"))
        and any(policy.digest in averages for policy in _chain(policies, tip))
    ]
    return max(runs, key=lambda run: run.latest, default=None)


def _chain(policies: Manifests, last: Manifest | None) -> Iterator[Manifest]:
    """A policy and those that it descends from; as far as they are there."""
    while last is not None:
        yield last
        parents = last.parents.get("policy")
        last = policies.get(parents[0].digest) if parents else None


def _reported(store: Store, policies: Manifests) -> Iterator[Manifest]:
    for report in store.manifests("report"):
        for evaluation in report.parents.get("evaluations", []):
            for policy in store.manifest(evaluation).parents["policy"]:
                yield from _chain(policies, policies.get(policy.digest))


def _run(store: Store, chain: list[Manifest], averages: Manifests) -> UnfinishedRun:
    last = chain[-1]
    rollouts = [one for one in store.manifests("rollouts") if one.parents.get("policy") == [last.ref]]
    mine = {one.digest for one in rollouts}
    verdicts = [one for one in store.manifests("verdicts") if mine & {ref.digest for ref in one.parents["rollouts"]}]
    prompts = _prompts(store, chain, rollouts)
    return UnfinishedRun(
        chain, [averages[policy.digest] for policy in chain if policy.digest in averages], prompts, rollouts, verdicts
    )


def _prompts(store: Store, chain: list[Manifest], rollouts: list[Manifest]) -> list[list[Manifest]]:
    """The shards of all stages: those that are cut of one training set like one that the run took, or the latest."""
    all_of_seed = [one for one in store.manifests("prompts") if one.seed == chain[-1].seed]
    found = {one.digest: one for one in all_of_seed if "stage" in one.facts}
    sampled = [*rollouts, *(store.manifest(ref) for policy in chain[1:] for ref in policy.parents["rollouts"])]
    taken = [ref.digest for one in sampled for ref in one.parents.get("prompts", []) if ref.digest in found]
    like = found[taken[0]] if taken else max(found.values(), key=lambda one: one.timings.finished, default=None)
    stages: dict[int, list[Manifest]] = {}
    for one in found.values():
        if like is not None and (one.parents, one.settings) == (like.parents, like.settings):
            stages.setdefault(int(one.facts["stage"]), []).append(one)
    return [stages.get(number, []) for number in range(max(stages, default=-1) + 1)]
