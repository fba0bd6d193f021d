"""Four stages on a cluster: each task a pod that is admitted, placed, and run by a kubelet under the pod template."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.conftest import started
from tests.cluster.control_plane import ControlPlane, programs
from tests.cluster.flyte_pods import pod_of
from tests.cluster.kubelet import HOST, Kubelet
from tests.images.podman import Podman
from tests.platform.four_stages import drive, register, run_here, saved, stop
from tests.platform.propeller import Attempt
from tests.preflight.clusters import NAMESPACE
from tools import ROOT
from tools.s3 import S3, server
from tools.serialised import Serialised, function_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]
_SECONDS = 600
"""That a pod may take."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """An empty cluster, whose nodes are real."""
    (tmp_path / "control-plane").mkdir()
    with started(tmp_path / "control-plane", made_up_nodes=False) as found:
        yield found


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[Kubelet]:
    """What runs pods, where the machine can."""
    found = programs()
    assert found is not None
    if missing := Kubelet.missing(found):
        pytest.skip(f"no kubelet here: there is no {missing}")
    with TemporaryDirectory(prefix="node") as folder, Kubelet(plane, found, Path(folder)) as started:
        yield started


class ClusterPods:
    """Starts attempts as pods of the cluster."""

    def __init__(self, plane: ControlPlane, node: Kubelet, found: Serialised, s3: S3, bucket: str) -> None:
        self._plane, self._node, self._s3, self._bucket = plane, node, s3, bucket
        self._tasks = {function_of(name): task for name, task in found.tasks.items()}
        self._api, self._numbers = Api(plane), count()
        self.ended: dict[str, str] = {}
        """How every pod ended, by name: its phase, or ``deleted``."""

    def start(self, attempt: Attempt) -> str:
        """Runs an attempt to its end; what it printed."""
        pod = self._pod(attempt)
        name, wanted = pod["metadata"]["name"], stop(attempt)
        answer = self._api.create(pod)
        assert answer.ok, answer.text
        printed, deadline = "", time.monotonic() + _SECONDS
        while True:
            found = self._api.get("Pod", name, NAMESPACE)
            printed = self._node.log(found) if found else printed
            deleted = found is None or "deletionTimestamp" in found["metadata"]
            phase = found["status"]["phase"] if found else "gone"
            if phase in ("Succeeded", "Failed", "gone"):
                break
            assert time.monotonic() < deadline, f"{name}: {phase}\n{found}\n{printed}"
            if wanted and saved(self._s3, self._bucket):
                if wanted == signal.SIGKILL:
                    self._node.kill(found)
                else:  # As a node that is drained does it: SIGTERM, and the template's grace period to heed it.
                    self._plane.kubectl("delete", "pod", "-n", NAMESPACE, name, "--wait=false")
                wanted = None
            time.sleep(0.1)
        self.ended[name] = "deleted" if deleted else phase
        if found:
            self._api.delete(pod)
        return printed

    def _pod(self, attempt: Attempt) -> Object:
        function = function_of(attempt.task)
        task = self._tasks[function]
        template = self._api.get("PodTemplate", task.template.metadata.pod_template_name, NAMESPACE)
        assert template is not None
        pod = pod_of(f"{function.replace('_', '-')}-{next(self._numbers)}", task, template)
        given = {**attempt.environment, **self._s3.environment(Path("/tmp/cache")), "OMP_NUM_THREADS": "1"}
        (container,) = pod["spec"]["containers"]
        container |= {"args": attempt.arguments, "env": [{"name": key, "value": given[key]} for key in given]}
        return pod


def test_four_stages_as_pods_make_what_the_run_here_makes(plane: ControlPlane, node: Kubelet, tmp_path: Path) -> None:
    """Two trainings are stopped in the middle: one is killed, the other's pod is deleted."""
    podman = Podman(tmp_path)
    image = podman.build("cpu")
    archive = tmp_path / "image.tar"
    assert podman("save", "--quiet", f"--output={archive}", image).returncode == 0
    node.load(archive)
    archive.unlink()
    plane.kubectl("apply", "-k", "k8s/overlays/development")
    with server(host=HOST) as s3, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment(tmp_path / "cache").items():
            patch.setenv(name, value)
        bucket = s3.bucket()
        found = register(image, tmp_path, ROOT / "configs/deployments/development.yaml")
        pods = ClusterPods(plane, node, found, s3, bucket)
        drive(found, s3, bucket, pods.start, run_here(tmp_path / "here"))
    ends = Counter(pods.ended.values())
    assert (ends["Failed"], ends["deleted"], ends["Succeeded"]) == (1, 1, len(pods.ended) - 2)
