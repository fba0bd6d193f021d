"""Metrics of a policy on a benchmark, and their average over benchmarks. Legend: P problems, K samples of each."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.errors import DataError
from tasks.evaluate.statistics import Values, interval
from tasks.store import ArtifactRef, Parents, Store
from tasks.store.layout import ACCURACY_FILE

GREEDY = -1
"""The sample index of a greedy response."""
NO_VOTE = -1
"""The class of a response without an answer."""
CORRECT = 0
"""The class of answers that equal the gold answer; classes of wrong answers count from 1."""


def pass_at(correct_PK: Values, k: int) -> Values:
    """Return pass@k, [P]: the chance that at least one of k samples is correct, unbiased as in arXiv 2107.03374.

    Of n samples with c correct ones, 1 - C(n - c, k) / C(n, k).

    Args:
        correct_PK: 1 for a correct sample, else 0.
        k: 1 to K.
    """
    samples = correct_PK.shape[1]
    wrong_P = samples - correct_PK.sum(axis=1)
    missed_P = np.ones(len(correct_PK))
    for drawn in range(k):
        missed_P *= np.maximum(0.0, wrong_P - drawn) / (samples - drawn)
    return 1.0 - missed_P


def reported_ks(samples: int) -> list[int]:
    """Return the k for which pass@k is reported: 1, 2, 4, ... and all samples."""
    return sorted({*(2**power for power in range(samples.bit_length())), samples})


def majority(classes_PK: npt.NDArray[np.int64]) -> Values:
    """Return maj@k, [P]: 1 if the correct answer has most votes, 1/n if it is one of n answers that have, else 0.

    Args:
        classes_PK: the class of each answer: ``CORRECT``, ``NO_VOTE``, or the number of a wrong answer.
    """
    return np.array([_majority_of(Counter(row.tolist())) for row in classes_PK])


def _majority_of(votes: Counter[int]) -> float:
    del votes[NO_VOTE]
    most = max(votes.values(), default=0)
    return 1.0 / list(votes.values()).count(most) if most and votes[CORRECT] == most else 0.0


def measure(
    samples: Sequence[Mapping[str, Any]], classes: Sequence[int] | None, k: int, name: str, rewards: bool = False
) -> dict[str, Any]:
    """Compute accuracies with 95 % intervals by problem, and means over the sampled responses.

    Accuracies are shares of correct responses, whatever the rewards are. A response that the verifier could not judge
    counts as not correct; ``outcomes`` counts it under its own name.

    Args:
        samples: rows of the samples table, the k samples of a problem consecutive, greedy responses anywhere.
        classes: classes of the sampled answers, in their order; None where answers are not compared with each other.
        k: samples per problem.
        name: name of the benchmark.
        rewards: whether to add the mean reward, for rewards that are not 1 and 0.
    """
    sampled = [sample for sample in samples if sample["sample_index"] != GREEDY]
    greedy = [sample["outcome"] == "correct" for sample in samples if sample["sample_index"] == GREEDY]
    correct_PK = np.array([sample["outcome"] == "correct" for sample in sampled], dtype=np.float64).reshape(-1, k)
    working = [sample["shows_working"] for sample in sampled]
    by_problem = {
        "accuracy": correct_PK.mean(axis=1),
        "majority": None if classes is None else majority(np.array(classes, dtype=np.int64).reshape(-1, k)),
        "greedy": np.array(greedy, dtype=np.float64) if greedy else None,
        "working": None if None in working else np.array(working, dtype=np.float64).reshape(-1, k).mean(axis=1),
    }
    estimates = {name: None if values_P is None else _estimate(values_P) for name, values_P in by_problem.items()}
    level_P = [sample["level"] for sample in sampled[::k]]
    rewarded = [sample["reward"] for sample in sampled if rewards and sample["reward"] is not None]
    return {
        "benchmark": name,
        **({"reward": float(np.mean(rewarded))} if rewarded else {}),
        "accuracy": estimates["accuracy"],
        "greedy": estimates["greedy"],
        "pass": {str(one): _estimate(pass_at(correct_PK, one)) for one in reported_ks(k)},
        "majority": estimates["majority"],
        "k": k,
        "problems": len(correct_PK),
        "working": estimates["working"],
        "response_tokens": float(np.mean([sample["response_tokens"] for sample in sampled])),
        "truncated": float(np.mean([sample["finish_reason"] == "length" for sample in sampled])),
        "outcomes": dict(Counter(str(sample["outcome"]) for sample in samples)),
        "by_level": {
            str(level): float(correct_PK[[index for index, one in enumerate(level_P) if one == level]].mean())
            for level in sorted({one for one in level_P if one is not None})
        },
        "by_problem": {key: None if values_P is None else values_P.tolist() for key, values_P in by_problem.items()},
    }


def accuracy_facts(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the measured accuracies, and the mean reward, for a manifest or a tracker."""
    found = {name: metrics[name] for name in ("accuracy", "greedy", "majority")}
    shown = {name: estimate["value"] for name, estimate in found.items() if estimate is not None}
    return shown | ({"reward": metrics["reward"]} if "reward" in metrics else {})


