"""Pods of a cluster, as containers here: locked down as k8s asks, killed when a test says so."""

import signal
import threading
import time
import uuid
from pathlib import Path

from tests.images.podman import Podman
from tests.platform.four_stages import saved, stop
from tests.platform.propeller import Attempt
from tools.s3 import S3

# As k8s asks of every pod: no rights, and nothing to write to but /tmp.
LOCKED = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"]
SPACE = ["--tmpfs=/tmp:rw,mode=1777,size=1g"]


class Pods:
    """Starts attempts in containers."""

    def __init__(self, podman: Podman, s3: S3, bucket: str) -> None:
        self._podman, self._s3, self._bucket = podman, s3, bucket

    def start(self, attempt: Attempt) -> str:
        """Runs an attempt to its end; what it printed."""
        environment = {
            **attempt.environment,
            **self._s3.environment(Path("/tmp/cache")),
            "OMP_NUM_THREADS": "1",
        }
        name = f"mu-grpo-test-{uuid.uuid4().hex[:8]}"
        wanted = stop(attempt)
        ended = threading.Event()
        killer = threading.Thread(target=self._kill, args=(name, attempt, wanted, ended))
        if wanted:
            killer.start()
        done = self._podman(
            *("run", "--rm", f"--name={name}", "--network=host", *LOCKED, *SPACE, "--memory=4g"),
            *(f"--env={key}={value}" for key, value in environment.items()),
            attempt.image,
            *attempt.arguments,
        )
        ended.set()
        if wanted:
            killer.join()
            # 128 and more: ended by the signal; SIGTERM is heeded, and told in error.pb.
            assert wanted != signal.SIGKILL or done.returncode == 128 + wanted, done.stdout
        return done.stdout

    def _kill(self, name: str, attempt: Attempt, how: signal.Signals, ended: threading.Event) -> None:
        while not ended.is_set():
            if saved(self._s3, self._bucket):
                self._podman("kill", f"--signal={how.name}", name)
                return
            time.sleep(0.05)
