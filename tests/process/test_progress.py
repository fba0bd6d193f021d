"""Work that hangs ends where another attempt can go on."""

import subprocess

from tests.prepared import run_python

WORK = """
import io, sys, time
from tasks.process.progress import bar, end_when_it_hangs
end_when_it_hangs(1.0)
sys.stderr = io.StringIO()  # As where output is captured.
with bar("outer", 2) as outer:
    for _ in range(2):
        time.sleep({pause})
        with bar("inner", 1) as inner:
            inner.advance()
        outer.advance()
time.sleep({after})
print("ended")
"""


def run(pause: float, after: float) -> subprocess.CompletedProcess[str]:
    return run_python(WORK.format(pause=pause, after=after))


def test_work_that_advances_is_not_ended_by_the_watchdog() -> None:
    done = run(pause=0.6, after=1.1)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ended"), done.stderr


def test_work_that_hangs_is_ended_with_a_stack_trace() -> None:
    done = run(pause=30, after=0)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "line 8" in done.stderr
    assert "ended" not in done.stdout
