"""Averages a policy's accuracies over benchmarks."""

import json
from collections.abc import Sequence

from tasks.errors import DataError
from tasks.evaluate.metrics import METRICS, combine, headline
from tasks.store import ArtifactRef, Parents, Store


def average_evaluations(
    store: Store,
    policy: ArtifactRef,
    evaluations: Sequence[ArtifactRef],
    seed: int,
) -> ArtifactRef:
    """Write an average artifact, whose metrics.json has the mean over evaluations, or the numbers of a single one.

    Args:
        store: of all artifacts.
        policy: that was evaluated.
        evaluations: of it, a benchmark each.
        seed: the run's.

    Raises:
        DataError: an evaluation is of another policy.
    """
    manifests = [store.manifest(ref) for ref in evaluations]
    for manifest in manifests:
        if manifest.parents["policy"] != [policy]:
            raise DataError(f"average: {manifest.ref} is no evaluation of {policy}; allowed: those of one policy.")
    parents: Parents = {"policy": policy, "evaluations": list(evaluations)}
    with store.write("average", settings={}, parents=parents, seed=seed) as draft:
        measured = [json.loads(store.file(manifest, METRICS).read_text()) for manifest in manifests]
        metrics = combine(measured)
        (draft.path / METRICS).write_text(json.dumps(metrics, indent=1))
        draft.facts.update(headline(metrics))
        draft.facts["benchmarks"] = {one["benchmark"]: one["accuracy"]["value"] for one in measured}
    return draft.ref
