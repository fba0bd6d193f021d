"""A run without a report, found by what it made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks.artifacts import Store
from tasks.artifacts.records import ArtifactRef, Manifest
from tasks.report.history import History, PlannedStage, load_history

Manifests = Mapping[str, Manifest]
"""By digest."""
Averages = dict[tuple[str, int], Manifest]
"""The latest one by policy and seed: a base policy may be that of several runs."""


@dataclass(frozen=True)
class UnfinishedRun:
    """As far as a run came."""

    seed: int
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
        return replace(history, seed=self.seed, planned=self.planned)


def find_unfinished(store: Store, seed: int | None = None, algorithm: str | None = None) -> UnfinishedRun | None:
    """The latest run of which some policy is evaluated and none of the reports is; None when there is none.

    A run that went no further than its base policy has no algorithm yet.
    """
    policies = {manifest.digest: manifest for manifest in store.manifests("policy")}
    averages: Averages = {}
    for average in sorted(store.manifests("average"), key=lambda manifest: manifest.timings.finished):
        averages[average.parents["policy"][0].digest, average.seed] = average
    trained = [policy for policy in policies.values() if policy.parents.get("policy")]
    gone_on = {(ref.digest, policy.seed) for policy in trained for ref in policy.parents["policy"]}
    # A base policy has no seed of its own: it is that of every run that evaluated it.
    tips = {(policy.digest, policy.seed) for policy in trained} | averages.keys()
    runs = [
        _run(store, list(_chain(policies, policies[tip]))[::-1], of_seed, averages)
        for tip, of_seed in sorted(tips - gone_on - _reported(store, policies))
        if tip in policies
        and seed in (None, of_seed)
        and algorithm in (None, policies[tip].facts.get("preset"))
        and any((policy.digest, of_seed) in averages for policy in _chain(policies, policies[tip]))
    ]
    return max(runs, key=lambda run: run.latest, default=None)


@dataclass(frozen=True)
class UnfinishedStage:
    """The responses of a stage of a run that has no report."""

    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef | None
    policy: Manifest | None
    """The one that learned from them."""
    latest: float
    """When the last of these was made, in Unix seconds."""


def find_unfinished_stage(
    store: Store, stage: int, seed: int | None = None, algorithm: str | None = None
) -> UnfinishedStage | None:
    """The latest responses of a stage that belong to no finished run; ``stage`` counts from 1.

    No policy needs to be evaluated, or to have learned from them. Responses of a first stage that nothing has learned
    from are of no algorithm yet.
    """
    policies = {manifest.digest: manifest for manifest in store.manifests("policy")}
    finished = {digest for digest, _ in _reported(store, policies)}
    learned = [one for one in policies.values() if one.parents.get("rollouts")]
    found = [
        UnfinishedStage(one.parents["rollouts"], one.parents["verdicts"][0], one, one.timings.finished)
        for one in learned
        if one.digest not in finished
        and one.facts["stage"] == stage
        and seed in (None, one.seed)
        and algorithm in (None, one.facts["preset"])
    ]
    taken = {ref.digest for one in learned for ref in one.parents["rollouts"]}
    open_rollouts = [
        one
        for one in store.manifests("rollouts")
        if one.digest not in taken
        and seed in (None, one.seed)
        and (sampler := policies.get(one.parents["policy"][0].digest))
        and sampler.facts["stage"] == stage - 1
        and algorithm in (None, sampler.facts.get("preset"))
    ]
    if open_rollouts:
        found.append(_together(store, open_rollouts))
    return max(found, key=lambda one: one.latest, default=None)


def _together(store: Store, rollouts: list[Manifest]) -> UnfinishedStage:
    """The latest of rollouts, with those that were sampled like them and the verdicts on all of these."""
    first = rollouts[0]
    mine = [one for one in rollouts if _sampled(one) == _sampled(first)]
    names = {one.digest for one in mine}
    verdicts = next(
        (one for one in store.manifests("verdicts") if names & {ref.digest for ref in one.parents["rollouts"]}), None
    )
    shards = verdicts.parents["rollouts"] if verdicts else [one.ref for one in mine]
    made = [one.timings.finished for one in (first, verdicts) if one]
    return UnfinishedStage(shards, verdicts.ref if verdicts else None, None, max(made))


def _sampled(rollouts: Manifest) -> tuple[list[ArtifactRef], dict[str, Any], int]:
    return rollouts.parents["policy"], rollouts.settings, rollouts.seed


def _chain(policies: Manifests, last: Manifest | None) -> Iterator[Manifest]:
    """A policy and those that it descends from; as far as they are there."""
    while last is not None:
        yield last
        parents = last.parents.get("policy")
        last = policies.get(parents[0].digest) if parents else None


def _reported(store: Store, policies: Manifests) -> set[tuple[str, int]]:
    """Policies of finished runs, each with the run's seed."""
    return {
        (policy.digest, report.seed)
        for report in store.manifests("report")
        for evaluation in report.parents.get("evaluations", [])
        for evaluated in store.manifest(evaluation).parents["policy"]
        for policy in _chain(policies, policies.get(evaluated.digest))
    }


def _run(store: Store, chain: list[Manifest], seed: int, averages: Averages) -> UnfinishedRun:
    rollouts = [
        one for one in store.manifests("rollouts") if one.parents.get("policy") == [chain[-1].ref] and one.seed == seed
    ]
    mine = {one.digest for one in rollouts}
    verdicts = [one for one in store.manifests("verdicts") if mine & {ref.digest for ref in one.parents["rollouts"]}]
    return UnfinishedRun(
        seed=seed,
        policies=chain,
        averages=[averages[policy.digest, seed] for policy in chain if (policy.digest, seed) in averages],
        prompts=_prompts(store, chain, rollouts, seed),
        rollouts=rollouts,
        verdicts=verdicts,
    )


def _prompts(store: Store, chain: list[Manifest], rollouts: list[Manifest], seed: int) -> list[list[Manifest]]:
    """The shards of all stages: those that are cut of one training set like one that the run took, or the latest."""
    all_of_seed = [one for one in store.manifests("prompts") if one.seed == seed]
    found = {one.digest: one for one in all_of_seed if "stage" in one.facts}
    sampled = [*rollouts, *(store.manifest(ref) for policy in chain[1:] for ref in policy.parents["rollouts"])]
    taken = [ref.digest for one in sampled for ref in one.parents.get("prompts", []) if ref.digest in found]
    like = found[taken[0]] if taken else max(found.values(), key=lambda one: one.timings.finished, default=None)
    stages: dict[int, list[Manifest]] = {}
    for one in found.values():
        if like is not None and (one.parents, one.settings) == (like.parents, like.settings):
            stages.setdefault(int(one.facts["stage"]), []).append(one)
    return [stages.get(number, []) for number in range(max(stages, default=-1) + 1)]
