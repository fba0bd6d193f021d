"""Find runs without a report by their artifacts."""

from dataclasses import dataclass, replace
from itertools import chain

from tasks.report.history import History, load_history
from tasks.store import ArtifactRef, Store
from tasks.store.layout import Kind
from tasks.store.lineage import Lineage
from tasks.store.records import Manifest

_KINDS: tuple[Kind, ...] = ("policy", "rollouts", "verdicts", "evaluation", "average", "report")


@dataclass(frozen=True)
class Responses:
    """Rollouts that were verified together, with their verdicts and the policy that was trained on them."""

    title: str
    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef | None
    policy: Manifest | None
    """The policy that was trained on them."""

    @classmethod
    def of_policy(cls, title: str, policy: Manifest) -> "Responses":
        """Return the responses that a policy was trained on."""
        return cls(title, policy.parents["rollouts"], policy.parents["verdicts"][0], policy)


@dataclass(frozen=True)
class UnfinishedRun:
    """The artifacts of a run without a report."""

    seed: int
    policies: list[Manifest]
    """Policies of all stages so far, the base policy first."""
    finished_stages: int
    """Number of its first stages that also belong to a finished run."""
    averages: list[Manifest]
    """Evaluations of these policies, in their order; a policy may have none."""
    rollouts: list[Manifest]
    """Rollouts of the next stage, by the last policy."""
    verdicts: list[Manifest]
    """Verdicts on these rollouts."""

    @property
    def latest(self) -> float:
        """Time of its last artifact, in Unix seconds."""
        made = chain(self.policies, self.averages, self.rollouts, self.verdicts)
        return max(manifest.timings.finished for manifest in made)

    @property
    def reached(self) -> str:
        """Its last artifact in words, such as ``the verdicts of stage 2``."""
        trained = len(self.policies) - 1
        if self.rollouts:
            return f"the {'verdicts' if self.verdicts else 'rollouts'} of stage {trained + 1}"
        return f"the policy of stage {trained}" if trained else "the base policy"

    def history(self, store: Store) -> History:
        """Return the history for its report.

        Raises:
            ArtifactError: an artifact of the run is missing or corrupted.
        """
        loose = [manifest.ref for manifest in (*self.rollouts, *self.verdicts)]
        history = load_history(store, [average.ref for average in self.averages], self.policies[-1].ref, loose)
        return replace(history, seed=self.seed, reached=self.reached)

    def stage(self, number: int) -> Responses | None:
        """Return the responses of a stage that belongs to no finished run; ``number`` counts from 1."""
        title, made = f"stage {number} of a run that is not finished", self.policies[1:]
        if self.finished_stages < number <= len(made):
            return Responses.of_policy(title, made[number - 1])
        if number != len(made) + 1 or not self.rollouts:
            return None
        verdicts = self.verdicts[0] if self.verdicts else None
        shards = verdicts.parents["rollouts"] if verdicts else [one.ref for one in self.rollouts]
        return Responses(title, shards, verdicts.ref if verdicts else None, None)


def find_unfinished(store: Store, seed: int | None = None, algorithm: str | None = None) -> list[UnfinishedRun]:
    """Return the runs whose last policy or rollouts belong to no report, the latest first.

    A run with a base policy alone has no algorithm yet.
    """
    known = {kind: store.manifests(kind) for kind in _KINDS}
    lineage = Lineage.of(chain(*known.values()))
    trained = [policy for policy in known["policy"] if policy.parents.get("policy")]
    taken = {ref.digest for policy in trained for ref in policy.parents.get("rollouts", ())}
    untaken = [one for one in known["rollouts"] if one.digest not in taken and one.parents.get("policy")]
    averages = {_sampler(average): average for average in reversed(known["average"])}
    reported = {
        (policy.digest, report.seed)
        for report in known["report"]
        for evaluated in lineage.evaluated_policies(report)
        for policy in lineage.policies(evaluated)
    }
    finished = {digest for digest, _ in reported}
    # A base policy may belong to runs with several seeds: to all that evaluated it or sampled from it.
    made = {(policy.digest, policy.seed) for policy in trained} | averages.keys()
    ends = (made - {*map(_sampler, trained)} - reported) | {*map(_sampler, untaken)}
    policies = {policy.digest: policy for policy in known["policy"]}
    runs = []
    for digest, of_seed in sorted(ends):
        last = policies.get(digest)
        if not last or seed not in (None, of_seed) or algorithm not in (None, last.known_facts.get("preset")):
            continue
        stages = lineage.policies(last)
        sampled = [one for one in untaken if _sampler(one) == (digest, of_seed)]
        rollouts = [one for one in sampled if one.settings == sampled[0].settings]
        digests = {one.digest for one in rollouts}
        runs.append(
            UnfinishedRun(
                seed=of_seed,
                policies=stages,
                finished_stages=sum(one.digest in finished for one in stages[1:]),
                averages=[averages[one.digest, of_seed] for one in stages if (one.digest, of_seed) in averages],
                rollouts=rollouts,
                verdicts=[
                    one for one in known["verdicts"] if digests & {ref.digest for ref in one.parents["rollouts"]}
                ],
            )
        )
    return sorted(runs, key=lambda run: -run.latest)


def _sampler(made: Manifest) -> tuple[str, int]:
    """Return the digest of the policy from which an artifact was made, and the seed of its run."""
    return made.parents["policy"][0].digest, made.seed
