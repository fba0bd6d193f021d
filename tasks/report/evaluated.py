"""What the evaluations of a policy found."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.artifacts.records import ArtifactRef, Manifest
from tasks.artifacts.store import Store
from tasks.errors import DataError


@dataclass(frozen=True)
class Estimate:
    """A mean over problems and its 95 % interval, as fractions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Found:
    """What a policy reached: on one benchmark, or on average over several."""

    accuracy: Estimate
    """avg@k."""
    greedy: Estimate | None
    pass_at: dict[int, Estimate]
    """Share of problems of which one of so many samples is correct, expected; empty over several benchmarks."""
    majority: Estimate | None
    """Share of problems of which most samples agree on the correct answer."""
    working: Estimate | None
    """Share of the sampled responses that show working."""
    response_tokens: float | None
    truncated: float | None
    outcomes: dict[str, int]
    by_level: dict[str, float]
    problems: int
    samples_per_problem: int
    """k of avg@k; 0 where benchmarks differ in it."""


@dataclass(frozen=True)
class Evaluation(Found):
    """A policy on a benchmark."""

    benchmark: str
    prompts: ArtifactRef | None
    """The benchmark's problems."""
    evaluation: ArtifactRef
    samples: Path


@dataclass(frozen=True)
class EvaluatedPolicy(Found):
    """A policy, and what it reached on average over the benchmarks."""

    policy: ArtifactRef
    stage: int
    """Finished stages; 0 is the base policy."""
    updates: int
    evaluations: list[Evaluation]
    """In the order of the settings."""
    average: ArtifactRef | None
    """The artifact of the mean; None where a report was asked for with evaluations themselves."""

    @property
    def label(self) -> str:
        """``base`` or ``stage 3``."""
        return f"stage {self.stage}" if self.stage else "base"


def headline(samples_per_problem: int, benchmarks: int) -> str:
    """What the accuracy of a policy is."""
    if benchmarks > 1:
        return f"mean of {benchmarks} benchmarks"
    return f"avg@{samples_per_problem}"


def read_evaluated(store: Store, manifests: Mapping[ArtifactRef, Manifest], ref: ArtifactRef) -> EvaluatedPolicy:
    """What an average, or an evaluation that stands for the average over it alone, says of its policy.

    Args:
        store: where it is.
        manifests: its own, and those of all that it descends from.
        ref: which.

    Raises:
        DataError: it is something else.
    """
    manifest = manifests[ref]
    parents = manifest.parents.get("policy", [])
    if ref.kind not in ("average", "evaluation") or len(parents) != 1:
        raise DataError(f"report: {ref} is not the evaluation of one policy (its policies: {len(parents)}).")
    facts = manifests[parents[0]].facts
    return EvaluatedPolicy(
        **_found(store, manifest),
        policy=parents[0],
        stage=int(facts.get("stage", 0)),
        updates=int(facts.get("updates", 0)),
        evaluations=[_evaluation(store, manifests[one]) for one in manifest.parents.get("evaluations", [ref])],
        average=ref if ref.kind == "average" else None,
    )


def _evaluation(store: Store, manifest: Manifest) -> Evaluation:
    return Evaluation(
        **_found(store, manifest),
        benchmark=str(manifest.facts.get("benchmark", "held_out")),
        prompts=next(iter(manifest.parents.get("prompts", ())), None),
        evaluation=manifest.ref,
        samples=store.file(manifest, "samples.parquet"),
    )


def _found(store: Store, manifest: Manifest) -> dict[str, Any]:
    metrics = json.loads(store.file(manifest, "metrics.json").read_text())
    accuracy = _estimate(metrics.get("accuracy"))
    if accuracy is None:
        raise DataError(f"report: {manifest.ref} has no accuracy in its metrics.json; evaluate its policy again.")
    passed = {int(k): _estimate(entry) for k, entry in (metrics.get("pass") or {}).items()}
    return {
        "accuracy": accuracy,
        "greedy": _estimate(metrics.get("greedy")),
        "pass_at": {k: estimate for k, estimate in passed.items() if estimate is not None},
        "majority": _estimate(metrics.get("majority")),
        "working": _estimate(metrics.get("working")),
        "response_tokens": _finite(metrics.get("response_tokens")),
        "truncated": _finite(metrics.get("truncated")),
        "outcomes": {name: int(count) for name, count in (metrics.get("outcomes") or {}).items()},
        "by_level": {level: float(value) for level, value in (metrics.get("by_level") or {}).items()},
        "problems": int(metrics["problems"]),
        "samples_per_problem": int(metrics["k"]),
    }


def _finite(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _estimate(entry: dict[str, float] | None) -> Estimate | None:
    value = _finite(entry.get("value")) if entry else None
    if entry is None or value is None:
        return None
    low, high = _finite(entry.get("low")), _finite(entry.get("high"))
    return Estimate(value, value if low is None else low, value if high is None else high)
