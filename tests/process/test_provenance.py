"""The identity of the code covers every file that the package is made of."""

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.process import provenance
from tasks.process.provenance import DATA_SUFFIXES
from tools.cache_versions import ROOT


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A folder of packages, in which this package is taken to be."""
    folder = tmp_path / ".venv/site-packages"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "__file__", str(folder / "tasks/process/provenance.py"))
        provenance.commit.cache_clear()
        yield folder
    provenance.commit.cache_clear()


@pytest.mark.parametrize("name", ["tasks/settings/presets.yaml", "tasks/report/figures.mplstyle", "workflows/grpo.py"])
def test_another_file_of_the_package_is_other_code(name: str, package: Path) -> None:
    identities = set()
    for text in ("a", "b"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
        identities.add(provenance.code.__wrapped__())
    assert len(identities) == 2


def test_an_installed_package_has_no_commit_of_the_project_around_it(package: Path, tmp_path: Path) -> None:
    package.mkdir(parents=True)
    for words in ("init", "-c user.name=a -c user.email=a@b commit --allow-empty -m other"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True, capture_output=True)
    assert provenance.commit() == ""


def test_the_files_of_the_package_have_the_suffixes_that_its_identity_covers() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    assert packed == [f"*{suffix}" for suffix in DATA_SUFFIXES]
    files = [path for path in ROOT.glob("tasks/**/*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert {path.suffix for path in files} <= set(DATA_SUFFIXES)
