"""Confinement of the calling process on Linux, without root: rights, files, system calls and resources.

A process may apply two mechanisms to itself and can never undo them: seccomp filters system calls (linux/seccomp.h),
and Landlock limits the files that can be opened (Documentation/userspace-api/landlock.rst). Namespaces are not used, so
that the confinement is the same for root, for other users, and in a pod without privileges.
"""

import ctypes
import errno
import math
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

# The allowed system calls of a confined program: memory, time, threads, and reading of files that Landlock allows. All
# others fail: sockets, processes, signals, exec, changes of files, shared memory, access to other processes, and
# io_uring, which would bypass the filter.
# Each entry: name, number on x86_64, number on aarch64 ("-": no such call). Sources:
# linux/arch/x86/entry/syscalls/syscall_64.tbl and linux/include/uapi/asm-generic/unistd.h.
_TABLE = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, close 3 57, lseek 8 62, fstat 5 80,
stat 4 -, lstat 6 -, newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44, access 21 -, faccessat 269 48,
readlink 89 -, readlinkat 267 78, open 2 -, openat 257 56, getdents 78 -, getdents64 217 61, getcwd 79 17, chdir 80 49,
fchdir 81 50, dup 32 23, dup2 33 -, dup3 292 24, fcntl 72 25, ioctl 16 29, ftruncate 77 46, fsync 74 82,
fdatasync 75 83, fadvise64 221 223, umask 95 166, pipe 22 -, pipe2 293 59, poll 7 -, ppoll 271 73, select 23 -,
pselect6 270 72, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22,
eventfd 284 -, eventfd2 290 19,
mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, madvise 28 233, mincore 27 232, msync 26 227, brk 12 214,
clone 56 220, exit 60 93, exit_group 231 94, futex 202 98, set_robust_list 273 99, get_robust_list 274 100,
set_tid_address 218 96, rseq 334 293, membarrier 324 283, arch_prctl 158 -, sched_yield 24 124,
sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, getpriority 140 141, getcpu 309 168,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137,
rt_sigsuspend 130 133, sigaltstack 131 132, pause 34 -, restart_syscall 219 128,
nanosleep 35 101, clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169, time 201 -,
times 100 153, alarm 37 -, getitimer 36 102, setitimer 38 103,
getpid 39 172, gettid 186 178, getppid 110 173, getpgrp 111 -, getpgid 121 155, getsid 124 156, getuid 102 174,
geteuid 107 175, getgid 104 176, getegid 108 177, getgroups 115 158, getresuid 118 148, getresgid 120 150,
getrlimit 97 163, prlimit64 302 261, getrusage 98 165, sysinfo 99 179, uname 63 160, capget 125 90, getrandom 318 278
"""
_MACHINES = {"x86_64": (1, 0xC000003E), "aarch64": (2, 0xC00000B7)}
"""Column of the table, and AUDIT_ARCH of 64-bit calls (linux/audit.h), by machine."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_GET_SECCOMP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 21, 22, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446  # the same on every machine
_READ, _READ_DIR, _WRITE = 1 << 2, 1 << 3, 1 << 1

# Instructions of the filter: load a word of the call, compare it, test its bits, return an action.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_FIRST_OF_LINUX_5_1 = 424
"""First system call of Linux 5.1. Later calls fail as on an older kernel, for which the C library has other calls."""

_CLONE_THREAD = 0x10000
_OPENS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ONLY_VALUES = {
    "fcntl": (1, [0, 1, 2, 3, 4, 1030]),  # duplicates and flags; not F_SETOWN, which makes the kernel send signals
    "ioctl": (1, [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451]),  # terminal settings, bytes to read, flags
    "prlimit64": (0, [0]),  # only the process itself
}
"""Index of an argument and its allowed values, by system call."""


def missing_support(require_landlock: bool) -> str | None:
    """Return what this machine lacks to confine a program, or None. The calling process is not changed."""
    if sys.platform != "linux":
        return f"{sys.platform} has no seccomp, without which a program would reach the network: Linux is needed"
    if platform.machine() not in _MACHINES:
        return f"no filter of system calls is known for {platform.machine()}; there is one for {', '.join(_MACHINES)}"
    if _LIBC.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) < 0:
        return "this kernel has no seccomp, without which a program would reach the network"
    if require_landlock and not landlock_version():
        return (
            "this kernel has no Landlock (Linux 5.13 or later, with landlock among the active security modules), "
            "without which a program could read all files of the verifier, with the gold answers. To fix it: use "
            "another kernel, or set verify.code.require_landlock to false if programs may read all of these files"
        )
    return None


