"""The system calls that a confined program has: memory, time, threads, and reading files that are open to it.

What is not here fails: sockets, processes, signals, programs, everything that names a file but to read it, memory that
outlives a process, other processes, io_uring, which would go around the filter.
"""

import platform

# Name, number on x86_64, number on aarch64 ("-": has none); linux/arch/x86/entry/syscalls/syscall_64.tbl and
# linux/include/uapi/asm-generic/unistd.h.
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
"""By the machine's name: the column of the table, and what the kernel calls such calls (linux/audit.h)."""


def machine() -> str:
    """Return this machine's name, as in ``known_machines``."""
    return platform.machine()


def known_machines() -> list[str]:
    """Return the machines that a filter can be written for."""
    return list(_MACHINES)


def numbers(machine: str) -> dict[str, int]:
    """Return the numbers of the allowed calls that a machine has, by name."""
    column, _ = _MACHINES[machine]
    rows = [entry.split() for entry in _TABLE.replace("\n", " ").split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def architecture(machine: str) -> int:
    """Return AUDIT_ARCH of a machine's own calls; a 32-bit call has another one."""
    return _MACHINES[machine][1]
