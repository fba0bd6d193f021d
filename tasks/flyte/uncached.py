"""The uncached tasks: they check settings and open a store before the steps of a workflow, and sum up their results."""

import os
import shlex
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from filelock import FileLock
from flytekit.core.local_cache import LocalTaskCache
from flytekit.models.literals import LiteralMap

from tasks.data.sources import policy_fingerprint, source_fingerprint, with_commit, with_commits
from tasks.errors import SettingsError
from tasks.flyte.attempts import in_pod
from tasks.flyte.decorators import uncached, uncached_with_hub, unpack_options
from tasks.flyte.inputs import (
    AlternateInputs,
    AnyInputs,
    Artifact,
    BenchmarkInputs,
    EvaluationInputs,
    Keyed,
    MeanInputs,
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
from tasks.process.logs import logger
from tasks.process.provenance import process
from tasks.report.summary import PolicyAccuracies, RescoredRun, RunSummary, summarise, work_of_execution
from tasks.settings import (
    ArithmeticSettings,
    EvaluateSettings,
    Given,
    OperationSettings,
    PromptsSettings,
    RunSettings,
    VerifySettings,
)
from tasks.settings.base import in_bucket
from tasks.settings.evaluate import Measurement, measurements
from tasks.settings.experiment import check_one_benchmark
from tasks.store import Store, StoreRef
from tasks.store.files import disk_errors, sweep
from tasks.store.layout import LEASES, PAGE_FILE
from tasks.store.work import work_key
from tasks.stored.check import check_bucket
from tasks.stored.runs import (
    check_training_set,
    find_artifact,
    find_reports,
    find_retrainable,
    trained_policies,
    write_run_record,
)
from tasks.tracking import check_installed

_held: dict[Path, object] = {}
"""Locks that this process holds until it ends, by store."""


def open_store(uri: str, create: bool = True) -> Store:
    """Return the store of a run; in a pod only one in a bucket.

    Raises:
        SettingsError: the store of a pod is a folder, which would end with the pod.
        ArtifactError: see ``Store.open``; or the folder of a local run's store, or of its copy, cannot be written.
    """
    if in_pod() and not in_bucket(uri):
        raise SettingsError(f"store: got {uri!r}, a folder, which no other pod reaches; allowed: s3://bucket/prefix.")
    store = Store.open(uri, create)
    if not in_pod():
        _hold_lock(store)
    return store


def _turn_off_on_failure(call: Callable[..., LiteralMap | None]) -> Callable[..., LiteralMap | None]:
    """Make a call of Flyte's local cache turn this cache off when it fails; the store finds finished steps too."""

    def called(*entry: Any) -> LiteralMap | None:
        try:
            return call(*entry)
        except Exception as error:  # Of the disk, or of the database in which Flyte keeps its cache.
            if os.environ.get("FLYTE_LOCAL_CACHE_ENABLED") != "false":
                logger().warning("~/.flyte cannot be used: %s. The run goes on without Flyte's cache of tasks", error)
            os.environ["FLYTE_LOCAL_CACHE_ENABLED"] = "false"
            return None

    return called


for _name in ("get", "set"):
    setattr(LocalTaskCache, _name, staticmethod(_turn_off_on_failure(getattr(LocalTaskCache, _name))))


def _hold_lock(store: Store) -> None:
    """Show ``mu-grpo gc`` that a local run goes on, also between two steps, as long as this process lives."""
    if store.root not in _held:
        path = store.root / LEASES / f"{process().name}.lock"
        with disk_errors(store.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            _held[store.root] = FileLock(path).acquire()


class OpenRun(NamedTuple):
    """A run with checked settings: its store, and the inputs of each of its steps."""

    store: StoreHandle
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


@uncached_with_hub
@unpack_options()
def open_run(
    updates_per_rollout: int,
    arm: str = "",
    from_stage: int = 1,
    algorithm: str = "",
    **options: Unpack[RunOptions],
) -> OpenRun:
    """Resolve and check the settings of a run, and open its store.

    ``updates_per_rollout`` 0 stands for all updates of a stage. ``arm`` holds overrides that are applied before the
    user's. Stages before ``from_stage`` belong to the stored run that ``find_stage`` finds for ``algorithm``.

    Raises:
        SettingsError: a setting is wrong; nothing has run yet.
        FetchError: a data set on the hub names no commit, and its latest one could not be looked up; or a source on S3
            could not be listed.
        DataError: there is no stored run to train further.
    """
    values: dict[str, Any] = {
        name: value.model_dump(mode="json") if isinstance(value, Given) else value for name, value in options.items()
    }
    overrides = values.pop("overrides")
    settings = RunSettings.merged({**values, "updates_per_rollout": updates_per_rollout or None}, f"{arm} {overrides}")
    check_installed(settings.operation.tracker)
    if not updates_per_rollout and not arm and settings.updates_per_rollout is not None:
        raise SettingsError(
            f"updates_per_rollout: got {settings.updates_per_rollout} in a workflow that generates once per stage; "
            "allowed: null, or workflows/grpo.py, which generates again after every updates_per_rollout updates."
        )
    if arm:
        check_one_benchmark(settings)
    if arm and RunSettings.merged(settings.model_dump(mode="json"), f"{arm} seed={values['seed']}") != settings:
        raise SettingsError(
            f"overrides: {overrides!r} in the laboratory replaces the seed or a setting of the arm {arm!r}, which "
            "would keep its name in the comparison; allowed: other settings."
        )
    mirror = settings.operation.mirror
    settings = settings.model_copy(
        update={
            "evaluate": with_commits(settings.evaluate, mirror),
            "prompts": with_commit(settings.prompts, "prompts.source", mirror),
        }
    )
    planned = settings.measurements
    opened = open_store(settings.store)
    sweep(opened.root)
    verdicts = ""
    if from_stage != 1:  # The verdicts descend from all that the stored run made before.
        after = trained_policies(opened, find_retrainable(opened, settings, algorithm), from_stage)[-1]
        verdicts = after.parents["verdicts"][0].digest
    operation = settings.named_operation(verdicts)
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

    def inputs(kind: type[AnyInputs], **fields: Any) -> AnyInputs:
        """Return the record of a step from its own fields and the shared values that it has a field for."""
        return kind(**fields, **{name: value for name, value in shared.items() if name in kind.model_fields})

    return OpenRun(
        store=store,
        **_evaluation_inputs(store, seed, planned, operation),
        policy=inputs(
            PolicyInputs,
            settings=settings.policy,
            arithmetic=settings.prompts.arithmetic or ArithmeticSettings(),
            source=policy_fingerprint(settings.policy),
            chat=settings.chats,
        ),
        training_set=inputs(
            TrainingSetInputs,
            settings=settings.prompts.training_set,
            prompts=settings.prompts,
            source=source_fingerprint(settings.prompts.rows, mirror),
        ),
        prompts=inputs(PromptsInputs, settings=settings.prompts),
        rollout=inputs(RolloutInputs, settings=settings.rollout),
        verify=inputs(VerifyInputs, settings=settings.verify),
        optimize=inputs(OptimizeInputs, settings=settings.optimize),
        alternate=inputs(AlternateInputs),
        study=inputs(StudyInputs, evaluate=[measurement.evaluation for measurement in planned]),
        report=inputs(ReportInputs, settings=settings, trained_from=from_stage - 1),
        run=inputs(RunInputs, settings=settings, trained_from=from_stage - 1, started=process().started),
    )


def _evaluation_inputs(
    store: StoreRef, seed: int, planned: Sequence[Measurement], operation: OperationSettings
) -> dict[str, Any]:
    """Return the inputs of the steps that evaluate a policy, by their names in ``OpenRun``."""
    shared: dict[str, Any] = {"store": store, "operation": operation}
    benchmarks = [
        BenchmarkInputs(
            **shared,
            settings=measurement.benchmark,
            verify=measurement.verify,
            source=source_fingerprint(measurement.benchmark.source, operation.mirror),
        )
        for measurement in planned
    ]
    evaluations = [
        EvaluationInputs(**shared, seed=seed, settings=measurement.evaluation, verify=measurement.verify)
        for measurement in planned
    ]
    return {"benchmarks": benchmarks, "evaluations": evaluations, "mean": MeanInputs(store=store, seed=seed)}


@uncached
def seed_of_week(kickoff: datetime) -> int:
    """Return the seed of an ISO week, such as 202647, so that two starts in one week make one run."""
    year, week, _ = kickoff.isocalendar()
    return 100 * year + week


@uncached
def close_run(inputs: RunInputs, report: Artifact) -> RunSummary:
    """End a run: write its record, and return its summary with the work of this execution and the next commands."""
    opened = Store(inputs.store)
    check_bucket(opened, [report])
    write_run_record(opened, report, inputs.settings)
    uri = shlex.quote(opened.ref.uri)
    commands = [f"mu-grpo inspect {report} --store {uri}"]
    if len(opened.refs("report")) > 1:
        commands.append(f"mu-grpo compare --store {uri}")
    summary = summarise(opened, report, commands)
    execution = work_of_execution(opened, report, inputs.started)
    # The local copy of a bucket's file is inside a pod, where users cannot read it.
    page = f"{opened.ref.uri}/{report.folder}/{PAGE_FILE}" if opened.remote else summary.report
    return summary.model_copy(update={"execution": execution, "report": page})


class StoredStage(NamedTuple):
    """A stage of a stored run."""

    policies: list[Artifact]
    """The base policy and the policies after the earlier stages; the last one sampled the rollouts."""
    rollouts: list[Artifact]
    verdicts: Artifact


class OpenRescore(NamedTuple):
    """The stages of a stored run, and the inputs of a new verifier of their rollouts."""

    verify: Keyed[VerifyInputs]
    stages: list[int]
    """Numbers that count from 0."""
    rollouts: list[list[Artifact]]
    """The rollouts of every stage."""
    verdicts: list[Artifact]
    """The verdicts that the run stored."""


@uncached
def open_rescore(store: str, verify: VerifySettings, seed: int, algorithm: str) -> OpenRescore:
    """Find the stages of the latest finished run of an algorithm and a seed.

    Raises:
        SettingsError: a verifier of programs for a run of mathematics, or the other way round.
    """
    opened = open_store(store, create=False)
    report = find_reports(opened, seed, algorithm or None)[0]
    stored = report.settings["verify"]["kind"]
    if {stored, verify.kind} == {"math", "code"}:
        raise SettingsError(f"verify.kind: {verify.kind} with answers of {report.ref}; allowed: {stored} or function.")
    trained = trained_policies(opened, report)[1:]
    return OpenRescore(
        verify=VerifyInputs(store=opened.ref, seed=seed, settings=verify.renewed()),
        stages=list(range(len(trained))),
        rollouts=[policy.parents["rollouts"] for policy in trained],
        verdicts=[policy.parents["verdicts"][0] for policy in trained],
    )


@uncached
def find_stage(inputs: RunInputs, training: Artifact, algorithm: str) -> StoredStage:
    """Find stage ``trained_from`` of the latest finished run that can be trained again; see ``find_retrainable``.

    Raises:
        DataError: the stage was trained on prompts of another training set than ``training``, that of this run.
    """
    store = Store(inputs.store)
    report = find_retrainable(store, inputs.settings, algorithm)
    *before, after = trained_policies(store, report, inputs.trained_from + 1)
    check_training_set(store, after, training)
    logger().info("retrain: from stage %d of %s (%s)", len(before), report.ref, report.known_facts["algorithm"])
    return StoredStage([policy.ref for policy in before], after.parents["rollouts"], after.parents["verdicts"][0])


class OpenEvaluation(NamedTuple):
    """A stored policy, and the inputs of the steps that evaluate it; see ``OpenRun``."""

    policy: Artifact
    benchmarks: list[Keyed[BenchmarkInputs]]
    evaluations: list[Keyed[EvaluationInputs]]
    mean: Keyed[MeanInputs]


@uncached_with_hub
def open_evaluation(
    store: str,
    policy: str,
    prompts: Given[PromptsSettings],
    evaluate: Given[EvaluateSettings],
    verify: VerifySettings,
    operation: OperationSettings,
    seed: int,
) -> OpenEvaluation:
    """Find a stored policy, as ``policy/0123abcd`` or ``latest``, and resolve the benchmarks.

    Raises:
        SettingsError: a field of ``prompts`` or ``evaluate`` is missing or wrong.
        FetchError: the commit of a data set could not be looked up, or a source on S3 could not be listed.
        DataError: the store has no such policy.
    """
    check_installed(operation.tracker)
    source = PromptsSettings.parse(prompts.model_dump(mode="json"))
    chosen = with_commits(EvaluateSettings.parse(evaluate.model_dump(mode="json")), operation.mirror)
    opened = open_store(store, create=False)
    ref = find_artifact(opened, policy, "policy")
    verify = verify.renewed()
    name = work_key("evaluation", "", [ref, source, chosen, verify, seed])
    operation = operation.named(f"evaluation-{ref.digest[:8]}-{name[:8]}")
    planned = measurements(chosen, source, verify, chosen.engine)
    return OpenEvaluation(policy=ref, **_evaluation_inputs(opened.ref, seed, planned, operation))


@uncached
def close_evaluation(inputs: Keyed[MeanInputs], average: Artifact) -> PolicyAccuracies:
    """Return the accuracies of a policy."""
    check_bucket(store := Store(inputs.store), [average])
    return PolicyAccuracies.of(store, average)


@uncached
def compare_verdicts(inputs: Keyed[VerifyInputs], before: list[Artifact], after: list[Artifact]) -> RescoredRun:
    """Return the differences between the stored verdicts and the new ones."""
    check_bucket(store := Store(inputs.store), [*before, *after])
    return RescoredRun.of(store, before, after)
