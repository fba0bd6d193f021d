"""Takes rights, files, system calls and resources from the calling process, on Linux and without being root.

Two mechanisms that every process may use on itself and that no process can undo: seccomp filters system calls
(linux/seccomp.h), Landlock says which files can be opened (Documentation/userspace-api/landlock.rst). No namespaces, so
that it is the same for root, for a user, and in a pod without rights.
"""

import ctypes
import errno
import math
import os
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from tasks.verify.code.calls import architecture, known_machines, machine, numbers

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_GET_SECCOMP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 21, 22, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446  # the same on every machine
_READ, _READ_DIR, _WRITE = 1 << 2, 1 << 3, 1 << 1

# Instructions of the filter: load a word of the call, compare it, test its bits, give an answer.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_FIRST_OF_LINUX_5_1 = 424
"""From here on numbers are the same everywhere, and the C library has another way where the kernel has no such call."""

_CLONE_THREAD = 0x10000
_OPENS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ONLY_VALUES = {
    "fcntl": (1, [0, 1, 2, 3, 4, 1030]),  # duplicates and flags; not F_SETOWN, which makes the kernel send signals
    "ioctl": (1, [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451]),  # is it a terminal, what is there to read, flags
    "prlimit64": (0, [0]),  # its own limits
}


def missing(require_landlock: bool) -> str | None:
    """Say what this machine lacks to confine a program, or None. Nothing about this process changes."""
    if sys.platform != "linux":
        return f"{sys.platform} has no seccomp, without which a program would reach the network: Linux is needed"
    if machine() not in known_machines():
        return f"no filter of system calls is known for {machine()}; there is one for {', '.join(known_machines())}"
    if _LIBC.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) < 0:
        return "this kernel has no seccomp, without which a program would reach the network"
    if require_landlock and not landlock_version():
        return (
            "this kernel has no Landlock (Linux 5.13 or later, with landlock among the security modules that are on), "
            "without which a program could read what the verifier can, the reference answers included. Use another "
            "kernel, or set verify.code.require_landlock to false where nothing that the verifier can read matters"
        )
    return None


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 where there is none, or it is off."""
    return max(0, int(_LIBC.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


class Confinement:
    """A confinement that is prepared once in a clean process and entered by every process that it forks.

    Args:
        limits: the fields of the settings ``verify.code``.
    """

    def __init__(self, limits: Mapping[str, Any]) -> None:
        self._limits = limits
        self._ruleset = _ruleset(_python_files()) if landlock_version() else None
        self._filter = _filter(machine(), files_are_closed=self._ruleset is not None)
        self._parent = os.getpid()

    def enter(self) -> None:
        """Confine the calling process for the rest of its life.

        Raises:
            OSError: the kernel refused a step.
        """
        die_with(self._parent)
        limits = self._limits
        for name, limit in (
            ("RLIMIT_CORE", 0),
            # A process that nobody watches any more ends by this; otherwise it has been ended before.
            ("RLIMIT_CPU", math.ceil(limits["seconds"]) + 1),
            ("RLIMIT_AS", limits["memory_mib"] << 20),
            ("RLIMIT_FSIZE", limits["output_mib"] << 20),
            ("RLIMIT_NOFILE", limits["open_files"]),
        ):
            try:
                resource.setrlimit(getattr(resource, name), (limit, limit))
            except ValueError as error:
                raise OSError(errno.EINVAL, f"{name} cannot be {limit}: {error}") from None
        # Root without capabilities is a user like others.
        header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
        _done(_LIBC.capset(header, nothing), "capset")
        _done(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        if self._ruleset is not None:
            _done(_LIBC.syscall(_LANDLOCK_RESTRICT_SELF, self._ruleset, 0), "landlock_restrict_self")
            os.close(self._ruleset)
        code = ctypes.create_string_buffer(self._filter, len(self._filter))
        program = struct.pack("HxxxxxxP", len(self._filter) // 8, ctypes.addressof(code))
        _done(_LIBC.prctl(_PR_SET_SECCOMP, 2, program, 0, 0), "seccomp")


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends, on Linux; elsewhere its parent must see to it.

    Raises:
        SystemExit: it has ended.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the parent is gone")


def _filter(machine: str, files_are_closed: bool) -> bytes:
    """Build the filter of system calls; where Landlock closes no files, they can be opened for reading only."""
    number = numbers(machine)
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture(machine)), (_ANSWER, 0, 0, _KILL)]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _FIRST_OF_LINUX_5_1), (_ANSWER, 0, 0, _FAIL | errno.ENOSYS)]
    bodies = {name: [(_ANSWER, 0, 0, _ALLOW)] for name in number}
    for name, (argument, values) in _ONLY_VALUES.items():
        bodies[name] = [
            _argument(argument),
            *(step for value in values for step in ((_EQUAL, 0, 1, value), (_ANSWER, 0, 0, _ALLOW))),
            (_ANSWER, 0, 0, _FAIL | errno.EPERM),
        ]
    # With a limit of its own on CPU time a program could be killed as if from outside.
    no_cpu_limit = [_argument(1), (_EQUAL, 0, 1, int(resource.RLIMIT_CPU)), (_ANSWER, 0, 0, _FAIL | errno.EPERM)]
    bodies["prlimit64"] = [*no_cpu_limit, *bodies["prlimit64"]]
    bodies["clone"] = _bits(0, _CLONE_THREAD, with_them=_ALLOW, without=_FAIL | errno.EPERM)
    if not files_are_closed:
        for name, argument in {"open": 1, "openat": 2}.items():
            bodies[name] = _bits(argument, _OPENS_TO_WRITE, with_them=_FAIL | errno.EACCES, without=_ALLOW)
    for name, value in number.items():
        code += [(_EQUAL, 0, len(bodies[name]), value), *bodies[name]]
    code.append((_ANSWER, 0, 0, _FAIL | errno.EPERM))
    return b"".join(struct.pack("HBBI", *step) for step in code)


def _argument(index: int) -> tuple[int, int, int, int]:
    """Load the low half of an argument, which is all that the kernel looks at in those that are compared here."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _bits(argument: int, bits: int, with_them: int, without: int) -> list[tuple[int, int, int, int]]:
    return [_argument(argument), (_ANY_BIT, 0, 1, bits), (_ANSWER, 0, 0, with_them), (_ANSWER, 0, 0, without)]


def _python_files() -> list[str]:
    """Return the folders of Python's modules and of the libraries that they load."""
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    libraries = {f"{sys.base_prefix}/lib", "/lib", "/lib64", "/usr/lib", "/usr/lib64"}
    return sorted(python | libraries | {"/etc/ld.so.cache", "/usr/share/zoneinfo", "/dev/urandom", "/dev/zero"})


def _ruleset(readable: Iterable[str]) -> int:
    """Make a Landlock ruleset: these files can be read, /dev/null written, and nothing else opened, made or removed."""
    version = landlock_version()
    rights = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    # Where it can, Landlock also closes TCP, abstract sockets, and signals to others, which seccomp does before it.
    attributes = struct.pack("QQQ", (1 << rights) - 1, 0b11, 0b11)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = int(_LIBC.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))
    _done(ruleset, "landlock_create_ruleset")
    for path, access in [*((path, _READ) for path in readable), ("/dev/null", _READ | _WRITE)]:
        with suppress(FileNotFoundError):
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            if os.path.isdir(path):  # noqa: PTH112 (pathlib is not loaded in every program's process)
                access |= _READ_DIR
            rule = struct.pack("=Qi", access, opened)
            _done(_LIBC.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
            os.close(opened)
    return ruleset


def _done(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
