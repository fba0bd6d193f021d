"""Finished runs of a store: finds runs and artifacts for commands, and writes records by which runs can be repeated.

The record of a run holds its settings, code, packages, seed, machine and digests.
"""

import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import psutil

from tasks.errors import DataError, SettingsError
from tasks.formats import first_names
from tasks.process.provenance import commit, gpu_models
from tasks.settings import PolicySettings, PromptsSettings, RolloutSettings, RunSettings, VerifySettings
from tasks.settings.base import Settings, flat, names_that_differ
from tasks.store import ArtifactRef, Store
from tasks.store.layout import KINDS, RUNS, TRAINING_FILE, Kind
from tasks.store.lineage import Lineage, ancestry
from tasks.store.records import SCHEMA, Manifest
from tasks.store.tables import read_table

LATEST = "latest"
_CANDIDATES = 12
_FIXED: dict[str, type[Settings]] = {
    "policy": PolicySettings,
    "prompts": PromptsSettings,
    "rollout": RolloutSettings,
    "verify": VerifySettings,
}
"""Settings that the stages of a stored run keep when it is trained again."""


def find_reports(
    store: Store, seed: int | None = None, algorithm: str | None = None, or_none: bool = False
) -> list[Manifest]:
    """Return the manifests of the reports, those of the latest run first.

    Runs are ordered by their first report; of the reports of a run, the latest comes first.

    Raises:
        DataError: the store has no report of this seed and algorithm, and ``or_none`` is False.
    """
    reports = [
        manifest
        for manifest in store.manifests("report")
        if seed in (None, manifest.seed) and algorithm in (None, manifest.known_facts["algorithm"])
    ]
    if not reports and not or_none:
        filters = (("seed", seed), ("algorithm", algorithm))
        wanted = ", ".join(f"{name} {value}" for name, value in filters if value is not None)
        problem = f"no finished run{f' with {wanted}' if wanted else ''} in this store"
        raise DataError(f"{store.ref.uri}: {problem}. Finish such a run, or name another store, seed or algorithm.")
    finished = {run_key(report): report.timings.finished for report in reports}  # of each run's first report
    return sorted(reports, key=lambda report: -finished[run_key(report)])


def run_lineage(store: Store, report: Manifest) -> Lineage:
    """Return the lineage of a report, restricted to its evaluations and policies.

    Raises:
        ArtifactError: a policy or an evaluation of the run is missing.
    """
    lineage = ancestry(store, [report.ref], ("evaluations", "policy"))
    for error in lineage.missing.values():
        raise error
    return lineage


def find_retrainable(store: Store, settings: RunSettings, algorithm: str) -> Manifest:
    """Return the report of the latest finished run that a run with these settings can continue.

    Both runs have the same seed, base policy, prompts, rollouts and verifier, so that each of these settings holds for
    all stages, the stored ones too. ``algorithm`` is the preset of the stored run; empty for any.

    Raises:
        DataError: the store has no such run, or only runs whose rollouts were sampled inside a stage; or this code
            does not read the settings of the run.
        SettingsError: a setting differs from that of the stored run and cannot be changed.
    """
    reports = find_reports(store, settings.seed, algorithm or None)
    report = next((one for one in reports if one.settings.get("updates_per_rollout") is None), None)
    if report is None:
        raise DataError(
            f"{reports[0].ref}: this run with algorithm {reports[0].known_facts['algorithm']} and seed {settings.seed} "
            "sampled new rollouts inside its stages (workflows/grpo.py), by policies that are not stored. "
            "Name a run of workflows/mu_grpo.py with --algorithm and --seed, as in --algorithm mu_grpo."
        )
    stored = {
        name: section.parse_stored(report.settings[name], report.ref).result_values()
        for name, section in _FIXED.items()
    }
    old, new = flat(stored), flat({name: value for name, value in settings.result_values().items() if name in _FIXED})
    if differing := names_that_differ([new, old]):
        listed = "\n".join(f"{name}: got {new.get(name)!r}; the stored run has {old.get(name)!r}" for name in differing)
        raise SettingsError(
            f"{listed}\nA stored run keeps its {', '.join(_FIXED)}: give those of {report.ref}, and change optimize, "
            "evaluate or operation; or name another run with --algorithm and --seed."
        )
    return report


def check_training_set(store: Store, policy: Manifest, training: ArtifactRef) -> None:
    """Check that a stored policy was trained on prompts of a training set with the rows of this one.

    Raises:
        DataError: the rows differ, as after a change of a file with prompts, or because of the benchmarks, whose
            problems are left out.
    """
    prompts = store.manifest(store.manifest(policy.parents["rollouts"][0]).parents["prompts"][0])
    (stored,) = prompts.parents["training_set"]
    if stored != training:
        before, now = (read_table(folder / TRAINING_FILE) for folder in store.paths([stored, training]))
        if not before.equals(now):
            raise DataError(
                f"{policy.ref}: it was trained on prompts of {stored} ({before.num_rows} rows), but the settings "
                f"prompts and evaluate of this run give {training} ({now.num_rows} rows): the data of the prompts "
                "changed, or the benchmarks, whose problems are left out, are others. Restore the data, name the "
                "benchmarks of the stored run, or start a new run with workflows/mu_grpo.py."
            )


