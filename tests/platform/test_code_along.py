"""``pyflyte run --remote`` brings code along: all of it is what a task runs, and a part of it is refused.

Driven from the form that is registered then, with the archive that is uploaded, as processes of their own.
"""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks.flyte.uncached import seed_of_week
from tests.platform.propeller import Attempt, Propeller, literals
from tools.s3 import S3
from tools.serialised import serialise

pytestmark = pytest.mark.long
PACKAGED, RUN = "/root", "."
"""Folders of the code with ``pyflyte package`` and ``pyflyte run``; the latter is the images' working directory."""


def seed(copy: str, s3: S3, folder: Path) -> int:
    """Register, and return the seed of a week by the task's registered command line."""
    deployment, bucket = folder / "deployment.yaml", s3.bucket()
    deployment.write_text("{}")
    found = serialise(folder, deployment, "workflows.weekly", copy)
    (archive,) = found.code.values()
    s3.put(f"{bucket}/code.tar.gz", archive)
    filled = {"{{ .remote_package_path }}": f"s3://{bucket}/code.tar.gz", PACKAGED: RUN}

    def start(attempt: Attempt) -> str:
        place = folder / f"pod-{attempt.number}"
        place.mkdir()
        own = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(place)}
        environment = {**own, **s3.environment(place / "cache"), **attempt.environment}
        command = [filled.get(argument, argument) for argument in attempt.arguments]
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    inputs = literals(seed_of_week, {"kickoff": datetime(2026, 11, 22, tzinfo=UTC)})
    made = Propeller(found, s3, bucket, start).task(seed_of_week.name, inputs, "seed")
    return int(made["o0"].scalar.primitive.integer)


def test_a_copy_of_all_code_runs(s3: S3, tmp_path: Path) -> None:
    assert seed("all", s3, tmp_path) == 202647


def test_a_copy_of_loaded_modules_alone_is_refused_with_the_fix(s3: S3, tmp_path: Path) -> None:
    """``pyflyte run --remote`` copies the modules that are loaded here, unless it is told otherwise."""
    with pytest.raises(AssertionError, match=r"is missing: this copy of the project is incomplete.*--copy all"):
        seed("auto", s3, tmp_path)
