"""How much a run tells, and the end of work that hangs, after which another attempt can go on."""

import subprocess
from pathlib import Path

import pytest

from tests.prepared import run_python

PROGRAM = """
import sys
from tasks.store import Store
from tasks.store.work import run_once
from tasks.process.logs import bar

def make(store, text):
    with bar("make", 2) as progress, store.write("prompts", settings={}, parents={}, seed=0) as draft:
        progress.advance(2)
        (draft.path / "data").write_text(text)
    return draft.ref

ref = Store.open(sys.argv[1]).ref
for _ in range(2):
    run_once(ref, "prepare", "1", make, "text")
"""
HANGING = """
import io, sys, time
from tasks.process.logs import bar, end_when_it_hangs
end_when_it_hangs(2.0)
sys.stderr = io.StringIO()  # As where output is captured.
with bar("outer", 2) as outer:
    with bar("inner", 1):
        pass
    for seconds in ({pause}, 0.5, 0.5, 0.5, 0.5):
        time.sleep(seconds)
        outer.advance()
time.sleep({after})
print("ended")
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


def run(pause: float, after: float) -> subprocess.CompletedProcess[str]:
    return run_python(HANGING.format(pause=pause, after=after))


def test_work_that_advances_is_not_ended_by_the_watchdog() -> None:
    done = run(pause=0.5, after=2.1)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ended"), done.stderr


def test_work_that_hangs_is_ended_with_a_stack_trace() -> None:
    done = run(pause=30, after=0)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "line 10" in done.stderr
    assert "ended" not in done.stdout
