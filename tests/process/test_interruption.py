import signal

import pytest

from tests.prepared import run_python

_PROGRAM = """
import os, signal, time
from tasks.process.interruption import repeat_lost_sigint

class Folder:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

repeat_lost_sigint()
Folder()
time.sleep(60)
"""


def test_ctrl_c_during_a_destructor_stops_the_program() -> None:
    done = run_python(_PROGRAM)
    assert done.returncode == -signal.SIGINT
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(("context", "kills"), [("defer_sigterm", 2), ("nullcontext", 1)])
def test_sigterm_ends_a_process_at_once_or_if_it_is_deferred_the_second_time(context: str, kills: int) -> None:
    code = f"""
import os, signal
from contextlib import nullcontext
from tasks.process.interruption import defer_sigterm
with defer_sigterm():
    pass
with {context}():
    for count in range(1, 9):
        print(count, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
"""
    done = run_python(code)
    assert done.returncode == -signal.SIGTERM
    assert done.stdout.split() == [str(count) for count in range(1, kills + 1)]