def average_evaluations(
    store: Store, policy: ArtifactRef, evaluations: Sequence[ArtifactRef], seed: int
) -> ArtifactRef:
    """Write an average artifact, whose metrics.json has the means over evaluations; of one evaluation, its numbers.

    Raises:
        DataError: an evaluation is of another policy.
    """
    manifests = [store.manifest(ref) for ref in evaluations]
    for manifest in manifests:
        if manifest.parents["policy"] != [policy]:
            raise DataError(f"average: {manifest.ref} is not an evaluation of {policy}; allowed: those of one policy.")
    parents: Parents = {"policy": policy, "evaluations": list(evaluations)}
    with store.write("average", settings={}, parents=parents, seed=seed) as draft:
        measured = [json.loads(store.file(manifest, ACCURACY_FILE).read_text()) for manifest in manifests]
        metrics = combine(measured)
        (draft.path / ACCURACY_FILE).write_text(json.dumps(metrics, indent=1))
        draft.facts.update(accuracy_facts(metrics))
        draft.facts["benchmarks"] = {one["benchmark"]: one["accuracy"]["value"] for one in measured}
    return draft.ref


def combine(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Average metrics over benchmarks with equal weights; a single benchmark keeps its numbers.

    An average has a metric if all benchmarks have it, but no pass@k, and nothing by level or problem.
    """
    names = [one["benchmark"] for one in measured]
    if len(measured) == 1:
        return {**measured[0], "benchmarks": names}
    k = {one["k"] for one in measured}
    rewards = [one["reward"] for one in measured if "reward" in one]
    return {
        "benchmarks": names,
        **({"reward": float(np.mean(rewards))} if len(rewards) == len(measured) else {}),
        "accuracy": _mean_over(measured, "accuracy"),
        "greedy": _mean_over(measured, "greedy"),
        "pass": {},
        "majority": _mean_over(measured, "majority"),
        "k": k.pop() if len(k) == 1 else 0,
        "problems": sum(one["problems"] for one in measured),
        "working": _mean_over(measured, "working"),
        "response_tokens": float(np.mean([one["response_tokens"] for one in measured])),
        "truncated": float(np.mean([one["truncated"] for one in measured])),
        "outcomes": dict(sum((Counter(one["outcomes"]) for one in measured), Counter())),
        "by_level": {},
    }


def _mean_over(measured: Sequence[Mapping[str, Any]], name: str) -> dict[str, float] | None:
    found = [one["by_problem"][name] for one in measured]
    return None if None in found else _estimate(*map(np.array, found))


def _estimate(*benchmarks: Values) -> dict[str, float]:
    """Return ``value``, ``low`` and ``high`` of a mean over benchmarks of the values of their problems, [P] each."""
    return asdict(interval([{str(index): values_P[None] for index, values_P in enumerate(benchmarks)}]))
