"""Finished runs of a store: finds runs and artifacts for commands, and writes records by which runs can be repeated.

The record of a run holds its settings, code, packages, seed, machine and digests.
"""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import psutil

from tasks.errors import DamagedError, DataError
from tasks.formats import first_names
from tasks.process.provenance import commit
from tasks.settings import RunSettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import KINDS, RUNS, Kind
from tasks.store.lineage import Lineage, ancestry
from tasks.store.records import SCHEMA, Manifest

LATEST = "latest"
_FEWEST_CHARACTERS = 4
_CANDIDATES = 12
_OF_A_STAGE = {
    "prompts": ("prompts_per_stage", "arithmetic", "template", "chat"),
    "rollout": ("responses_per_prompt", "max_new_tokens", "temperature"),
    "verify": ("kind", "function"),
}
"""Settings that decide which prompts, responses and verdicts a stage has, by section."""


def find_reports(store: Store, seed: int | None = None, algorithm: str | None = None) -> list[Manifest]:
    """Return the manifests of the reports, the latest first.

    Raises:
        DataError: the store has no report of this seed and algorithm.
    """
    reports = [
        manifest
        for manifest in store.manifests("report")
        if seed in (None, manifest.seed) and algorithm in (None, manifest.known_facts["algorithm"])
    ]
    if not reports:
        filters = (("seed", seed), ("algorithm", algorithm))
        wanted = ", ".join(f"{name} {value}" for name, value in filters if value is not None)
        problem = f"no finished run{f' with {wanted}' if wanted else ''} in this store"
        raise DataError(f"{store.ref.uri}: {problem}. Run it, or name another.")
    return reports


def run_of(store: Store, report: Manifest) -> Lineage:
    """Return the lineage of a report, restricted to its evaluations and policies.

    Raises:
        ArtifactError: a policy or an evaluation of the run is missing.
    """
    lineage = ancestry(store, [report.ref], ("evaluations", "policy"))
    for reason in lineage.missing.values():
        raise DamagedError(reason)
    return lineage


def trained_policies(store: Store, algorithm: str, seed: int, stage: int | None = None) -> list[Manifest]:
    """Return the policies of the latest finished run of a preset, the base policy first.

    Args:
        store: the store of the run.
        algorithm: the preset; empty for any.
        seed: the seed of the run.
        stage: the stage, from 0, whose policy is the last one to return; None for all stages.

    Raises:
        DataError: the store has no such run, or the run has fewer stages.
    """
    report = find_reports(store, seed, algorithm or None)[0]
    run = run_of(store, report)
    policies = run.policies(max(run.evaluated_policies(report), key=lambda policy: policy.known_facts["stage"]))
    stages = len(policies) - 1
    if stage is not None and stage >= stages:
        allowed = f"0 to {stages - 1}" if stages > 1 else "0"
        raise DataError(f"stage {stage}: the stored run has {stages}; allowed: {allowed}.")
    return policies if stage is None else policies[: stage + 2]


def policies_to_retrain(
    store: Store, settings: RunSettings, algorithm: str, base: ArtifactRef, stage: int
) -> list[Manifest]:
    """Return the policies of a stored run up to the one after ``stage``, which will be trained again.

    Args:
        store: the store of the run.
        settings: settings of the new run. They must be those of the stored run as far as they decide which prompts,
            rollouts and verdicts the stage has.
        algorithm: the preset of the stored run; empty for any.
        base: the base policy of the new run.
        stage: the stage, from 0.

    Raises:
        DataError: the store has no such run, it generated inside of its stages, or these settings do not fit it.
    """
    policies = trained_policies(store, algorithm, settings.seed, stage)
    after = policies[-1]
    if after.task == "alternate":
        raise DataError(
            f"{store.ref.uri}: the latest finished run with seed {settings.seed} sampled its rollouts from weights "
            "inside of its stages, which cannot be trained again. Name a staged run, as by --algorithm mu_grpo."
        )
    if policies[0].ref != base:
        raise DataError(
            f"policy: these settings give {base}, but the stored run began with {policies[0].ref}; allowed: its policy."
        )
    rollouts, verdicts = (store.manifest(after.parents[kind][0]) for kind in ("rollouts", "verdicts"))
    prompts, new = store.manifest(rollouts.parents["prompts"][0]), settings.model_dump(mode="json")
    for section, manifest in (("prompts", prompts), ("rollout", rollouts), ("verify", verdicts)):
        for name in _OF_A_STAGE[section]:
            here, there = new[section].get(name), manifest.settings.get(name)
            if here != there:
                raise DataError(
                    f"{section}.{name}: {here}, but stage {stage + 1} of the stored run has {there}, and its rollouts "
                    f"and verdicts are used again; allowed: {there}."
                )
    return policies


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
    name = match_artifact([ref.folder for ref in store.refs(_kind_of(wanted))], wanted)
    return store.manifest(ArtifactRef.of(name)).ref


def match_artifact(names: Iterable[str], wanted: str) -> str:
    """Return the name that ``kind/digest``, with an abbreviated digest or not, matches among artifacts.

    Raises:
        DataError: no artifact or more than one matches; candidates are listed.
    """
    kind = _kind_of(wanted)
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


def _kind_of(wanted: str) -> Kind:
    kind, _, digest = wanted.partition("/")
    if kind not in KINDS or not digest:
        raise DataError(
            f"{wanted!r}: names no artifact; allowed: kind/digest, as in policy/0123abcd, with one of the kinds "
            f"{', '.join(KINDS)}; or {LATEST}, the last policy of the latest run."
        )
    if len(digest) < _FEWEST_CHARACTERS:
        raise DataError(f"{wanted!r}: give at least {_FEWEST_CHARACTERS} characters of the digest.")
    return kind


def run_key(report: Manifest) -> str:
    """Return a key that is equal for all reports of the same run."""
    evaluations = [ref.digest for ref in report.parents.get("evaluations", ())]
    return json.dumps([report.settings, evaluations or report.digest], sort_keys=True)


def write_reproducibility(store: Store, report: ArtifactRef, settings: RunSettings) -> Path:
    """Write the record of a run into its store; return its path on this machine.

    The record describes the machine of the task that ends the run; every artifact's manifest holds the packages and the
    commit of the task that made it.

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
    return store.write_note(f"{RUNS}/{report.digest[:16]}.json", json.dumps(record, indent=1))


def run_digests(store: Store, report: ArtifactRef) -> list[dict[str, Any]]:
    """Return the digests of a run, stage by stage; the first entry is the base policy."""
    manifest = store.manifest(report)
    run = run_of(store, manifest)
    evaluations = run.parents_of(manifest, "evaluations")
    stages = {
        policy.digest: {
            "stage": policy.known_facts["stage"],
            "policy": policy.digest,
            "code_version": f"{policy.task} {policy.code_version}",
            "rollouts": [ref.digest for ref in policy.parents.get("rollouts", [])],
            "verdicts": [ref.digest for ref in policy.parents.get("verdicts", [])],
            "evaluations": [ref.digest for ref in evaluation.parents.get("evaluations", [evaluation.ref])],
        }
        for policy, evaluation in zip(run.evaluated_policies(manifest), evaluations, strict=True)
    }
    return sorted(stages.values(), key=lambda stage: stage["stage"])


@cache
def _machine() -> dict[str, Any]:
    """Return a description of this machine; GPUs with memory and driver, as nvidia-smi prints them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    has_gpus = shutil.which("nvidia-smi") is not None
    gpus = subprocess.run(query, capture_output=True, text=True, check=False).stdout if has_gpus else ""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": gpus.splitlines(),
    }
