"""Installed packages that decide what is right are a part of the cache versions of tasks that judge."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tools import ROOT

SHOW = """
from tasks.flyte.tasks import evaluate, prepare_benchmark, verify
print(evaluate.metadata.cache_version, prepare_benchmark.metadata.cache_version, verify.metadata.cache_version)
"""


def cache_versions(*found_first: Path) -> list[str]:
    """Of three tasks, in a process that finds packages in other places first."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, found_first))}
    command = [sys.executable, "-c", SHOW]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()


def test_an_upgrade_of_math_verify_judges_anew(tmp_path: Path) -> None:
    upgraded = tmp_path / "math_verify-99.0.dist-info"
    upgraded.mkdir()
    (upgraded / "METADATA").write_text("Metadata-Version: 2.1\nName: math-verify\nVersion: 99.0\n")
    before, after = cache_versions(), cache_versions(tmp_path)
    installed = version("math-verify")
    assert len(before) == 3
    assert all(f"math-verify-{installed}" in one for one in before)
    assert after == [one.replace(f"math-verify-{installed}", "math-verify-99.0") for one in before]
