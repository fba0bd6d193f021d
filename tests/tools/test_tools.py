"""Targets of the Makefile, regressions of benchmarks, and programs that are not installed."""

import subprocess
from pathlib import Path

import pytest

from tools import ROOT
from tools.benchmarks.measurement import Measurement, Ratio
from tools.system_programs import require


def make(folder: Path, script: str, variable: str, *arguments: str) -> str:
    """Return what make prints, with a script as the program that a variable names, such as Python or podman."""
    (folder / "program").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "program").chmod(0o755)
    command = ["make", "--makefile", ROOT / "Makefile", *arguments, f"{variable}={folder / 'program'}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60).stdout


def test_an_environment_that_could_not_be_made_is_made_again(tmp_path: Path) -> None:
    """Debian's Python without python3-venv leaves an environment that has a python, but no pip."""
    fails = 'mkdir -p .venv/bin && ln -s "$(command -v python3)" .venv/bin/python; echo no ensurepip; exit 1'
    for _ in range(2):
        assert "no ensurepip" in make(tmp_path, fails, "PYTHON", ".venv/bin/.torch")


def test_images_are_pushed_after_their_builds(tmp_path: Path) -> None:
    calls = '[ "$1" != build ] || sleep 0.5; echo "called $1"'
    printed = make(tmp_path, calls, "CONTAINER", "-sj8", "images", "push", "ROLES=cpu", "REGISTRY=here")
    assert printed.split() == ["called", "build", "called", "tag", "called", "push"]


def measured() -> Measurement:
    ways = {"ours": [3000.0, 4000.0, 5000.0], "theirs": [2.0, 2.0, 2.5]}
    bars = [Ratio("ours", "theirs", [1.4, 1.5, 1.7], 1.6), Ratio("ours", "1 s", [0.5, 0.5, 0.6], 1.0, at_most=True)]
    return Measurement("one", "Some work.", "x/s", ways, bars)


def test_a_ratio_regresses_against_its_baseline_and_a_time_against_its_requirement() -> None:
    kept, worse, slower = measured(), measured(), measured()
    worse.ratios[:] = [Ratio("ours", "theirs", [1.4], 1.6), Ratio("ours", "1 s", [0.9], 1.0, at_most=True)]
    assert worse.regressions(kept) == ["one: ours / theirs is 1.4, the baseline is 1.5; allowed: 5 % worse"]
    assert worse.regressions(None) == []
    slower.ratios[:] = [Ratio("ours", "theirs", [1.43], 1.6), Ratio("ours", "1 s", [1.2], 1.0, at_most=True)]
    assert slower.regressions(kept) == ["one: ours / 1 s is 1.2, the baseline is 0.5; required: at most 1"]
    assert slower.regressions(slower) == []


def test_a_missing_program_fails_in_continuous_integration_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, exception in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", value)
        with pytest.raises(exception, match="no-such-program is not installed"):
            require("no-such-program")
