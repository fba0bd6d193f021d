"""How much a run tells."""

from pathlib import Path

import pytest

from tests.prepared import run_python

PROGRAM = """
import sys
from tasks.store import Store
from tasks.store.work import run_once
from tasks.process.progress import bar

def make(store, text):
    with bar("make", 2) as progress, store.write("prompts", settings={}, parents={}, seed=0) as draft:
        progress.advance(2)
        (draft.path / "data").write_text(text)
    return draft.ref

ref = Store.open(sys.argv[1]).ref
for _ in range(2):
    run_once(ref, "prepare", "1", make, "text")
"""


@pytest.mark.parametrize(
    ("level", "progress", "found"), [("debug", True, True), ("info", True, False), ("WARNING", False, False)]
)
def test_each_level_shows_its_messages(level: str, progress: bool, found: bool, tmp_path: Path) -> None:
    done = run_python(PROGRAM, str(tmp_path / "store"), MU_GRPO_LOG_LEVEL=level)
    assert ("make: 2/2 in" in done.stdout) == progress
    assert (f"prepare: found in {tmp_path}/store" in done.stdout) == found
    assert done.returncode == 0, done.stderr


def test_an_unknown_level_is_named(tmp_path: Path) -> None:
    done = run_python(PROGRAM, str(tmp_path / "store"), MU_GRPO_LOG_LEVEL="loud")
    assert "MU_GRPO_LOG_LEVEL: got 'loud'; allowed: debug, info, warning" in done.stderr
