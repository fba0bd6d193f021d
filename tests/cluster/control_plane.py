"""A control plane on this machine: etcd and a real API server, and controllers and a scheduler where there are.

The folder of the programs is the one that ``setup-envtest use -p path`` names, or what ``make control-plane`` builds
from Debian's source package. Nodes are objects that a test makes; no kubelet runs: pods are placed, never started.
"""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import requests
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cluster.running import Running
from tools import ROOT
from tools.s3 import free_port

PROGRAMS = "KUBEBUILDER_ASSETS"
_BUILT = ROOT / ".control-plane"
_SERVER, _CONTROLLERS, _SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"
_PATIENCE_SECONDS = 90
USERS = {
    "admin": ("admin", "system:masters"),
    "researcher": ("researcher", "mu-grpo"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "node": ("system:node:worker", "system:nodes"),
}
"""By the name of the kubeconfig: user and group."""
_CONTROLLED = "namespace,serviceaccount,serviceaccount-token,resourcequota"


def programs() -> Path | None:
    """The folder that has an API server and etcd; None when there is none."""
    named = os.environ.get(PROGRAMS)
    folder = Path(named) if named else _BUILT
    return folder if all((folder / name).exists() for name in ("etcd", _SERVER)) else None


class ControlPlane(Running):
    """Runs while its block does.

    Args:
        folder: for keys, logs, kubeconfigs and etcd's data.
        programs: where the programs are.
        made_up_nodes: whether nodes are objects of the tests, which no controller may take for lost.
    """

    def __init__(self, folder: Path, programs: Path, made_up_nodes: bool = True) -> None:
        super().__init__(folder, programs)
        self._controlled = _CONTROLLED if made_up_nodes else f"{_CONTROLLED},nodelifecycle"
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.controls = (programs / _CONTROLLERS).exists()
        """Whether its controllers run: they count what a quota has left."""
        self.schedules = (programs / _SCHEDULER).exists()
        """Whether pods are placed."""

    @property
    def certificate(self) -> Path:
        """What the server's own is signed with."""
        return self.folder / "apiserver.crt"

    def kubeconfig(self, user: str) -> Path:
        """A file that points here, as one of ``USERS``."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": _token(user)}}],
            "contexts": [{"name": "right", "context": {"cluster": "here", "user": user}}],
            "current-context": "right",
        }
        path = self.folder / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    @cached_property
    def git_version(self) -> str:
        """Of the server, such as ``v1.33.1``."""
        with self.session() as session:
            return str(session.get(f"{self.url}/version").json()["gitVersion"])

    @property
    def version(self) -> tuple[int, int]:
        """Of the server, such as (1, 33)."""
        major, minor, *_ = self.git_version.removeprefix("v").split(".")
        return int(major), int(minor)

    def session(self, user: str = "admin") -> requests.Session:
        """Requests as a user."""
        session = requests.Session()
        session.trust_env = False
        session.verify = str(self.certificate)
        session.headers["Authorization"] = f"Bearer {_token(user)}"
        return session

    def kubectl(self, *arguments: str, user: str = "admin") -> str:
        """What kubectl prints; its error is the test's."""
        command = [str(Path(sys.executable).parent / "kubectl"), "--kubeconfig", str(self.kubeconfig(user))]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _start(self, ending: ExitStack) -> None:
        keys, tokens = self.folder / "accounts.pem", self.folder / "tokens.csv"
        _write_key(keys)
        tokens.write_text("".join(f'{_token(name)},{user},{name},"{group}"\n' for name, (user, group) in USERS.items()))
        etcd, peers = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        self._run(
            ending,
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}"),
            *(f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"),
        )
        # Without the controller that makes tokens for accounts, no pod would be let in.
        waived = [] if self.controls else ["--disable-admission-plugins=ServiceAccount"]
        self._run(
            ending,
            _SERVER,
            *(f"--etcd-servers={etcd}", "--bind-address=127.0.0.1", f"--secure-port={self._port}"),
            *(f"--cert-dir={self.folder}", f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC"),
            *(f"--service-account-key-file={keys}", f"--service-account-signing-key-file={keys}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16"),
            *waived,
        )
        self._wait()
        own = ["--leader-elect=false", "--bind-address=127.0.0.1"]
        if self.controls:
            self._run(
                ending,
                _CONTROLLERS,
                *(f"--kubeconfig={self.kubeconfig('controllers')}", f"--service-account-private-key-file={keys}"),
                *(f"--root-ca-file={self.certificate}", f"--controllers={self._controlled}"),
                "--use-service-account-credentials",
                *(*own, f"--secure-port={free_port()}", f"--cert-dir={self.folder / 'controllers'}"),
            )
        if self.schedules:
            self._run(
                ending,
                _SCHEDULER,
                *(f"--kubeconfig={self.kubeconfig('scheduler')}", *own),
                *(f"--secure-port={free_port()}", f"--cert-dir={self.folder / 'scheduler'}"),
            )

    def _run(self, ending: ExitStack, program: str, *flags: str) -> None:
        # Older ones also listen without TLS, on a port of everybody's.
        help_of = [self._programs / program, "--help"]
        known = subprocess.run(help_of, capture_output=True, text=True, check=False).stdout
        super()._run(ending, program, *flags, *(["--port=0"] if "\n      --port int" in known else []))

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                with self.session() as session:
                    if session.get(f"{self.url}/readyz", timeout=5).ok:
                        return
            except (OSError, requests.RequestException):
                pass  # It is not there yet.
            if time.monotonic() > deadline:
                raise TimeoutError((self.folder / f"{_SERVER}.log").read_text()[-4000:])
            time.sleep(0.1)


def _token(user: str) -> str:
    return f"token-of-{user}"


def _write_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
