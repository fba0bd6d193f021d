"""The doors at both ends of a run; neither is cached."""

from datetime import datetime
from typing import NamedTuple

from tasks.artifacts import Store
from tasks.artifacts.provenance import process
from tasks.errors import SettingsError
from tasks.platform import Artifact, StoreHandle, always
from tasks.prompts.sources import fingerprints, prompts_with_commit, source_fingerprint, with_commits
from tasks.report.summary import RunSummary
from tasks.run.sources import fingerprint
from tasks.settings import (
    ArithmeticSettings,
    BenchmarkSettings,
    EvaluateSettings,
    EvaluationSettings,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    RunSettings,
    TrainingSetSettings,
    VerifySettings,
)
from tasks.tracking.trackers import check_installed


class OpenRun(NamedTuple):
    """A run's settings, checked together and with overrides applied, its store, and what it reads from outside."""

    store: StoreHandle
    seed: int
    policy: PolicySettings
    policy_source: str
    prompts: PromptsSettings
    training_set: TrainingSetSettings
    training_source: str
    arithmetic: ArithmeticSettings
    chat: bool
    """Some prompts go through the chat template of the policy's tokenizer."""
    rollout: RolloutSettings
    verify: VerifySettings
    optimize: OptimizeSettings
    benchmarks: list[BenchmarkSettings]
    benchmark_sources: list[str]
    evaluations: list[EvaluationSettings]
    """Of every benchmark, as are its verifier's settings."""
    verifiers: list[VerifySettings]
    operation: OperationSettings
    updates_per_rollout: int
    settings: RunSettings
    """All of the above as one."""
    started: float
    """Unix seconds at which the execution's first process started."""


@always
def open_run(
    store: str,
    seed: int,
    policy: PolicySettings,
    prompts: PromptsSettings,
    rollout: RolloutSettings,
    verify: VerifySettings,
    optimize: OptimizeSettings,
    evaluate: EvaluateSettings,
    updates_per_rollout: int,
    overrides: str,
    operation: OperationSettings = OperationSettings(),  # noqa: B008 - settings are immutable
    arm: str = "",
) -> OpenRun:
    """Resolves and checks the settings of a run, and opens its store.

    ``updates_per_rollout`` 0 stands for all updates of a stage; ``arm`` holds overrides that come before the user's.

    Raises:
        SettingsError: what is wrong, before anything runs.
        DataError: the commit of a benchmark without one could not be looked up.
    """
    settings = RunSettings.parse(
        {
            "store": store,
            "seed": seed,
            "policy": policy.model_dump(mode="json"),
            "prompts": prompts.model_dump(mode="json"),
            "rollout": rollout.model_dump(mode="json"),
            "verify": verify.model_dump(mode="json"),
            "optimize": optimize.model_dump(mode="json"),
            "evaluate": evaluate.model_dump(mode="json"),
            "operation": operation.model_dump(mode="json"),
            "updates_per_rollout": updates_per_rollout or None,
        }
    ).override(f"{arm} {overrides}")
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
    return OpenRun(
        store=opened.ref,
        seed=settings.seed,
        policy=settings.policy,
        policy_source=fingerprint(settings.policy.path),
        prompts=settings.prompts,
        training_set=settings.prompts.training_set,
        training_source=source_fingerprint(settings.prompts.rows, mirror),
        arithmetic=settings.prompts.arithmetic or ArithmeticSettings(),
        chat=settings.chats,
        rollout=settings.rollout,
        verify=settings.verify,
        optimize=settings.optimize,
        benchmarks=[one.benchmark for one in measured],
        benchmark_sources=fingerprints(measured, mirror),
        evaluations=[one.evaluation for one in measured],
        verifiers=[one.verify for one in measured],
        operation=operation,
        updates_per_rollout=settings.mu,
        settings=settings,
        started=process().started,
    )


@always
def seed_of_week(kickoff: datetime) -> int:
    """A seed per ISO week, as 202647: what starts twice in a week is one run, and finds what it has done."""
    year, week, _ = kickoff.isocalendar()
    return 100 * year + week


@always
def close_run(store: StoreHandle, report: Artifact, settings: RunSettings, started: float) -> RunSummary:
    """The end of a run: its reproducibility manifest, a short table, what this execution did, and what to do next."""
    from tasks.report.summary import execution_since, summarise
    from tasks.run.reproducibility import write_reproducibility

    opened = Store(store)
    write_reproducibility(opened, report, settings)
    summary = summarise(opened, report, [f"mu-grpo inspect --store {opened.ref.uri}", "make compare"])
    return summary.model_copy(update={"execution": execution_since(opened, report, started)})
