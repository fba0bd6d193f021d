"""Finds runs without a report, by what they made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.report.history import History, PlannedStage, load_history
from tasks.store import Store
from tasks.store.layout import Kind
from tasks.store.lineage import Lineage
from tasks.store.records import Manifest
from tasks.stored.reports import Responses

_KINDS: tuple[Kind, ...] = ("policy", "prompts", "rollouts", "verdicts", "evaluation", "average", "report")


@dataclass(frozen=True)
class UnfinishedRun:
    """A run, as far as it came."""

    seed: int
    policies: list[Manifest]
    """The base policy first."""
    finished_stages: int
    """The first stages, which belong to a finished run too."""
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
        return _latest([*self.policies, *self.averages, *self.rollouts, *self.verdicts])

    @property
    def planned(self) -> tuple[PlannedStage, ...]:
        """Every stage of the run, as far as its prompts tell, and at least the next one."""
        made = len(self.policies) - 1
        evaluated = {average.parents["policy"][0].digest for average in self.averages}
        stages = []
        for number in range(1, max(made + bool(self.rollouts), len(self.prompts)) + 1):
            policy = self.policies[number] if number <= made else None
            next_rollouts, next_verdicts = (self.rollouts, self.verdicts) if number == made + 1 else ([], [])
            stages.append(
                PlannedStage(
                    number=number,
                    shards=len(self.prompts[number - 1]) if number <= len(self.prompts) else 0,
                    generated=len(policy.parents["rollouts"] if policy else next_rollouts),
                    verified=policy is not None or bool(next_verdicts),
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
        loose = [manifest.ref for manifest in (*self.rollouts, *self.verdicts)]
        history = load_history(store, [average.ref for average in self.averages], self.policies[-1].ref, loose)
        return replace(history, seed=self.seed, planned=self.planned)

    def stage(self, number: int) -> Responses | None:
        """Return the responses of a stage that belongs to no finished run; ``number`` counts from 1."""
        title, made = f"stage {number} of a run that is not finished", self.policies[1:]
        if self.finished_stages < number <= len(made):
            return Responses.learned(title, made[number - 1])
        if number != len(made) + 1 or not self.rollouts:
            return None
        verdicts = self.verdicts[0] if self.verdicts else None
        shards = verdicts.parents["rollouts"] if verdicts else [one.ref for one in self.rollouts]
        latest = _latest([*self.rollouts, *self.verdicts])
        return Responses(title, shards, verdicts.ref if verdicts else None, None, latest)


def find_unfinished(store: Store, seed: int | None = None, algorithm: str | None = None) -> list[UnfinishedRun]:
    """Return the runs that end with a policy, or with rollouts, of which no report tells, the latest first.

    A run that went no further than its base policy has no algorithm yet.
    """
    known = {kind: store.manifests(kind) for kind in _KINDS}
    lineage = Lineage.of(manifest for manifests in known.values() for manifest in manifests)
    trained = [policy for policy in known["policy"] if policy.parents.get("policy")]
    taken = {ref.digest for policy in trained for ref in policy.parents.get("rollouts", ())}
    untaken = [one for one in known["rollouts"] if one.digest not in taken and one.parents.get("policy")]
    averages = {_sampler(average): average for average in reversed(known["average"])}
    reported = {
        (policy.digest, report.seed)
        for report in known["report"]
        for evaluated in lineage.evaluated(report)
        for policy in lineage.policies(evaluated)
    }
    finished = {digest for digest, _ in reported}
    # A base policy has no seed of its own: it is that of every run that evaluated it or sampled from it.
    ends = (
        ({(policy.digest, policy.seed) for policy in trained} | averages.keys()) - {*map(_sampler, trained)} - reported
    )
    policies = {policy.digest: policy for policy in known["policy"]}
    runs = []
    for digest, of_seed in sorted(ends | {*map(_sampler, untaken)}):
        policy = policies.get(digest)
        if policy and seed in (None, of_seed) and algorithm in (None, policy.known_facts.get("preset")):
            chain = lineage.policies(policy)
            sampled = [one for one in untaken if _sampler(one) == (digest, of_seed)]
            rollouts = [one for one in sampled if one.settings == sampled[0].settings]
            shards = {one.digest for one in rollouts}
            runs.append(
                UnfinishedRun(
                    seed=of_seed,
                    policies=chain,
                    finished_stages=sum(one.digest in finished for one in chain[1:]),
                    averages=[averages[one.digest, of_seed] for one in chain if (one.digest, of_seed) in averages],
                    prompts=_prompts(
                        lineage, [one for one in known["prompts"] if one.seed == of_seed], chain, rollouts
                    ),
                    rollouts=rollouts,
                    verdicts=[
                        one for one in known["verdicts"] if shards & {ref.digest for ref in one.parents["rollouts"]}
                    ],
                )
            )
    return sorted(runs, key=lambda run: -run.latest)


def _sampler(made: Manifest) -> tuple[str, int]:
    """Return the digest of the policy that something was made with, and the seed of its run."""
    return made.parents["policy"][0].digest, made.seed


def _latest(made: Sequence[Manifest]) -> float:
    return max(manifest.timings.finished for manifest in made)


def _prompts(
    lineage: Lineage, prompts: list[Manifest], chain: list[Manifest], rollouts: list[Manifest]
) -> list[list[Manifest]]:
    """Return the shards of all stages: cut of one training set like one that the run took, or like the latest."""
    shards = [one for one in prompts if "stage" in one.known_facts]
    sampled = [*rollouts, *(one for policy in chain[1:] for one in lineage.parents_of(policy, "rollouts"))]
    taken = {prompts.digest for one in sampled for prompts in lineage.parents_of(one, "prompts")}
    like = next((one for one in shards if one.digest in taken), shards[0] if shards else None)
    stages: dict[int, list[Manifest]] = {}
    for one in shards:
        if like is not None and (one.parents, one.settings) == (like.parents, like.settings):
            stages.setdefault(one.known_facts["stage"], []).append(one)
    return [stages.get(number, []) for number in range(max(stages, default=-1) + 1)]
