"""A node of a real cluster on this machine: a kubelet and containerd, with a bridge of their own for pods."""

import json
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import yaml

from tests.cluster.api import Api, Object, until
from tests.cluster.control_plane import ControlPlane
from tests.cluster.running import Running

NAME, BRIDGE = "worker", "mu-grpo-pods"
SUBNET, HOST = "198.51.100.0/24", "198.51.100.1"
"""Of the pods' bridge: addresses that are nobody's, and this machine's among them."""
_PROGRAMS = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "pause")
_PLUGINS, _LOGS = Path("/usr/lib/cni"), Path("/var/log/pods")
_PAUSE = "localhost/pause:here"


class Kubelet(Running):
    """Runs while its block does, and with it the node ``worker``.

    Args:
        plane: the cluster that the node belongs to.
        programs: where kubelet, containerd, its shim, ctr and pause are.
        folder: for images, containers and logs; a short path, since it holds sockets.
    """

    def __init__(self, plane: ControlPlane, programs: Path, folder: Path) -> None:
        super().__init__(folder, programs)
        self._plane, self._socket = plane, folder / "containerd.sock"

    @staticmethod
    def missing(programs: Path) -> str:
        """What this machine lacks for a node; empty when it lacks nothing."""
        lacking = [name for name in _PROGRAMS if not (programs / name).exists()]
        lacking += [name for name in ("podman", "runc", "ip") if shutil.which(name) is None]
        lacking += [] if (_PLUGINS / "bridge").exists() else [f"{_PLUGINS}/bridge"]
        lacking += [] if os.geteuid() == 0 else ["root"]
        return ", ".join(lacking)

    def log(self, pod: Object) -> str:
        """What the containers of a pod have printed."""
        metadata = pod["metadata"]
        folder = _LOGS / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        return "".join(path.read_text(errors="replace") for path in sorted(folder.glob("*/*.log")))

    def kill(self, pod: Object) -> None:
        """Kills the processes of a pod's containers, as a machine that runs out of memory does."""
        uid, kind = pod["metadata"]["uid"], "container"
        labels = f'labels."io.kubernetes.pod.uid"=={uid},labels."io.cri-containerd.kind"=={kind}'
        for container in self._ctr("containers", "ls", "-q", labels).split():
            self._ctr("tasks", "kill", "--all", "--signal=SIGKILL", container)

    def load(self, archive: Path) -> None:
        """Makes the images of an archive known to the node."""
        self._ctr("images", "import", str(archive))

    def _start(self, ending: ExitStack) -> None:
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)  # of a test that was killed
        subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
        ending.callback(subprocess.run, ["ip", "link", "delete", BRIDGE], check=True)
        for command in (["address", "add", f"{HOST}/24", "dev", BRIDGE], ["link", "set", BRIDGE, "up"]):
            subprocess.run(["ip", *command], check=True)
        network = self.folder / "network"
        network.mkdir()
        addresses = {"type": "host-local", "ranges": [[{"subnet": SUBNET}]], "dataDir": str(self.folder / "addresses")}
        bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipam": addresses}
        pods = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (network / "pods.conflist").write_text(json.dumps(pods))
        configuration = self.folder / "containerd.toml"
        configuration.write_text(
            f"""version = 2
root = "{self.folder}/images"
state = "{self.folder}/state"
[grpc]
address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{_PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{_PLUGINS}"
conf_dir = "{network}"
[plugins."io.containerd.internal.v1.opt"]
path = "{self.folder}/opt"
"""
        )
        ending.callback(self._unmount)
        self._run(ending, "containerd", f"--config={configuration}")
        until(self._socket.exists)
        ending.callback(self._remove_containers)
        self.load(self._pause())
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "resolvConf": "",
            "healthzPort": 0,
            "makeIPTablesUtilChains": False,
            # The disk is this machine's, which others fill.
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
        }
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(settings))
        self._run(
            ending,
            "kubelet",
            *(f"--kubeconfig={self._plane.kubeconfig('node')}", f"--config={self.folder / 'kubelet.yaml'}"),
            *(f"--hostname-override={NAME}", f"--root-dir={self.folder / 'kubelet'}", "--container-runtime=remote"),
            *(f"--container-runtime-endpoint=unix://{self._socket}", f"--cert-dir={self.folder / 'certificates'}"),
        )
        until(self._ready, seconds=90)

    def _ready(self) -> bool:
        found = Api(self._plane).get("Node", NAME)
        conditions = {one["type"]: one["status"] for one in (found or {"status": {}})["status"].get("conditions", [])}
        return conditions.get("Ready") == "True"

    def _pause(self) -> Path:
        """What holds a pod's namespaces, as an archive of an image."""
        (self.folder / "Containerfile").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
        archive = self.folder / "pause.tar"
        build = ["podman", "build", "-q", "-f", self.folder / "Containerfile", "-t", _PAUSE, self._programs]
        for command in (build, ["podman", "save", "-q", "-o", archive, _PAUSE]):
            subprocess.run(command, check=True, capture_output=True)
        return archive

    def _remove_containers(self) -> None:
        """Those that a test that failed left behind: containerd does not end them."""
        for container in self._ctr("containers", "ls", "-q").split():
            self._ctr("tasks", "kill", "--all", "--signal=SIGKILL", container, check=False)
            self._ctr("tasks", "delete", "--force", container, check=False)

    def _unmount(self) -> None:
        places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in reversed([place for place in places if place.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", place], check=True)

    def _ctr(self, *arguments: str, check: bool = True) -> str:
        command = [str(self._programs / "ctr"), f"--address={self._socket}", "--namespace=k8s.io", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout
