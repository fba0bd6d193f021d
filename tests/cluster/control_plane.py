"""A control plane on this machine: etcd and a real API server, and controllers and a scheduler where there are.

The folder of the programs is the one that ``setup-envtest use -p path`` names, or what ``make control-plane`` builds
from Debian's source package. Nodes are objects that a test makes; no kubelet runs: pods are placed, never started.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Self

import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.preflight.api_server import write_kubeconfig
from tests.waiting import until
from tools import ROOT
from tools.s3 import free_port

PROGRAMS = "KUBEBUILDER_ASSETS"
_BUILT = ROOT / ".control-plane"
_SERVER, _CONTROLLERS, _SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"
USERS = {
    "admin": ("admin", "system:masters"),
    "researcher": ("researcher", "mu-grpo"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
"""User and group, by the name of the kubeconfig."""
_CONTROLLED = "namespace,serviceaccount,serviceaccount-token,resourcequota"
"""Controllers, without those of nodes, which would regard the nodes of these tests as lost."""


def programs() -> Path | None:
    """Return the folder that has an API server and etcd, or None if there is none."""
    named = os.environ.get(PROGRAMS)
    folder = Path(named) if named else _BUILT
    return folder if all((folder / name).exists() for name in ("etcd", _SERVER)) else None


class ControlPlane:
    """Runs while its block does; keys, logs, kubeconfigs and etcd's data go to a folder."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self._programs, self._ending = folder, programs, ExitStack()
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.certificate = folder / "apiserver.crt"
        """The certificate of the authority that signed the server's certificate."""
        self.controls = (programs / _CONTROLLERS).exists()
        """True if controllers run, which count the use of a quota."""
        self.schedules = (programs / _SCHEDULER).exists()
        """True if a scheduler runs."""

    def __enter__(self) -> Self:
        with self._ending as ending:
            self._start()
            self._ending = ending.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def kubeconfig(self, user: str) -> Path:
        """Return a kubeconfig for this server, for one of ``USERS``."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        return write_kubeconfig(self.folder / f"{user}.kubeconfig", cluster, user, _token(user))

    @cached_property
    def git_version(self) -> str:
        """Version of the server, such as ``v1.33.1``."""
        with self.session() as session:
            return str(session.get(f"{self.url}/version").json()["gitVersion"])

    @property
    def version(self) -> tuple[int, int]:
        major, minor, *_ = self.git_version.removeprefix("v").split(".")
        return int(major), int(minor)

    def session(self) -> requests.Session:
        """Return a session that sends requests as the administrator."""
        session = requests.Session()
        session.trust_env = False
        session.verify = str(self.certificate)
        session.headers["Authorization"] = f"Bearer {_token('admin')}"
        return session

    def kubectl(self, *arguments: str) -> str:
        """Return the output of kubectl; its error fails the test."""
        command = [str(Path(sys.executable).parent / "kubectl"), "--kubeconfig", str(self.kubeconfig("admin"))]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _start(self) -> None:
        keys, tokens = self.folder / "accounts.pem", self.folder / "tokens.csv"
        private, coded = serialization.PrivateFormat.TraditionalOpenSSL, serialization.Encoding.PEM
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        keys.write_bytes(key.private_bytes(coded, private, serialization.NoEncryption()))
        tokens.write_text("".join(f'{_token(name)},{user},{name},"{group}"\n' for name, (user, group) in USERS.items()))
        etcd, peers = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        self._run(
            *("etcd", f"--data-dir={self.folder / 'etcd'}"),
            *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}"),
            *(f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"),
        )
        # Without the controller that creates tokens for accounts, no pod would be admitted.
        waived = [] if self.controls else ["--disable-admission-plugins=ServiceAccount"]
        self._run(
            _SERVER,
            *(f"--etcd-servers={etcd}", "--bind-address=127.0.0.1", f"--secure-port={self._port}"),
            *(f"--cert-dir={self.folder}", f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC"),
            *(f"--service-account-key-file={keys}", f"--service-account-signing-key-file={keys}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16"),
            *waived,
        )
        until(self._is_ready, seconds=90)
        own = ["--leader-elect=false", "--bind-address=127.0.0.1"]
        if self.controls:
            self._run(
                _CONTROLLERS,
                *(f"--kubeconfig={self.kubeconfig('controllers')}", f"--service-account-private-key-file={keys}"),
                *(f"--root-ca-file={self.certificate}", f"--controllers={_CONTROLLED}"),
                "--use-service-account-credentials",
                *(*own, f"--secure-port={free_port()}", f"--cert-dir={self.folder / 'controllers'}"),
            )
        if self.schedules:
            self._run(
                _SCHEDULER,
                *(f"--kubeconfig={self.kubeconfig('scheduler')}", *own),
                *(f"--secure-port={free_port()}", f"--cert-dir={self.folder / 'scheduler'}"),
            )

    def _run(self, program: str, *flags: str) -> None:
        # Older versions also listen without TLS, on a fixed port.
        help_of = [self._programs / program, "--help"]
        known = subprocess.run(help_of, capture_output=True, text=True, check=False).stdout
        closed = ["--port=0"] if "\n      --port int" in known else []
        log = self._ending.enter_context((self.folder / f"{program}.log").open("w"))
        environment = {**os.environ, "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}"}
        command = [self._programs / program, *flags, *closed]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)
        self._ending.callback(process.wait)
        self._ending.callback(process.kill)

    def _is_ready(self) -> bool:
        try:
            with self.session() as session:
                return session.get(f"{self.url}/readyz", timeout=5).ok
        except (OSError, requests.RequestException):
            return False  # The server does not listen yet.


def _token(user: str) -> str:
    return f"token-of-{user}"
