import signal
import subprocess
import sys

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
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGINT
    assert "Exception ignored" not in done.stderr
