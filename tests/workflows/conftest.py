"""A finished run that the tests of workflows share."""

import shutil

import pytest

from tools.runs import Runner


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runner, str]:
    """A run of two stages. Tests may add to it; they do not change what it made. Beside it, ``pristine`` is a copy of
    its store that nobody adds to."""
    runner = Runner(tmp_path_factory.mktemp("finished"))
    done = runner.run("mu_grpo_2", "--seed", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copytree(runner.store, runner.folder / "pristine")
    return runner, done.stdout