def allowed_calls(machine: str) -> dict[str, int]:
    """Return the numbers of the allowed system calls of a machine, by name."""
    column, _ = _MACHINES[machine]
    rows = [entry.split() for entry in _TABLE.replace("\n", " ").split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 if the kernel has none or it is not active."""
    return max(0, int(_LIBC.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


class Confinement:
    """A confinement with the limits of ``verify.code``: prepared once, and entered by every forked process."""

    def __init__(self, limits: Mapping[str, Any]) -> None:
        self._limits = limits
        self._ruleset = _ruleset(_python_files()) if landlock_version() else None
        self._filter = _filter(platform.machine(), files_are_closed=self._ruleset is not None)
        self._parent = os.getpid()

    def enter(self) -> None:
        """Confine the calling process until it ends.

        Raises:
            OSError: the kernel refuses a limit or a system call.
        """
        die_with(self._parent)
        limits = self._limits
        for name, limit in (
            ("RLIMIT_CORE", 0),
            # The launcher kills a process earlier. This limit ends a process whose launcher has died.
            ("RLIMIT_CPU", math.ceil(limits["seconds"]) + 1),
            ("RLIMIT_AS", limits["memory_mib"] << 20),
            ("RLIMIT_FSIZE", limits["output_mib"] << 20),
            ("RLIMIT_NOFILE", limits["open_files"]),
        ):
            try:
                resource.setrlimit(getattr(resource, name), (limit, limit))
            except ValueError as error:
                raise OSError(errno.EINVAL, f"{name} cannot be {limit}: {error}") from None
        # Without capabilities, root has the rights of any user.
        header, no_capabilities = struct.pack("Ii", 0x20080522, 0), bytes(24)
        _raise_on_error(_LIBC.capset(header, no_capabilities), "capset")
        _raise_on_error(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        if self._ruleset is not None:
            _raise_on_error(_LIBC.syscall(_LANDLOCK_RESTRICT_SELF, self._ruleset, 0), "landlock_restrict_self")
            os.close(self._ruleset)
        code = ctypes.create_string_buffer(self._filter, len(self._filter))
        program = struct.pack("HxxxxxxP", len(self._filter) // 8, ctypes.addressof(code))
        _raise_on_error(_LIBC.prctl(_PR_SET_SECCOMP, 2, program, 0, 0), "seccomp")


def die_with(parent: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Make Linux send a signal to this process when its parent ends; on other systems, the parent must end it.

    Raises:
        SystemExit: the parent has ended before.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the parent is gone")


def _filter(machine: str, files_are_closed: bool) -> bytes:
    """Return the seccomp filter. Without Landlock, it lets programs open any file for reading, and none for writing."""
    number = allowed_calls(machine)
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _MACHINES[machine][1]), (_ANSWER, 0, 0, _KILL)]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _FIRST_OF_LINUX_5_1), (_ANSWER, 0, 0, _FAIL | errno.ENOSYS)]
    bodies = {name: [(_ANSWER, 0, 0, _ALLOW)] for name in number}
    for name, (argument, values) in _ONLY_VALUES.items():
        bodies[name] = [
            _argument(argument),
            *(line for value in values for line in ((_EQUAL, 0, 1, value), (_ANSWER, 0, 0, _ALLOW))),
            (_ANSWER, 0, 0, _FAIL | errno.EPERM),
        ]
    # A program that lowers its own limit of CPU time would be killed by SIGKILL, as if from outside.
    no_cpu_limit = [_argument(1), (_EQUAL, 0, 1, int(resource.RLIMIT_CPU)), (_ANSWER, 0, 0, _FAIL | errno.EPERM)]
    bodies["prlimit64"] = [*no_cpu_limit, *bodies["prlimit64"]]
    bodies["clone"] = _bits(0, _CLONE_THREAD, with_them=_ALLOW, without=_FAIL | errno.EPERM)
    if not files_are_closed:
        for name, argument in {"open": 1, "openat": 2}.items():
            bodies[name] = _bits(argument, _OPENS_TO_WRITE, with_them=_FAIL | errno.EACCES, without=_ALLOW)
    for name, value in number.items():
        code += [(_EQUAL, 0, len(bodies[name]), value), *bodies[name]]
    code.append((_ANSWER, 0, 0, _FAIL | errno.EPERM))
    return b"".join(struct.pack("HBBI", *line) for line in code)


def _argument(index: int) -> tuple[int, int, int, int]:
    # The low 32 bits: of these arguments, the kernel uses no others.
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _bits(argument: int, bits: int, with_them: int, without: int) -> list[tuple[int, int, int, int]]:
    return [_argument(argument), (_ANY_BIT, 0, 1, bits), (_ANSWER, 0, 0, with_them), (_ANSWER, 0, 0, without)]


def _python_files() -> list[str]:
    """Return the folders of Python's modules and of the libraries that they load."""
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    libraries = {f"{sys.base_prefix}/lib", "/lib", "/lib64", "/usr/lib", "/usr/lib64"}
    return sorted(python | libraries | {"/etc/ld.so.cache", "/usr/share/zoneinfo", "/dev/urandom", "/dev/zero"})


def _ruleset(readable: Iterable[str]) -> int:
    """Return a Landlock ruleset: the given files can be read, /dev/null can be written, all else is forbidden."""
    version = landlock_version()
    rights = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    # Newer versions also forbid TCP, abstract sockets, and signals to other processes. seccomp forbids them anyway.
    attributes = struct.pack("QQQ", (1 << rights) - 1, 0b11, 0b11)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = int(_LIBC.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))
    _raise_on_error(ruleset, "landlock_create_ruleset")
    for path, access in [*((path, _READ) for path in readable), ("/dev/null", _READ | _WRITE)]:
        with suppress(FileNotFoundError):
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            if os.path.isdir(path):  # noqa: PTH112 (pathlib is not loaded in every program's process)
                access |= _READ_DIR
            rule = struct.pack("=Qi", access, opened)
            _raise_on_error(_LIBC.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
            os.close(opened)
    return ruleset


def _raise_on_error(result: int, call: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
