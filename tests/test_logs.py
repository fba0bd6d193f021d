"""How much a run tells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from tasks.store import Store
from tasks.store.work import run_once
from tasks.progress import bar

def make(store, text):
    with bar("make", 2) as progress, store.write("prompts", settings={}, parents={}, seed=0) as draft:
        progress.advance(2)
        (draft.path / "data").write_text(text)
    return draft.ref

ref = Store.open(sys.argv[1]).ref
for _ in range(2):
    run_once(ref, "prepare", "1", make, "text")
"""


def told(folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "store")],
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("level", "progress", "found"), [("debug", True, True), ("info", True, False), ("WARNING", False, False)]
)
def test_levels(level: str, progress: bool, found: bool, tmp_path: Path) -> None:
    output = told(tmp_path, MU_GRPO_LOG_LEVEL=level)
    assert ("make: 2/2 in" in output) == progress
    assert (f"prepare: found in {tmp_path}/store" in output) == found
    assert "Traceback" not in output


def test_an_unknown_level_is_named(tmp_path: Path) -> None:
    assert "MU_GRPO_LOG_LEVEL: got 'loud'; allowed: debug, info, warning" in told(tmp_path, MU_GRPO_LOG_LEVEL="loud")
