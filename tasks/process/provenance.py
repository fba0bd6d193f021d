"""Provenance of an artifact, for its manifest: process, execution, packages, GPUs and code."""

import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import psutil

EXECUTION = "MU_GRPO_EXECUTION"
"""Environment variable that passes the id of an execution on this machine to child processes."""
DATA_SUFFIXES = (".j2", ".css", ".yaml", ".mplstyle")
"""Suffixes of the files in tasks/ that are read as data, as pyproject.toml packs them."""
_DRIVER_SECONDS = 60
"""Longest wait for an answer of the driver, which may hang; a step is then committed without the names of its GPUs."""
_PACKAGES = (
    *("mu-grpo", "flytekit", "math-verify", "numpy", "pyarrow", "sympy", "tokenizers", "torch", "transformers"),
    *("deepspeed", "liger-kernel", "peft", "triton", "vllm"),
)
waits: list[tuple[float, float]] = []
"""Start and end of the times in which this process waited for another one, in Unix seconds."""


class Process(NamedTuple):
    """Unique name and start of a process."""

    name: str
    started: float
    """Unix seconds."""


@cache
def process() -> Process:
    """Return the name and start of this process; a forked process has a name of its own."""
    return Process(uuid.uuid4().hex, psutil.Process().create_time())


os.register_at_fork(after_in_child=process.cache_clear)


def execution_id() -> str:
    """Return the id of the execution of this process: Flyte's id in a pod, else that of the command."""
    return os.environ.get("FLYTE_INTERNAL_EXECUTION_ID") or os.environ.setdefault(EXECUTION, uuid.uuid4().hex)


@cache
def packages() -> dict[str, str]:
    """Return the installed versions of the packages that can change a result."""
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def gpus() -> int:
    """Return the number of GPUs that this process sees, times the nodes of its group; 0 before torch is imported."""
    torch = sys.modules.get("torch")  # Not imported here: that takes seconds, and without torch nothing uses a GPU.
    if torch is None:
        return 0
    nodes = int(os.environ.get("WORLD_SIZE", "1")) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return int(torch.cuda.device_count()) * max(1, nodes)


@cache
def gpu_models() -> list[str]:
    """Return name, memory and driver of each GPU of this machine, as nvidia-smi prints them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=False, timeout=_DRIVER_SECONDS)
    except subprocess.TimeoutExpired:
        return []
    return [] if answer.returncode else answer.stdout.splitlines()  # Its errors go to standard output.


@cache
def commit() -> str:
    """Return the commit of the image or of the git checkout; empty where there is neither.

    The commit of a checkout ends with ``+`` if tracked files have changed, or tasks/ or workflows/ have untracked ones.
    """
    root = Path(__file__).parents[2]
    image_commit = root / "COMMIT"
    if image_commit.is_file():
        return image_commit.read_text()
    if not (root / "pyproject.toml").is_file():  # An installed package may be inside of a checkout of another project.
        return ""
    try:
        head, untracked = (
            subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            for command in (
                ("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"),
                ("ls-files", "--others", "--exclude-standard", "tasks", "workflows"),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head if head.endswith("+") or not untracked else f"{head}+"


def uncommitted_change() -> tuple[str, float] | None:
    """Return the file in tasks/ that was changed last without a commit, and when, in Unix seconds; None without one."""
    root = Path(__file__).parents[2]
    if not commit().endswith("+") or not (root / ".git").exists():
        return None
    status = ("git", "status", "--porcelain", "--untracked-files=all", "tasks")
    lines = subprocess.run(status, cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()
    files = [root / line[3:].rpartition(" -> ")[2] for line in lines]
    times = {str(file.relative_to(root)): file.stat().st_mtime for file in files if file.is_file()}
    return max(times.items(), key=itemgetter(1), default=None)


def image_tag() -> str:
    """Return the tag of the images of this code: the commit, with ``-dirty`` after changes; else the version."""
    head = commit()
    if not head:
        return packages().get("mu-grpo", "latest")
    return head[:12] + ("-dirty" if head.endswith("+") else "")


@cache
def code() -> str:
    """Return the identity of the code in tasks/ and workflows/: its digest, the version, and the commit or ``-``."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for folder in ("tasks", "workflows"):
        for file in sorted(root.glob(f"{folder}/**/*")):
            if file.suffix in (".py", *DATA_SUFFIXES):
                digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return f"{digest.hexdigest()[:12]} {packages().get('mu-grpo', '-')} {commit()[:12] or '-'}"
