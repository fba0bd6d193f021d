"""Answers, programs, settings and processes of tests."""

import json
from contextlib import suppress

import psutil

from tasks.settings import CodeSettings, MathVerifySettings, VerifySettings
from tasks.verify.pool import Verifier, _Worker

HANGS = r"10^{10^{10}}"
"""An answer that math-verify would work on for hours."""


def boxed(answer: str) -> str:
    return rf"\boxed{{{answer}}}"


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def texts(*pairs: tuple[str, str]) -> str:
    """A reference answer of inputs and outputs."""
    return json.dumps({"inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]})


def calls(name: str, *pairs: tuple[list, object]) -> str:
    """A reference answer of arguments and results of a function."""
    return json.dumps({"fn_name": name, "inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]})


def asserts(*lines: str, setup: str = "") -> str:
    return json.dumps({"asserts": lines, "setup": setup})


def settings(**given) -> VerifySettings:
    """Settings without their bounds, and with a deadline that no ordinary answer misses on a busy machine."""
    return MathVerifySettings.model_construct(**{**dict(MathVerifySettings(deadline_seconds=10.0)), **given})


def code_settings(workers: int = 1, **limits) -> VerifySettings:
    return VerifySettings(kind="code", workers=workers, code=CodeSettings(**limits))


def workers_of(pid: int | None = None) -> list[psutil.Process]:
    """Workers, without the judges that they forked, below a process, by default this one."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "tasks.verify.worker" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return [one for one in found if one.ppid() not in {other.pid for other in found}]


def judge_pid(worker: _Worker) -> int:
    """Process id of a worker's judge, or of the worker before it has a judge."""
    return worker.judge_pid or worker._process.pid


def judge_pids(verifier: Verifier) -> list[int]:
    return [judge_pid(worker) for worker in verifier._workers]
