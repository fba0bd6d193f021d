"""Hostile programs, in real workers: what each is judged, that the next is judged right, that nothing is left."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest

from tasks.verify.pool import Verifier
from tasks.verify.verdicts import Outcome
from tests.verify.helpers import asserts, calls, code_settings, fenced, judge_pids, texts
from tests.waiting import until

GOLD = texts(("2 3\n", "5\n"))
RIGHT = "print(sum(map(int, input().split())))"
CALLED = calls("add", ([2, 3], 5), ([20, 30], 50))
EQUAL_TO_ALL = """
class Same(int):
    def __eq__(self, other): return True
    __hash__ = None
def add(a, b): return Same(7)
"""

ASSERTED = asserts("assert add(2, 3) == 5")

# Under the usual limits: each ends by itself.
PRINTS = {
    "ends early": "import os; os._exit(0)",
    "right, but fails after it": f"{RIGHT}\nraise ValueError",
    "right, but not the end": f"{RIGHT}\nimport sys\nsys.stdout.flush()\nclass Bad: flush = None\nsys.stdout = Bad()",
    "right, but with a status": f"{RIGHT}\nexit(3)",
    "right, but with a message": f"{RIGHT}\nexit('failed')",
    "ends on a signal": f"{RIGHT}\nimport sys; sys.stdout.flush(); import ctypes; ctypes.string_at(0)",
    "calls Linux as a program of 32 bits, around the filter": (
        f"{RIGHT}\nimport ctypes, mmap\npage = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(bytes.fromhex('b814000000cd80c3'))  # getpid\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()"
    ),
    "not Python": "this is no program",
    "a null byte": "print(5)\0",
    "half of a surrogate pair": "print(5) # \ud83d",
    "nested too deeply": "(" * 5000,
    "starts processes and does not mind": "import os\nfor _ in range(9):\n try: os.fork()\n except OSError: pass",
    "kills all": "import os; os.kill(-1, 9)",
    "takes all memory": "x = [0]\nwhile True: x += x",
    "writes without end": "while True: print('x' * 1000)",
    "writes without end and does not mind": (
        "import os\nfor _ in range(200):\n try: os.write(1, b'x' * 65536)\n except OSError: pass"
    ),
    "fills the disk": "with open('x', 'wb') as file:\n while True: file.write(bytes(1 << 20))",
    "a hole of a terabyte": "import os; os.lseek(1, 1 << 40, 0); os.write(1, b'5')",
    "writes what is not text": "import os; os.write(1, b'\\xff5')",
    "closes everything": "import os; os.closerange(0, 64); print(5)",
    "opens files without end": "import os\nx = []\nwhile True: x.append(open(os.devnull))",
    "right, with more threads than it may start": (
        f"{RIGHT}\nimport threading, time\nthreading.stack_size(32768)\n"
        "for _ in range(20): threading.Thread(target=time.sleep, args=(0.5,)).start()"
    ),
    "takes the harness apart": (
        "import builtins, os, sys\nos._exit = exit = lambda *_: None\nsys.modules.clear()\nbuiltins.__dict__.clear()"
    ),
    "returns into the launcher": "import os, sys\nos._exit = lambda status: None\nsys.exit(0)",
    "has itself killed by a limit": "import resource as r\nr.setrlimit(r.RLIMIT_CPU, (1, 1))\nwhile True: pass",
}
CALLS = {
    "returns what equals all": (CALLED, EQUAL_TO_ALL),
    "returns what equals all, in a list": (
        calls("add", ([2, 3], [5])),
        f"{EQUAL_TO_ALL}\nadd = lambda a, b: [Same(7)]",
    ),
    "an assertion on what equals all": (ASSERTED, EQUAL_TO_ALL),
    "assertions switched off": (ASSERTED, "def add(a, b): return 6\n__debug__ = False"),
    "asserted names taken": (ASSERTED, "value_0 = 5\ndef add(a, b): return 6"),
    "an assertion avoided": (ASSERTED, "import os\ndef add(a, b): os._exit(0)"),
    "ends when it is called": (CALLED, "def add(a, b): exit(0)"),
    "answers in the harness's place": (CALLED, "import os\nos.write(1, b'[6]')\nos._exit(0)"),
    "answers too much": (CALLED, "import os\ndef add(a, b):\n os.write(1, b'[5]')\n return 5"),
    "answers what is not JSON": (CALLED, "import json\njson.dumps = lambda *_: 'x'\ndef add(a, b): return 5"),
    "answers with deep nesting": (CALLED, "import json\njson.dumps = lambda *_: '[' * 99999\ndef add(a, b): return 5"),
    "returns itself": (CALLED, "def add(a, b):\n x = []\n x.append(x)\n return x"),
    "a type that lies": (CALLED, "class Lie:\n def tolist(self): return self\ndef add(a, b): return Lie()"),
    "a type that is not plain": (calls("f", ([], None)), "def f(): return object()"),
    "has no such function": (CALLED, "def sub(a, b): return 5"),  # but operator has, which it may take as imported
    "has no such function, asserted": (asserts("assert gcd(2, 4) == 2"), ""),
    "has no such function, but Python": (asserts("assert max(2, 4) == 4"), ""),
    "returns a number beyond all floats": (calls("f", ([1], 1.5)), "def f(x): return 10 ** 400"),
    "a module of its own for the assertion": (
        asserts("assert math.isclose(f(2), 4.0)"),
        "class math: isclose = lambda *_: True\ndef f(x): return 0",
    ),
    "gives the item of longer lists": (calls("f", ([2], [3]), ([4], [5, 6])), "def f(x): return x + 1"),
    "returns nothing, as every list holds": (calls("f", ([2], [None])), "def f(x): pass"),
    "takes the reference solution of the assertions": (
        asserts("assert add(2, 3) == plus(2, 3)", setup="import math\ndef plus(a, b): return a + b"),
        "import sys\ndef add(a, b):\n frame = sys._getframe()\n"
        " while 'request' not in frame.f_locals: frame = frame.f_back\n"
        " exec(frame.f_locals['request']['setup'], globals())\n return plus(a, b)",
    ),
    "knows the first test": (CALLED, "def add(a, b): return 5"),
    "counts its calls": (CALLED, "n = [5, 50]\ndef add(a, b): return n.pop(0)"),
}
HOSTILE = {name: (GOLD, program) for name, program in PRINTS.items()} | CALLS

# These end by a limit.
ENDLESS = {
    "computes without end": "while True: pass",
    "computes without end in a thread": (
        f"{RIGHT}\nimport threading\ndef run():\n while True: pass\nthreading.Thread(target=run).start()"
    ),
    "is deaf to signals and catches all": (
        "import signal\nfor one in range(1, 65):\n try: signal.signal(one, signal.SIG_IGN)\n"
        " except (OSError, ValueError): pass\nwhile True:\n try:\n  while True: pass\n except BaseException: pass"
    ),
    "computes a huge number": "x = 10 ** 10 ** 10",
    "sleeps": "import time; time.sleep(600)",
}
VERIFIER = code_settings(memory_mib=256, output_mib=1, threads=16)


@pytest.mark.parametrize(("gold", "program"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_program_is_wrong_and_the_next_is_judged_right(verifier, gold, program):
    verifier.verify([(GOLD, fenced(RIGHT))])
    before = judge_pids(verifier)
    verdicts = verifier.verify([(gold, fenced(program)), (GOLD, fenced(RIGHT)), (GOLD, fenced("print(6)"))])
    assert [verdict.outcome for verdict in verdicts] == [Outcome.WRONG, Outcome.CORRECT, Outcome.WRONG]
    assert judge_pids(verifier) == before  # It did not even cost its worker.
    (worker,) = (psutil.Process(pid) for pid in judge_pids(verifier))
    assert [child.cmdline()[3].rpartition("/")[2] for child in worker.children(recursive=True)] == ["launcher.py"]


@pytest.mark.parametrize("program", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_program_is_wrong(program):
    with Verifier(code_settings(seconds=0.4)) as verifier:
        assert [one.outcome for one in verifier.verify([(GOLD, fenced(program))])] == [Outcome.WRONG]
        (worker,) = (psutil.Process(pid) for pid in judge_pids(verifier))
        assert len(worker.children(recursive=True)) == 1


def programs_below(pid: int) -> list[psutil.Process]:
    """Confined processes below a process: the children of launchers."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # It has ended meanwhile.
            if "launcher.py" in " ".join(child.cmdline()):
                found += [one for one in child.children() if one.status() != psutil.STATUS_ZOMBIE]
    return found