def trained_policies(store: Store, report: Manifest, stage: int | None = None) -> list[Manifest]:
    """Return the policies of a finished run, the base policy first.

    ``stage`` is the number, from 1, of the stage whose policy is the last one to return; None stands for all stages.

    Raises:
        ArtifactError: a policy or an evaluation of the run is missing.
        DataError: the run has no such stage.
    """
    run = run_lineage(store, report)
    policies = run.policies(max(run.evaluated_policies(report), key=lambda policy: policy.known_facts["stage"]))
    stages = len(policies) - 1
    if stage is not None and not 1 <= stage <= stages:
        allowed = f"1 to {stages}" if stages > 1 else "1"
        raise DataError(f"stage {stage}: the stored run has {stages}; allowed: {allowed}.")
    return policies if stage is None else policies[: stage + 1]


def find_artifact(store: Store, wanted: str, kind: Kind | None = None) -> ArtifactRef:
    """Return the artifact that ``kind/digest`` names, with an abbreviated digest or not; ``latest`` is the last policy.

    Raises:
        DataError: no artifact or more than one has this name (candidates are listed), or it is of another kind.
    """
    if kind and wanted != LATEST and not wanted.startswith(f"{kind}/"):
        raise DataError(f"{wanted!r}: names no {kind}; allowed: {kind}/digest, or {LATEST}.")
    if wanted == LATEST:
        # Workflows give a report its evaluations in the order of stages.
        return store.manifest(find_reports(store)[0].parents["evaluations"][-1]).parents["policy"][0]
    name = match_artifact([ref.folder for ref in store.refs(_artifact_kind(wanted))], wanted)
    return store.manifest(ArtifactRef.of(name)).ref


def match_artifact(names: Iterable[str], wanted: str) -> str:
    """Return the name that ``kind/digest``, with an abbreviated digest or not, matches among artifacts.

    Raises:
        DataError: no artifact or more than one matches; candidates are listed.
    """
    kind = _artifact_kind(wanted)
    candidates = sorted(name for name in names if name.startswith(f"{kind}/"))
    # Folders have 16 characters of a digest; a user may give all 64.
    matches = [name for name in candidates if name.startswith(wanted[: len(kind) + 17])]
    if len(matches) > 1:
        listed = first_names(matches, _CANDIDATES)
        raise DataError(f"{wanted!r}: names {len(matches)} artifacts: {listed}. Give more characters.")
    if not matches:
        listed = first_names(candidates, _CANDIDATES) if candidates else f"no {kind}"
        raise DataError(f"{wanted!r}: no such artifact in this store. There is {listed}.")
    return matches[0]


def _artifact_kind(wanted: str) -> Kind:
    kind, _, digest = wanted.partition("/")
    if kind not in KINDS or not digest:
        raise DataError(
            f"{wanted!r}: names no artifact; allowed: kind/digest, as in policy/0123abcd, with one of the kinds "
            f"{', '.join(KINDS)}; or {LATEST}, the last policy of the latest run."
        )
    return kind


def run_key(report: Manifest) -> str:
    """Return a key that is equal for all reports of the same run."""
    evaluations = [ref.digest for ref in report.parents.get("evaluations", ())]
    return json.dumps([report.settings, evaluations or report.digest], sort_keys=True)


def write_run_record(store: Store, report: ArtifactRef, settings: RunSettings) -> None:
    """Write the record of a run into its store.

    The record describes the machine of the task that ends the run; every artifact's manifest holds the packages, the
    commit and the GPUs of the task that made it.

    Raises:
        ArtifactError: an artifact of the run is missing, or the store cannot be written.
    """
    packages = (distribution.metadata for distribution in distributions())
    record = {
        "schema_version": SCHEMA,
        "settings": settings.model_dump(mode="json"),
        "seed": settings.seed,
        "commit": commit(),
        "packages": dict(sorted((metadata["Name"], metadata["Version"]) for metadata in packages if metadata["Name"])),
        "machine": _machine(),
        "report": report.digest,
        "stages": run_digests(store, report),
    }
    store.original.write(f"{RUNS}/{report.digest[:16]}.json", json.dumps(record, indent=1).encode())


def run_digests(store: Store, report: ArtifactRef) -> list[dict[str, Any]]:
    """Return the digests of a run, stage by stage; the first entry is the base policy."""
    manifest = store.manifest(report)
    run = run_lineage(store, manifest)
    evaluations = run.parents_of(manifest, "evaluations")
    return [
        {
            "stage": policy.known_facts["stage"],
            "policy": policy.digest,
            "code_version": f"{policy.task} {policy.code_version}",
            "rollouts": [ref.digest for ref in policy.parents.get("rollouts", [])],
            "verdicts": [ref.digest for ref in policy.parents.get("verdicts", [])],
            "evaluations": [ref.digest for ref in evaluation.parents.get("evaluations", [evaluation.ref])],
        }
        for policy, evaluation in zip(run.evaluated_policies(manifest), evaluations, strict=True)
    ]


def _machine() -> dict[str, Any]:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": gpu_models(),
    }
