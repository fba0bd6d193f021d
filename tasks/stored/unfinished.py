"""Finds a run without a report, by what it made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.artifacts import Store
from tasks.artifacts.layout import Kind
from tasks.artifacts.lineage import Lineage
from tasks.artifacts.records import ArtifactRef, Manifest
from tasks.report.history import History, PlannedStage, load_history

_KINDS: tuple[Kind, ...] = ("policy", "prompts", "rollouts", "verdicts", "evaluation", "average", "report")


@dataclass(frozen=True)
class UnfinishedRun:
    """A run, as far as it came."""

    seed: int
    policies: list[Manifest]
    """The base policy first."""
    averages: list[Manifest]
    """The evaluations of these policies, in their order; a policy may have none."""
    prompts: list[list[Manifest]]
    """The shards of every stage that the run prepared."""
    rollouts: list[Manifest]
    """Rollouts by the last policy, for the next stage."""
    verdicts: list[Manifest]
    """Verdicts on these rollouts."""

    @property
    def latest(self) -> float:
        """The time when it made its last artifact, in Unix seconds."""
        made = (*self.policies, *self.averages, *self.rollouts, *self.verdicts)
        return max(manifest.timings.finished for manifest in made)

    @property
    def planned(self) -> tuple[PlannedStage, ...]:
        """Every stage of the run, as far as its prompts tell, and at least the next one."""
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
        """Return the history that its report shows.

        Raises:
            ArtifactError: an artifact of the run is missing or corrupted.
        """
        last = self.policies[-1]
        loose = [manifest.ref for manifest in (*self.rollouts, *self.verdicts)]
        history = load_history(store, [average.ref for average in self.averages], last.ref, loose)
        return replace(history, seed=self.seed, planned=self.planned)


@dataclass(frozen=True)
class UnfinishedStage:
    """The responses of a stage of a run that has no report."""

    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef | None
    policy: Manifest | None
    """The policy that learned from them."""
    latest: float
    """The time when the last of these was made, in Unix seconds."""


def find_unfinished(store: Store, seed: int | None = None, algorithm: str | None = None) -> UnfinishedRun | None:
    """Return the latest run of which some policy is evaluated and none of the reports is; None when there is none.

    A run that went no further than its base policy has no algorithm yet.
    """
    known = _Known(store)
    averages = {(one.parents["policy"][0].digest, one.seed): one for one in reversed(known.of("average"))}
    policies = {policy.digest: policy for policy in known.of("policy")}
    trained = [policy for policy in policies.values() if policy.parents.get("policy")]
    gone_on = {(ref.digest, policy.seed) for policy in trained for ref in policy.parents["policy"]}
    # A base policy has no seed of its own: it is that of every run that evaluated it.
    tips = {(policy.digest, policy.seed) for policy in trained} | averages.keys()
    runs = []
    for tip, of_seed in sorted(tips - gone_on - known.reported()):
        if tip not in policies or seed not in (None, of_seed):
            continue
        chain = known.lineage.policies(policies[tip])
        evaluations = [averages[one.digest, of_seed] for one in chain if (one.digest, of_seed) in averages]
        if evaluations and algorithm in (None, chain[-1].known_facts.get("preset")):
            runs.append(known.run(chain, of_seed, evaluations))
    return max(runs, key=lambda run: run.latest, default=None)


def find_unfinished_stage(
    store: Store, stage: int, seed: int | None = None, algorithm: str | None = None
) -> UnfinishedStage | None:
    """Return the latest responses of a stage that belong to no finished run; ``stage`` counts from 1.

    No policy needs to be evaluated, or to have learned from them. Responses of a first stage that nothing has learned
    from are of no algorithm yet.
    """
    known = _Known(store)
    finished = {digest for digest, _ in known.reported()}
    learned = [policy for policy in known.of("policy") if policy.parents.get("rollouts")]
    found = [
        UnfinishedStage(one.parents["rollouts"], one.parents["verdicts"][0], one, one.timings.finished)
        for one in learned
        if one.digest not in finished
        and one.known_facts["stage"] == stage
        and seed in (None, one.seed)
        and algorithm in (None, one.known_facts["preset"])
    ]
    taken = {ref.digest for one in learned for ref in one.parents["rollouts"]}
    untaken = [
        one
        for one in known.of("rollouts")
        if one.digest not in taken
        and seed in (None, one.seed)
        and (sampler := next(known.lineage.parents_of(one, "policy"), None))
        and sampler.known_facts["stage"] == stage - 1
        and algorithm in (None, sampler.known_facts.get("preset"))
    ]
    if untaken:
        found.append(known.together(untaken))
    return max(found, key=lambda one: one.latest, default=None)


class _Known:
    """What a store holds of runs, read once."""

    def __init__(self, store: Store) -> None:
        self._kinds = {kind: store.manifests(kind) for kind in _KINDS}
        self.lineage = Lineage.of(manifest for manifests in self._kinds.values() for manifest in manifests)

    def of(self, kind: Kind) -> list[Manifest]:
        """Return the artifacts of a kind, the latest first."""
        return self._kinds[kind]

    def reported(self) -> set[tuple[str, int]]:
        """Return the digests of the policies of finished runs, each with the run's seed."""
        return {
            (policy.digest, report.seed)
            for report in self.of("report")
            for evaluated in self.lineage.evaluated(report)
            for policy in self.lineage.policies(evaluated)
        }

    def run(self, chain: list[Manifest], seed: int, averages: list[Manifest]) -> UnfinishedRun:
        """Return the run that made a chain of policies."""
        rollouts = [
            one for one in self.of("rollouts") if one.parents.get("policy") == [chain[-1].ref] and one.seed == seed
        ]
        return UnfinishedRun(
            seed=seed,
            policies=chain,
            averages=averages,
            prompts=self._prompts(chain, rollouts, seed),
            rollouts=rollouts,
            verdicts=self._verdicts(rollouts),
        )

    def together(self, rollouts: list[Manifest]) -> UnfinishedStage:
        """Return the latest of rollouts, with those that were sampled like them and the verdicts on all of these."""

        def sampled(one: Manifest) -> tuple[list[ArtifactRef], dict[str, Any], int]:
            return one.parents["policy"], one.settings, one.seed

        mine = [one for one in rollouts if sampled(one) == sampled(rollouts[0])]
        verdicts = next(iter(self._verdicts(mine)), None)
        shards = verdicts.parents["rollouts"] if verdicts else [one.ref for one in mine]
        made = [one.timings.finished for one in (rollouts[0], verdicts) if one]
        return UnfinishedStage(shards, verdicts.ref if verdicts else None, None, max(made))

    def _verdicts(self, rollouts: Sequence[Manifest]) -> list[Manifest]:
        mine = {one.digest for one in rollouts}
        return [one for one in self.of("verdicts") if mine & {ref.digest for ref in one.parents["rollouts"]}]

    def _prompts(self, chain: list[Manifest], rollouts: list[Manifest], seed: int) -> list[list[Manifest]]:
        """Return the shards of all stages: cut of one training set like one that the run took, or like the latest."""
        shards = [one for one in self.of("prompts") if one.seed == seed and "stage" in one.known_facts]
        sampled = [*rollouts, *(one for policy in chain[1:] for one in self.lineage.parents_of(policy, "rollouts"))]
        taken = {prompts.digest for one in sampled for prompts in self.lineage.parents_of(one, "prompts")}
        like = next((one for one in shards if one.digest in taken), shards[0] if shards else None)
        stages: dict[int, list[Manifest]] = {}
        for one in shards:
            if like is not None and (one.parents, one.settings) == (like.parents, like.settings):
                stages.setdefault(int(one.known_facts["stage"]), []).append(one)
        return [stages.get(number, []) for number in range(max(stages, default=-1) + 1)]
