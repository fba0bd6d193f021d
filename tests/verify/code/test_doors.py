"""What a program must not be able to do, each tried by a real program: it must get an error, and says so."""

import errno
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

import tasks
from tasks.errors import SettingsError
from tasks.settings import CodeSettings
from tasks.verify.code import confine, launcher
from tasks.verify.code.judge import Sandbox
from tasks.verify.code.launcher import End
from tasks.verify.pool import Verifier
from tests.verify.helpers import code_settings, fenced, judge_pids, texts

X86 = os.uname().machine == "x86_64"
CTYPES = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"


def call(*arguments: object) -> str:
    """A system call by its number, which raises if it fails."""
    return (
        f"{CTYPES}    libc.syscall.restype = ctypes.c_long\n"
        f"    if libc.syscall({', '.join(map(str, arguments))}) < 0: raise OSError(ctypes.get_errno(), 'refused')"
    )


DOORS = {
    "IPv4": "import socket; socket.socket(socket.AF_INET)",
    "local sockets": "import socket; socket.socket(socket.AF_UNIX)",
    "socket pairs, which can send to an address": "import socket; socket.socketpair()",
    "io_uring, around the filter": call(425, 1, "ctypes.create_string_buffer(120)"),
    "fork": "os.fork()",
    "vfork": call(58 if X86 else 220, 0x4111, 0, 0, 0, 0),
    "clone with new namespaces": call(56 if X86 else 220, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": call(435, "ctypes.create_string_buffer(bytes([0] * 32 + [17]), 64)", 64),
    "subprocess": "import subprocess; subprocess.run(['/bin/true'])",
    "another program": "os.execv('/bin/true', ['true'])",
    "multiprocessing": "import multiprocessing; multiprocessing.Process(target=print).start()",
    "a session of its own": "os.setsid()",
    "a signal to its parent": "os.kill(os.getppid(), 0)",
    "a signal to a descriptor": "os.pidfd_open(os.getppid())",
    "signals through a file": "import fcntl; fcntl.fcntl(os.pipe()[0], 8, os.getppid())",
    "outliving its parent": call(157 if X86 else 167, 1, 0, 0, 0, 0),
    "ptrace": call(101 if X86 else 117, 16, "os.getppid()", 0, 0),
    "another's memory": call(310 if X86 else 270, "os.getppid()", 0, 0, 0, 0, 0),
    "another's limits": "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)",
    "other cores": "os.sched_setaffinity(0, {0})",
    "higher limits": (
        f"{CTYPES}    limits = (ctypes.c_ulong * 2)(1 << 50, 1 << 50)\n"
        "    if libc.setrlimit(9, limits) < 0: raise OSError(ctypes.get_errno(), 'refused')"
    ),
    "another user": "os.setuid(0)",
    "its environment as a file": "open('/proc/self/environ')",
    "its parent's environment": "open(f'/proc/{os.getppid()}/environ')",
    "its memory as a file": "open('/proc/self/maps')",
    "its descriptors": "os.listdir('/proc/self/fd')",
    "the root": "os.listdir('/')",
    "the harness": f"open({launcher.__file__!r})",
    "the project": f"os.listdir({str(Path(tasks.__file__).parent)!r})",
    "a file where it is": "open('x', 'w')",
    "a temporary file": "open('/tmp/mu-grpo-door', 'w')",
    "shared memory": "open('/dev/shm/x', 'w')",
    "a file among Python's": "open(os.path.join(os.path.dirname(os.__file__), 'x.py'), 'w')",
    "a terminal": "open('/dev/tty')",
    "a file in memory": "os.memfd_create('x')",
    "shared memory that outlives it": call(29 if X86 else 194, 0, 4096, 0o1600),
    "BPF": call(321 if X86 else 280, 0, 0, 0),
    "a new name space": call(272 if X86 else 97, 0x10000000),
    "a mount": call(165 if X86 else 40, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_a_forbidden_action_is_stopped(sandbox, door):
    program = f"import os\ntry:\n    {door}\nexcept OSError as error:\n    print(error.errno)\nelse:\n    print('open')"
    ran = sandbox.run(program, "run", b"")
    assert ran.end is End.WELL
    assert int(ran.output) in {errno.EPERM, errno.EACCES, errno.ENOSYS}  # Refused, or unknown.


def test_what_a_confined_program_sees(sandbox):
    program = """
import os, select
print(sorted(os.environ))
poll = select.poll()
for number in range(64): poll.register(number, 0)
print(sorted({*range(64)} - {number for number, what in poll.poll(0) if what & select.POLLNVAL}))
open(os.devnull, "w").write("x")
print(len(os.urandom(8)))
"""
    ran = sandbox.run(program, "run", b"")
    variables = "['LC_CTYPE', 'OMP_WAIT_POLICY', 'OPENBLAS_NUM_THREADS', 'PYTHONHASHSEED']"
    assert ran.output.decode().splitlines() == [variables, "[0, 1, 2]", "8"]
    assert ran.end is End.WELL


def test_what_a_program_is_allowed(sandbox):
    program = """
import threading, time, signal, tempfile, zoneinfo, decimal, numpy
found = []
threading.stack_size(1 << 26)
threads = [threading.Thread(target=lambda: found.append(sum(range(1000)))) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
time.sleep(0.01)
print(found == [499500] * 4, int(numpy.arange(5).sum()), Counter("aab")["a"], gcd(12, 18), input())
"""
    ran = sandbox.run(program, "run", b"word\n")
    assert (ran.end, ran.output) == (End.WELL, b"True 10 2 6 word\n")


def test_the_same_draws_and_orders_every_time_until_the_launcher_is_killed(sandbox):
    program = "import random\nprint(random.random(), list({'one', 'two', 'three', 'four'}))"
    first = sandbox.run(program, "run", b"")
    with closing(Sandbox(CodeSettings().model_dump())) as other:
        assert other.run(program, "run", b"") == first == sandbox.run(program, "run", b"")
        os.kill(other._launcher.pid, signal.SIGKILL)
        assert other.run(program, "run", b"").end is End.KILLED  # The program has not failed.


def test_without_landlock_a_program_may_open_files_only_to_read_them(monkeypatch):
    monkeypatch.setattr(confine, "landlock_version", lambda: 0)
    confinement = confine.Confinement(CodeSettings().model_dump())
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:  # The filter alone, on this process, which is the test's own.
        confinement.enter()
        found = []
        for number in [(257, -100), (2,)] if X86 else [(56, -100)] * 2:  # openat and, where there is one, open
            for how in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT):
                opened = confine._LIBC.syscall(*number, b"/etc/passwd", how)
                found.append("closed" if opened < 0 else "open")
        os.write(writing, " ".join(found).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 100).split() == [b"open", b"closed", b"closed"] * 2


def test_no_gold_answer_reaches_the_program(sandbox):
    """The launcher's memory, which every program's process begins with, holds neither programs nor inputs."""
    mark = b"%d" % (0x5EC2E7 * 9973 * 7919)
    assert sandbox.run(f"value = {mark.decode()}\nprint(input())", "run", mark).output == mark + b"\n"
    own = Path(f"/proc/{sandbox._launcher.pid}")
    with (own / "maps").open() as maps, (own / "mem").open("rb") as memory:
        for line in maps:
            if line.split()[1].startswith("rw"):
                start, end = (int(side, 16) for side in line.split()[0].split("-"))
                memory.seek(start)
                assert mark not in memory.read(end - start)


def test_a_sandbox_whose_trial_is_not_stopped_is_refused(monkeypatch):
    monkeypatch.setattr("tasks.verify.code.judge._TRIAL", "print('a program could write files')")
    with pytest.raises(RuntimeError, match="a program could write files"):
        Sandbox(CodeSettings().model_dump())


@pytest.mark.parametrize(
    ("name", "found", "message"),
    [
        ("platform.machine", "riscv64", "no filter .* is known for riscv64; there is one for x86_64, aarch64"),
        ("landlock_version", 0, "no Landlock .*set verify.code.require_landlock to false if programs"),
    ],
)
def test_a_machine_that_cannot_confine_is_refused_by_name(monkeypatch, name, found, message):
    monkeypatch.setattr(f"tasks.verify.code.confine.{name}", lambda: found)
    with pytest.raises(SettingsError, match=f"verify.kind: code; programs cannot be confined.*{message}"):
        Verifier(code_settings())


def test_a_worker_without_a_sandbox_is_an_error_that_says_why():
    settings = code_settings(open_files=1 << 40)
    message = r"verify.kind: code; .*RLIMIT_NOFILE cannot be.*docs/verifying.md"
    with pytest.raises(SettingsError, match=message), Verifier(settings) as verifier:
        verifier.verify([(texts(("", "5")), fenced("print(5)"))])
    assert judge_pids(verifier) == []
