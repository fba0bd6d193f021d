"""The Flyte, the Kubernetes and the store that the environment names, as tests ask and disturb them."""

import os
import shlex
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import boto3
import kubernetes
import pytest
import yaml
from flytekit.configuration import Config
from flytekit.models.core.identifier import WorkflowExecutionIdentifier
from flytekit.remote import FlyteRemote
from kubernetes.stream import stream

from tasks.flyte.remote import Execution, ExecutionState, Flyte, NoAnswerError
from tasks.settings.deployment import DeploymentSettings
from tasks.store import ArtifactRef, Store
from tools import ROOT

PROJECT = os.environ.get("FLYTE_DEFAULT_PROJECT", "mu-grpo")
DOMAIN = os.environ.get("FLYTE_DEFAULT_DOMAIN", "development")
NAMESPACE = f"{PROJECT}-{DOMAIN}"
BIN = Path(sys.executable).parent
_KINDS = ("prompts", "policy", "rollouts", "verdicts", "evaluation")
_LOOK = 1.0
Found = TypeVar("Found")


def missing() -> str:
    """Which variable names no Flyte; empty where all do."""
    return next((name for name in ("FLYTECTL_CONFIG", "KUBECONFIG") if not os.environ.get(name)), "")


def until(what: str, look: Callable[[], Found], seconds: float = 900) -> Found:
    """What ``look`` finds, once it finds something; a Flyte that does not answer is asked again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(NoAnswerError):
            if found := look():
                return found
        time.sleep(_LOOK)
    pytest.fail(f"after {seconds:.0f} s: no {what}")


def made(store: Store) -> dict[str, set[ArtifactRef]]:
    """The artifacts of a store that decide results, by kind."""
    return {kind: {manifest.ref for manifest in store.manifests(kind)} for kind in _KINDS}


def foreign(there: Mapping[str, set[ArtifactRef]], here: Mapping[str, set[ArtifactRef]]) -> list[str]:
    """Artifacts of one store that the other does not have."""
    return sorted(str(ref) for kind in there for ref in there[kind] - here[kind])


@dataclass
class Cluster:
    """A Flyte with its cluster, where ``version`` is registered for ``deployment``."""

    version: str
    folder: Path
    deployment: DeploymentSettings
    flyte: Flyte = field(init=False)

    def __post_init__(self) -> None:
        kubernetes.config.load_kube_config()
        self.pods_api = kubernetes.client.CoreV1Api()
        self.objects_api = kubernetes.client.CustomObjectsApi()
        self.flyte = Flyte(None, PROJECT, DOMAIN)
        self.remote = FlyteRemote(Config.auto(), PROJECT, DOMAIN)
        self.bucket = self.deployment.store.removeprefix("s3://").partition("/")[0]
        own = {name.removeprefix("FLYTE_"): value for name, value in os.environ.items() if name.startswith("FLYTE_AWS")}
        self.s3 = boto3.client(
            "s3",
            endpoint_url=os.environ.get("AWS_ENDPOINT_URL") or own.get("AWS_ENDPOINT"),
            aws_access_key_id=own.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=own.get("AWS_SECRET_ACCESS_KEY"),
            region_name=os.environ.get("AWS_DEFAULT_REGION", "us-east-1"),
        )

    # What is registered and started

    def run(self, *words: str, deployment: Path | None = None, **given: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of this environment at the project's root, by default for the deployment that it names."""
        chosen = {"MU_GRPO_DEPLOYMENT": str(deployment)} if deployment else {}
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "200", **chosen, **given}
        return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    def changed_deployment(self, name: str, **changes: Any) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**self.deployment.model_dump(mode="json"), **changes}))
        return path

    def register(self, version: str, deployment: Path) -> subprocess.CompletedProcess[str]:
        place = ("--project", PROJECT, "--domain", DOMAIN, "--version", version)
        return self.run("pyflyte", "register", "--copy", "none", *place, "workflows", deployment=deployment)

    def start(self, plan: str, version: str = "", **given: str) -> Execution:
        """Starts a plan, in a store of the execution's own unless one is given."""
        name = f"t{uuid.uuid4().hex[:12]}"
        found = self.flyte.plan(plan, version or self.version)
        return self.flyte.start(found, {"store": self.store_of(name), **given}, name)

    def store_of(self, name: str) -> str:
        """Where an execution keeps its artifacts, which nothing else uses."""
        return f"{self.deployment.store.rstrip('/')}/{self.version}/{name}"

    def artifacts(self, store: str) -> dict[str, set[ArtifactRef]]:
        return made(Store.open(store, create=False))

    # What an execution does

    def ended(self, execution: Execution, phase: str = "succeeded") -> ExecutionState:
        """The execution when it has ended, as it is expected to."""

        def look() -> ExecutionState | None:
            seen = execution.state()
            return seen if seen.done else None

        seen = until(f"end of {execution.name}", look, 2700)
        assert seen.phase == phase, f"{execution.name} {seen.phase}: {seen.error}"
        return seen

    def terminate(self, execution: Execution) -> None:
        """As a person does in the console."""
        self.remote.client.terminate_execution(WorkflowExecutionIdentifier(PROJECT, DOMAIN, execution.name), "test")

    def recover(self, execution: Execution, name: str) -> Execution:
        """*Recover* in the console."""
        self.remote.client.recover_execution(WorkflowExecutionIdentifier(PROJECT, DOMAIN, execution.name), name)
        return until("recovered execution", lambda: self.flyte.find(name), 60)

    def resource(self, name: str) -> dict[str, Any] | None:
        """Flyte's record of an execution in the cluster."""
        try:
            place = ("flyte.lyft.com", "v1alpha1", NAMESPACE, "flyteworkflows")
            return self.objects_api.get_namespaced_custom_object(*place, name)
        except kubernetes.client.ApiException:
            return None

    # Pods

    def pods(self, execution: Execution) -> list[Any]:
        """Those of an execution, also the ended ones."""
        found = self.pods_api.list_namespaced_pod(NAMESPACE, label_selector=f"execution-id={execution.name}").items
        return list(found)

    def running(self, execution: Execution, task: str) -> Any:
        """The first running pod of a task, by the beginning of its name: ``prepare-policy``, ``map-generate``."""

        def look() -> Any:
            seen = execution.state()
            assert not seen.done, f"{execution.name} {seen.phase} before {task} ran: {seen.error}"
            pods = [pod for pod in self.pods(execution) if pod.status.phase == "Running"]
            return next((pod for pod in pods if task_of(pod).startswith(task)), None)

        return until(f"running pod of {task}", look)

    def delete(self, pod: Any) -> None:
        """As when its node is drained: SIGTERM, and the grace period of its template."""
        self.pods_api.delete_namespaced_pod(pod.metadata.name, NAMESPACE)

    def kill(self, pod: Any) -> None:
        """SIGKILL to all that runs in it but its init, which ends as they do."""
        command, streams = ["sh", "-c", "kill -9 -1"], {"stdin": False, "stdout": True, "stderr": True, "tty": False}
        connect = self.pods_api.connect_get_namespaced_pod_exec
        stream(connect, pod.metadata.name, NAMESPACE, command=command, **streams)

    # The store

    def objects(self, prefix: str) -> dict[str, Any]:
        """When every object below a prefix of the bucket was written."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return {one["Key"]: one["LastModified"] for page in pages for one in page.get("Contents", [])}

    @contextmanager
    def watched(self, store: str) -> Iterator[Mapping[str, set[Any]]]:
        """When the states of a store's unfinished trainings were written, by their manifests; seen every second."""
        _, _, prefix = store.removeprefix("s3://").partition("/")
        written: dict[str, set[Any]] = defaultdict(set)
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK):
                for key, when in self.objects(f"{prefix}/progress/").items():
                    if "/train-" in key and key.endswith("/manifest.json"):
                        written[key].add(when)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield written
        finally:
            ended.set()
            thread.join()


def commands_of(what: str) -> tuple[str, str]:
    """The variables that name commands which stop the STORE or the DATABASE, and start it again."""
    return f"MU_GRPO_TEST_{what}_STOP", f"MU_GRPO_TEST_{what}_START"


def can_stop(what: str) -> bool:
    return all(map(os.environ.get, commands_of(what)))


def take_away(what: str, seconds: float) -> None:
    """Stops the store or the database, and starts it again after so many seconds."""
    stop, start = (shlex.split(os.environ[name]) for name in commands_of(what))
    subprocess.run(stop, check=True)
    try:
        time.sleep(seconds)
    finally:
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL)


def task_of(pod: Any) -> str:
    """The function of a pod's task, of which Flyte makes a label: ``tasks-flyte-uncached-open-run``."""
    return pod.metadata.labels["task-name"].split("-", 3)[3]