@pytest.mark.parametrize(("times", "outcome"), [(1, Outcome.CORRECT), (3, Outcome.CRASHED)])
def test_a_program_killed_from_outside_runs_again(times, outcome):
    program = f"import time\ntime.sleep(2.5)\n{RIGHT}"
    killed, first_seen = set(), {}
    with Verifier(code_settings()) as verifier:
        verifier.verify([(GOLD, fenced(RIGHT))])
        done = threading.Event()

        def kill() -> None:
            while len(killed) < times and not done.is_set():
                for process in programs_below(os.getpid()):
                    # A launcher's trial ends at once. When a process was created is known to a second only.
                    seen_seconds = time.monotonic() - first_seen.setdefault(process.pid, time.monotonic())
                    if process.pid not in killed and seen_seconds > 0.5:
                        with suppress(psutil.NoSuchProcess):
                            process.kill()
                            killed.add(process.pid)
                time.sleep(0.02)

        killer = threading.Thread(target=kill)
        killer.start()
        (verdict,) = verifier.verify([(GOLD, fenced(program))])
        done.set()
        killer.join()
    assert len(killed) == times
    assert verdict.outcome == outcome
    assert (verdict.reward is None) == (outcome is Outcome.CRASHED)


def stays(processes: list[psutil.Process]) -> bool:
    time.sleep(0.3)
    return bool(processes) and all(process.is_running() for process in processes)


@pytest.mark.parametrize("which", ["parent", "worker", "launcher"])
def test_a_program_dies_with_whoever_is_killed_above_it(which):
    program = (
        "from tasks.verify.pool import Verifier\n"
        "from tests.verify.helpers import code_settings, fenced\n"
        "with Verifier(code_settings(seconds=60.0)) as verifier:\n"
        f"    verifier.verify([({GOLD!r}, fenced('import time; time.sleep(600)'))])\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as parent:
        try:
            until(lambda: stays(programs_below(parent.pid)))
            (sleeping,) = programs_below(parent.pid)
            launcher = sleeping.parent()
            chosen = {"parent": psutil.Process(parent.pid), "worker": launcher.parent(), "launcher": launcher}[which]
            chosen.kill()
            until(lambda: not sleeping.is_running() or sleeping.status() == psutil.STATUS_ZOMBIE)
            until(lambda: not launcher.is_running() or launcher.status() == psutil.STATUS_ZOMBIE)
        finally:
            parent.kill()
