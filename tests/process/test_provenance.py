"""The identity of the code covers every file that the package is made of."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from tasks.process import provenance
from tasks.process.provenance import DATA_SUFFIXES, uncommitted_change
from tools.cache_versions import ROOT


@pytest.mark.parametrize("name", ["tasks/settings/presets.yaml", "tasks/report/figures.mplstyle", "workflows/grpo.py"])
def test_another_file_of_the_package_is_other_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "tasks" / "process" / "provenance.py"))
    monkeypatch.setattr(provenance, "commit", str)  # It is kept for the process, and this is no checkout.
    identities = set()
    for text in ("a", "b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        identities.add(provenance.code.__wrapped__())
    assert len(identities) == 2


def test_a_change_without_a_commit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    changed = tmp_path / "tasks" / "objective.py"
    changed.parent.mkdir()
    changed.touch()
    for command in ("init", "add .", "-c user.name=a -c user.email=b commit -m c"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "tasks" / "process" / "provenance.py"))
    monkeypatch.setattr(provenance, "commit", provenance.commit.__wrapped__)
    assert uncommitted_change() is None
    changed.write_text("b")
    assert uncommitted_change() == ("tasks/objective.py", changed.stat().st_mtime)


def test_the_files_of_the_package_have_the_suffixes_that_its_identity_covers() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    assert packed == [f"*{suffix}" for suffix in DATA_SUFFIXES]
    files = [path for path in ROOT.glob("tasks/**/*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert {path.suffix for path in files} <= set(DATA_SUFFIXES)
