"""What somebody needs to make a run again: settings, code, packages, seed, machine, and the digests of every stage."""

import json
import os
import platform
import shutil
import subprocess
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import psutil

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.provenance import commit
from tasks.artifacts.records import SCHEMA
from tasks.settings import RunSettings
from tasks.stored.reports import RUNS


def write_reproducibility(store: Store, report: ArtifactRef, settings: RunSettings) -> Path:
    """Writes the reproducibility manifest of a run into its store; returns its place on this machine.

    The machine is that of the task that ends the run; every artifact's manifest holds the packages and the commit of
    the task that made it.

    Raises:
        ArtifactError: an artifact of the run is missing, or the store cannot be written.
    """
    manifest = {
        "schema_version": SCHEMA,
        "settings": settings.model_dump(mode="json"),
        "seed": settings.seed,
        "commit": commit(),
        "packages": installed(),
        "machine": machine(),
        "report": report.digest,
        "stages": chain(store, report),
    }
    return store.write_note(f"{RUNS}/{report.digest[:16]}.json", json.dumps(manifest, indent=1))


def chain(store: Store, report: ArtifactRef) -> list[dict[str, Any]]:
    """The digests of a run, stage by stage; the first entry is the base policy."""
    evaluations = {
        store.manifest(ref).parents["policy"][0].digest: ref for ref in store.manifest(report).parents["evaluations"]
    }
    stages = []
    for digest, evaluation in evaluations.items():
        policy = store.manifest(ArtifactRef(kind="policy", digest=digest))
        stages.append(
            {
                "stage": policy.facts["stage"],
                "policy": digest,
                "code_version": f"{policy.task} {policy.code_version}",
                "rollouts": [ref.digest for ref in policy.parents.get("rollouts", [])],
                "verdicts": [ref.digest for ref in policy.parents.get("verdicts", [])],
                "evaluations": [
                    ref.digest for ref in store.manifest(evaluation).parents.get("evaluations", [evaluation])
                ],
            }
        )
    return sorted(stages, key=lambda stage: stage["stage"])


@cache
def installed() -> dict[str, str]:
    """Every installed distribution and its version."""
    found = [one.metadata for one in distributions()]  # read from its file every time that it is asked for
    return dict(sorted((one["Name"], one["Version"]) for one in found if one["Name"]))


@cache
def machine() -> dict[str, Any]:
    """The machine that this process runs on."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": _gpus(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _gpus() -> list[str]:
    """Name, memory and driver of every GPU; empty without nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
