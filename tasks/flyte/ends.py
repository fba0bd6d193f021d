"""Tasks without a cache at the beginning and the end of workflows: settings and stored runs in, summaries out."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, Unpack

from tasks.data.sources import prompts_with_commit, source_fingerprint, with_commits
from tasks.errors import SettingsError
from tasks.flyte.decorators import uncached, unpack_options
from tasks.flyte.inputs import (
    AlternateInputs,
    Artifact,
    BenchmarkInputs,
    EvaluationInputs,
    Keyed,
    MeanInputs,
    One,
    OptimizeInputs,
    PolicyInputs,
    PromptsInputs,
    ReportInputs,
    RolloutInputs,
    RunInputs,
    RunOptions,
    StoreHandle,
    StudyInputs,
    TrainingSetInputs,
    VerifyInputs,
)
from tasks.process.provenance import process
from tasks.report.summary import RunSummary
from tasks.settings import (
    ArithmeticSettings,
    EvaluateSettings,
    Given,
    OperationSettings,
    PromptsSettings,
    RunSettings,
    VerifySettings,
)
from tasks.settings.evaluate import Measure, measures
from tasks.store import Store, StoreRef
from tasks.store.fetch import fingerprint
from tasks.stored.results import EvaluatedPolicy, RescoredRun
from tasks.tracking import check_installed


class OpenRun(NamedTuple):
    """A run with checked settings: its store, and the inputs of each step."""

    store: StoreHandle
    seed: int
    policy: Keyed[PolicyInputs]
    benchmarks: list[Keyed[BenchmarkInputs]]
    training_set: Keyed[TrainingSetInputs]
    prompts: Keyed[PromptsInputs]
    rollout: Keyed[RolloutInputs]
    verify: Keyed[VerifyInputs]
    optimize: Keyed[OptimizeInputs]
    alternate: Keyed[AlternateInputs]
    study: Keyed[StudyInputs]
    evaluations: list[Keyed[EvaluationInputs]]
    """Inputs of the evaluations, in the order of the benchmarks."""
    mean: Keyed[MeanInputs]
    report: Keyed[ReportInputs]
    run: RunInputs


@uncached
@unpack_options()
def open_run(updates_per_rollout: int, arm: str = "", trained_from: int = 0, **options: Unpack[RunOptions]) -> OpenRun:
    """Resolve and check the settings of a run, and open its store.

    ``updates_per_rollout`` 0 stands for all updates of a stage. Overrides in ``arm`` are applied before the user's.
    Stages before ``trained_from`` belong to another run.

    Raises:
        SettingsError: a setting is wrong; nothing has run yet.
        DataError: the commit of a data set could not be looked up.
    """
    values: dict[str, Any] = {
        name: one.model_dump(mode="json") if isinstance(one, Given) else one for name, one in options.items()
    }
    overrides = values.pop("overrides")
    settings = RunSettings.merged({**values, "updates_per_rollout": updates_per_rollout or None}, f"{arm} {overrides}")
    check_installed(settings.operation.tracker)
    if arm and len(settings.evaluate.benchmarks) > 1:
        raise SettingsError(
            f"evaluate.benchmarks: {len(settings.evaluate.benchmarks)} in the laboratory, whose runs are compared "
            "problem by problem; allowed: one."
        )
    operation, mirror = settings.named_operation, settings.operation.mirror
    settings = settings.model_copy(
        update={
            "evaluate": with_commits(settings.evaluate, mirror),
            "prompts": prompts_with_commit(settings.prompts, mirror),
        }
    )
    measured = settings.measures
    opened = Store.open(settings.store)
    opened.sweep()
    store, seed = opened.ref, settings.seed
    shared: dict[str, Any] = {
        "store": store,
        "seed": seed,
        "rollout": settings.rollout,
        "verify": settings.verify,
        "optimize": settings.optimize,
        "updates_per_rollout": settings.mu,
        "operation": operation,
    }

    def of(kind: type[One], **own: Any) -> One:
        """Make the inputs of a step: its own fields, and the shared ones that it has."""
        return kind(**own, **{name: value for name, value in shared.items() if name in kind.model_fields})

    return OpenRun(
        store=store,
        seed=seed,
        **_measurements(store, seed, measured, operation),
        policy=of(
            PolicyInputs,
            settings=settings.policy,
            arithmetic=settings.prompts.arithmetic or ArithmeticSettings(),
            source=fingerprint(settings.policy.path),
            chat=settings.chats,
        ),
        training_set=of(
            TrainingSetInputs,
            settings=settings.prompts.training_set,
            prompts=settings.prompts,
            source=source_fingerprint(settings.prompts.rows, mirror),
        ),
        prompts=of(PromptsInputs, settings=settings.prompts),
        rollout=of(RolloutInputs, settings=settings.rollout),
        verify=of(VerifyInputs, settings=settings.verify),
        optimize=of(OptimizeInputs, settings=settings.optimize),
        alternate=of(AlternateInputs),
        study=of(StudyInputs, evaluate=[one.evaluation for one in measured]),
        report=of(ReportInputs, settings=settings, trained_from=trained_from),
        run=of(RunInputs, settings=settings, trained_from=trained_from, started=process().started),
    )


def _measurements(
    store: StoreRef, seed: int, measured: Sequence[Measure], operation: OperationSettings
) -> dict[str, Any]:
    """Return the inputs of the steps that evaluate a policy, by their names in ``OpenRun``.

    Raises:
        DataError: the source of a benchmark is missing.
    """
    shared: dict[str, Any] = {"store": store, "operation": operation}
    benchmarks = [
        BenchmarkInputs(
            **shared,
            settings=one.benchmark,
            verify=one.verify,
            source=source_fingerprint(one.benchmark.source, operation.mirror),
        )
        for one in measured
    ]
    evaluations = [
        EvaluationInputs(**shared, seed=seed, settings=one.evaluation, verify=one.verify) for one in measured
    ]
    return {"benchmarks": benchmarks, "evaluations": evaluations, "mean": MeanInputs(store=store, seed=seed)}


@uncached
def seed_of_week(kickoff: datetime) -> int:
    """Return a seed for an ISO week, such as 202647, so that all starts in a week are the same run."""
    year, week, _ = kickoff.isocalendar()
    return 100 * year + week


@uncached
def close_run(inputs: RunInputs, report: Artifact) -> RunSummary:
    """Write the record of a run; return its table, the work that was done, and the next commands."""
    from tasks.report.summary import execution_since, summarise
    from tasks.store.layout import PAGE_FILE
    from tasks.stored.runs import write_reproducibility

    opened = Store(inputs.store)
    write_reproducibility(opened, report, inputs.settings)
    place = shlex.quote(opened.ref.uri)
    commands = [f"mu-grpo inspect {report} --store {place}"]
    if len(opened.refs("report")) > 1:
        commands.append(f"mu-grpo compare --store {place}")
    summary = summarise(opened, report, commands)
    done = execution_since(opened, report, inputs.started)
    # For a store on S3 the local copy is in a pod, which users cannot open.
    page = f"{opened.ref.uri}/{report.folder}/{PAGE_FILE}" if opened.remote else summary.report
    return summary.model_copy(update={"execution": done, "report": page})


class FoundStage(NamedTuple):
    """A stage of a stored run."""

    policies: list[Artifact]
    """The base policy and the policies of the earlier stages; the last one sampled the rollouts."""
    rollouts: list[Artifact]
    verdicts: Artifact


class OpenRescore(NamedTuple):
    """The stages of a stored run, and the inputs of another verifier."""

    verify: Keyed[VerifyInputs]
    stages: list[int]
    """Numbers of the stages, from 0."""
    rollouts: list[list[Artifact]]
    """Rollouts of each stage."""
    verdicts: list[Artifact]
    """Stored verdicts of each stage."""


@uncached
def open_rescore(store: str, verify: VerifySettings, seed: int, algorithm: str) -> OpenRescore:
    """Find the stages of the latest finished run of an algorithm and a seed."""
    from tasks.stored.runs import trained_policies

    opened = Store.open(store, create=False)
    trained = trained_policies(opened, algorithm, seed)[1:]
    return OpenRescore(
        verify=VerifyInputs(store=opened.ref, seed=seed, settings=verify),
        stages=list(range(len(trained))),
        rollouts=[policy.parents["rollouts"] for policy in trained],
        verdicts=[policy.parents["verdicts"][0] for policy in trained],
    )


@uncached
def find_stage(store: StoreHandle, seed: int, algorithm: str, stage: int) -> FoundStage:
    """Find a stage of the latest finished run of an algorithm and a seed; ``stage`` counts from 0."""
    from tasks.stored.runs import trained_policies

    *before, after = trained_policies(Store(store), algorithm, seed, stage)
    return FoundStage([policy.ref for policy in before], after.parents["rollouts"], after.parents["verdicts"][0])


class OpenEvaluation(NamedTuple):
    """A stored policy, and the inputs of the steps that evaluate it; see ``OpenRun``."""

    policy: Artifact
    benchmarks: list[Keyed[BenchmarkInputs]]
    evaluations: list[Keyed[EvaluationInputs]]
    mean: Keyed[MeanInputs]


@uncached
def open_evaluation(
    store: str,
    policy: str,
    prompts: PromptsSettings,
    evaluate: EvaluateSettings,
    verify: VerifySettings,
    operation: OperationSettings,
    seed: int,
) -> OpenEvaluation:
    """Find a stored policy, as ``policy/0123abcd`` or ``latest``, and resolve the benchmarks."""
    from tasks.stored.runs import find_artifact

    opened = Store.open(store, create=False)
    found = find_artifact(opened, policy, "policy")
    measured = measures(with_commits(evaluate, operation.mirror), prompts, verify, evaluate.engine)
    return OpenEvaluation(policy=found, **_measurements(opened.ref, seed, measured, operation))


@uncached
def close_evaluation(inputs: Keyed[MeanInputs], average: Artifact) -> EvaluatedPolicy:
    """Return the accuracies of a policy."""
    from tasks.stored.results import describe_evaluation

    return describe_evaluation(Store(inputs.store), average)


@uncached
def compare_verdicts(inputs: Keyed[VerifyInputs], before: list[Artifact], after: list[Artifact]) -> RescoredRun:
    """Return how the new verdicts differ from the stored ones."""
    from tasks.stored.results import compare_verdicts as compare

    return compare(Store(inputs.store), before, after)
