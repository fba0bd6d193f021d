"""The results of the evaluations of a policy."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tasks.errors import DataError
from tasks.statistics import Interval
from tasks.store.layout import ACCURACY_FILE, SAMPLES_FILE
from tasks.store.records import ArtifactRef, Manifest
from tasks.store.store import Store


def _known(value: Any) -> Any:
    """Return None for what is not a number, and an interval without ends with its value for both."""
    number = value.get("value") if isinstance(value, dict) else value
    if number is None or math.isnan(number):
        return None
    return value if value is number else dict.fromkeys(("low", "high"), number) | value


_Estimate = Annotated[Interval | None, BeforeValidator(_known)]
_Number = Annotated[float | None, BeforeValidator(_known)]


class Result(BaseModel):
    """Accuracies of a policy on one benchmark, or on average over several: the contents of metrics.json."""

    model_config = ConfigDict(frozen=True)

    accuracy: Annotated[Interval, BeforeValidator(_known)]
    """avg@k, as a share with its 95 % interval, as all of these."""
    greedy: _Estimate = None
    pass_at: dict[int, _Estimate] = Field(default_factory=dict, alias="pass")
    """The expected share of problems of which one of so many samples is correct; empty over several benchmarks."""
    majority: _Estimate = None
    """Share of problems of which most samples agree on the correct answer."""
    working: _Estimate = None
    """Share of the sampled responses that show working."""
    response_tokens: _Number = None
    truncated: _Number = None
    outcomes: dict[str, int] = Field(default_factory=dict)
    by_level: dict[str, float] = Field(default_factory=dict)
    problems: int
    samples_per_problem: int = Field(alias="k")
    """k of avg@k; 0 where benchmarks differ in it."""


class Evaluation(Result):
    """A policy on a benchmark."""

    benchmark: str
    prompts: ArtifactRef | None
    """The benchmark's problems."""
    evaluation: ArtifactRef
    samples: Path


class EvaluatedPolicy(Result):
    """A policy, with its averages over the benchmarks."""

    policy: ArtifactRef
    stage: int
    """Finished stages; 0 is the base policy."""
    updates: int
    evaluations: list[Evaluation]
    """Its evaluations, in the order of the settings."""

    @property
    def label(self) -> str:
        """``base`` or ``stage 3``."""
        return f"stage {self.stage}" if self.stage else "base"


def headline(samples_per_problem: int, benchmarks: int) -> str:
    """Return the name of the accuracy of a policy: ``avg@4``, or ``mean of 5 benchmarks``."""
    return f"mean of {benchmarks} benchmarks" if benchmarks > 1 else f"avg@{samples_per_problem}"


def read_evaluated(store: Store, manifests: Mapping[ArtifactRef, Manifest], ref: ArtifactRef) -> EvaluatedPolicy:
    """Read what an average says of its policy, or an evaluation, which stands for the average over it alone.

    Raises:
        DataError: it is something else.
    """
    manifest = manifests[ref]
    parents = manifest.parents.get("policy", [])
    if ref.kind not in ("average", "evaluation") or len(parents) != 1:
        raise DataError(f"report: {ref} is not the evaluation of one policy (its policies: {len(parents)}).")
    facts = manifests[parents[0]].facts
    evaluations = [
        {
            **_metrics(store, one),
            "benchmark": one.facts.get("benchmark", "held_out"),
            "prompts": next(iter(one.parents.get("prompts", ())), None),
            "evaluation": one.ref,
            "samples": store.file(one, SAMPLES_FILE),
        }
        for one in (manifests[each] for each in manifest.parents.get("evaluations", [ref]))
    ]
    own = {"policy": parents[0], "stage": facts.get("stage", 0), "updates": facts.get("updates", 0)}
    return EvaluatedPolicy.model_validate({**_metrics(store, manifest), **own, "evaluations": evaluations})


def _metrics(store: Store, manifest: Manifest) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads(store.file(manifest, ACCURACY_FILE).read_text())
    if _known(metrics.get("accuracy")) is None:
        raise DataError(f"report: {manifest.ref} has no accuracy in its {ACCURACY_FILE}; evaluate its policy again.")
    return metrics
