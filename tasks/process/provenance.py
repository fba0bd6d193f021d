"""Code, packages, process and machine of a step, for manifests."""

import hashlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import psutil

EXECUTION = "MU_GRPO_EXECUTION"
"""Environment variable by which a command gives its execution id to the processes that it starts."""
_SHORTEST_WAIT_SECONDS = 0.1
_PACKAGES = ("mu-grpo", "flytekit", "math-verify", "numpy", "pyarrow", "sympy", "tokenizers", "torch", "transformers")
_waits: list[tuple[float, float]] = []


class Process(NamedTuple):
    """Name and start of a process, for manifests."""

    name: str
    started: float
    """Unix seconds."""


def process() -> Process:
    """Return this process; a forked process differs from its parent."""
    return _process(os.getpid())


@cache
def _process(pid: int) -> Process:
    return Process(uuid.uuid4().hex, psutil.Process(pid).create_time())


def execution() -> str:
    """Return the execution id of this process: Flyte's in a pod, else that of the local command."""
    return os.environ.get("FLYTE_INTERNAL_EXECUTION_ID") or os.environ.setdefault(EXECUTION, uuid.uuid4().hex)


@contextmanager
def note_wait() -> Iterator[None]:
    """Record that this process only waits inside the block."""
    begun = time.time()
    try:
        yield
    finally:
        if time.time() - begun >= _SHORTEST_WAIT_SECONDS:
            _waits.append((begun, time.time()))


def waits() -> list[tuple[float, float]]:
    """Return the intervals in which this process only waited for another one, in Unix seconds."""
    return list(_waits)


@cache
def packages() -> dict[str, str]:
    """Return the versions of installed packages that can change a result."""
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def gpus() -> int:
    """Return the number of GPUs that this process sees, times the nodes of its group; 0 before torch is loaded."""
    torch = sys.modules.get("torch")  # Loading it takes seconds, and nothing uses a GPU without it.
    if torch is None:
        return 0
    nodes = int(os.environ.get("WORLD_SIZE", "1")) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return int(torch.cuda.device_count()) * max(1, nodes)


@cache
def commit() -> str:
    """Return the commit of the checkout, with ``+`` if tracked files differ from it, or that of the image.

    It is empty outside of both.
    """
    here = Path(__file__).parents[2]
    noted = here / "COMMIT"
    if noted.is_file():
        return noted.read_text()
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        state = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=here, check=False)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if state.returncode else "")


def image_tag() -> str:
    """Return the image tag of this code: the commit, with ``-dirty`` if changed, or the version without a commit."""
    known = commit()
    return known[:12] + ("-dirty" if known.endswith("+") else "") if known else packages().get("mu-grpo", "latest")


@cache
def code() -> str:
    """Return an identifier of the code of tasks and workflows: a digest, the version, and the commit or ``-``."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for folder in ("tasks", "workflows"):
        for file in sorted(root.glob(f"{folder}/**/*")):
            if file.suffix in (".py", ".j2", ".css", ".json"):
                digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return f"{digest.hexdigest()[:12]} {packages().get('mu-grpo', '-')} {commit()[:12] or '-'}"
