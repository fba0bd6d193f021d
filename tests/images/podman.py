"""Images built and run without a registry: the base is made of Debian's packages."""

import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from tools import ROOT
from tools.system_programs import missing, require

BASE = "localhost/mu-grpo-test-base:bookworm"
_INCLUDED = "python3,python3-venv,ca-certificates"
# What a machine inside of another container needs; elsewhere it does no harm.
_SETTINGS = """[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Podman:
    """podman with settings of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self.program = require("podman")
        settings = folder / "containers.conf"
        settings.write_text(_SETTINGS + ('runtime = "runc"\n' if shutil.which("runc") else ""))
        self.environment = {**os.environ, "CONTAINERS_CONF": str(settings)}
        if (tried := self("info")).returncode:
            missing(f"podman does not run here: {tried.stdout.splitlines()[-1]}")

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of podman; what it prints to both streams is in ``stdout``."""
        return self._run([self.program, *arguments], timeout=300)

    def _run(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(command, env=self.environment, **streams, **options)

    def make_base(self) -> None:
        if self("image", "exists", BASE).returncode == 0:
            return
        debian = [require("mmdebstrap"), "--quiet", "--variant=minbase", f"--include={_INCLUDED}", "bookworm", "-"]
        with subprocess.Popen(debian, stdout=subprocess.PIPE) as made:
            subprocess.run([self.program, "import", "-", BASE], env=self.environment, stdin=made.stdout, check=True)
        assert made.returncode == 0

    def build(self, role: str, stage: str = "") -> str:
        """Builds an image, or one stage of it, by ``make image-<role>``; returns its name."""
        self.make_base()
        tag = f"test-{stage}" if stage else "test"
        flags = [*_flags(), *([f"--target={stage}"] if stage else [])]
        command = ["make", f"image-{role}", f"TAG={tag}", "VERSION=test", f"BUILD_FLAGS={' '.join(flags)}"]
        made = self._run(command, cwd=ROOT)
        assert made.returncode == 0, made.stdout
        return f"localhost/mu-grpo-{role}:{tag}"


def torch_for_cpus_is_reached() -> bool:
    """Return True if torch's build for CPUs is found at ``PIP_FIND_LINKS``, by default torch's own index."""
    links = os.environ.get("PIP_FIND_LINKS", "https://download.pytorch.org/whl/cpu/torch/")
    if "://" not in links:
        return any(Path(links).glob("torch-*+cpu-*.whl"))
    try:
        urllib.request.urlopen(links, timeout=10).close()
    except OSError:
        return False
    return True


def _flags() -> list[str]:
    """How this machine's pip finds packages, for the pip in the builder; its certificates and cache are mounted."""
    caches = [Path("~/.cache").expanduser() / name for name in ("pip", "uv")]
    flags = ["--network=host", f"--build-arg=BASE_IMAGE={BASE}"]
    for cache in caches:
        cache.mkdir(parents=True, exist_ok=True)
        flags.append(f"-v={cache}:/root/.cache/{cache.name}")
    for name in ("PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        value = os.environ.get(name)
        if value:
            flags.append(f"--build-arg={name}={value}")
            if Path(value).exists():
                flags.append(f"-v={value}:{value}:ro")
    if "PIP_FIND_LINKS" in os.environ:
        flags.append("--build-arg=TORCH_INDEX=")
    return flags
