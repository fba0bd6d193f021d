"""The record of a finished run, by which it can be made again: settings, code, packages, seed, machine, digests."""

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

from tasks.settings import RunSettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import RUNS
from tasks.store.provenance import commit
from tasks.store.records import SCHEMA
from tasks.stored.reports import run_of


def write_reproducibility(store: Store, report: ArtifactRef, settings: RunSettings) -> Path:
    """Write the reproducibility manifest of a run into its store; return its path on this machine.

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
    """Return the digests of a run, stage by stage; the first entry is the base policy."""
    manifest = store.manifest(report)
    run = run_of(store, manifest)
    stages = {
        policy.digest: {
            "stage": policy.known_facts["stage"],
            "policy": policy.digest,
            "code_version": f"{policy.task} {policy.code_version}",
            "rollouts": [ref.digest for ref in policy.parents.get("rollouts", [])],
            "verdicts": [ref.digest for ref in policy.parents.get("verdicts", [])],
            "evaluations": [ref.digest for ref in evaluation.parents.get("evaluations", [evaluation.ref])],
        }
        for policy, evaluation in zip(run.evaluated(manifest), run.parents_of(manifest, "evaluations"), strict=True)
    }
    return sorted(stages.values(), key=lambda stage: stage["stage"])


@cache
def installed() -> dict[str, str]:
    """Return every installed distribution and its version."""
    found = [one.metadata for one in distributions()]  # read from its file every time that it is asked for
    return dict(sorted((one["Name"], one["Version"]) for one in found if one["Name"]))


@cache
def machine() -> dict[str, Any]:
    """Return a description of the machine of this process; GPUs with memory and driver, as nvidia-smi names them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    has_gpus = shutil.which("nvidia-smi") is not None
    asked = subprocess.run(query, capture_output=True, text=True, check=False).stdout if has_gpus else ""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": asked.splitlines(),
    }
