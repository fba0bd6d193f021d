"""A finished run that the tests of workflows share."""

import shutil
from pathlib import Path

import pytest

from tests.prepared import made_once
from tests.workflows.runs import Finished
from tools.forked import Runner


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run of two stages. Tests may add to it; they do not change what it made, nor its folder ``decks``."""

    def make(folder: Path) -> None:
        runner = Runner(folder)
        (folder / "output.txt").write_text(runner.made("mu_grpo_2", "--seed", "2"))
        shutil.copytree(runner.store, folder / "pristine")
        shutil.copytree(folder / "tmp", folder / "decks")

    made, copy = made_once(tmp_path_factory, "finished", make)
    return Finished(Runner(copy), (copy / "output.txt").read_text().replace(str(made), str(copy)))
