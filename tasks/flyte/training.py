"""Training tasks in several processes: Flyte's Elastic tasks, with the number of processes from the settings."""

import json
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from flytekit import FlyteContextManager, PythonFunctionTask, current_context
from flytekit.core.constants import OUTPUT_FILE_NAME
from flytekit.exceptions.base import FlyteException
from flytekit.extend import IgnoreOutputs, TaskPlugins
from flytekitplugins.kfpytorch import CleanPodPolicy, Elastic, RunPolicy
from flytekitplugins.kfpytorch.task import PytorchElasticFunctionTask

from tasks.errors import DeviceError, SettingsError, UserError
from tasks.flyte import decks
from tasks.flyte.attempts import ERROR_PATH, close_connections_at_exit, to_flyte_error
from tasks.flyte.decorators import DEPLOYMENT
from tasks.flyte.inputs import StepInputs
from tasks.process.interruption import Interrupted
from tasks.settings import OptimizeSettings

NODES = int(os.environ.get("PET_NNODES", str(DEPLOYMENT.train_nodes)).split(":")[-1])
"""Number of nodes of a training task: the deployment's at registration, the training operator's in a pod."""


@dataclass
class Training(Elastic):  # type: ignore[misc]  # the plugin has no types
    """Configuration of a task whose number of processes is set by the backend of its OptimizeSettings."""


_JOB_SECONDS = 12 * 3600
"""Seconds for which a finished job of several nodes is kept; Flyte keeps pods as long (k8s/flyte/values.yaml)."""
TRAINING = Training(
    nnodes=NODES,
    # Seconds. A pod waits as long for the pod of rank 0, for which torch's default is one minute.
    rdzv_configs=dict.fromkeys(("timeout", "join_timeout", "read_timeout"), 900),
    increase_shared_mem=False,
    # When a pod is lost, the others wait for it for hours, with their GPUs and the lease that the next attempt needs.
    run_policy=RunPolicy(clean_pod_policy=CleanPodPolicy.RUNNING, ttl_seconds_after_finished=_JOB_SECONDS),
)

SHUTDOWN_SECONDS = 840
"""Seconds from SIGTERM to the kill by torch, in which a group of processes can save a checkpoint; a little less than
the grace period of k8s/base/pod-templates/train.yaml."""

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals for which Elastic installs handlers."""
POLL_SECONDS = 10.0
"""Seconds between two checks whether the node of rank 0 has written its outputs."""


class TrainingTask(PytorchElasticFunctionTask):  # type: ignore[misc]  # the plugin has no types
    """An Elastic task whose number of processes follows from its inputs."""

    def __init__(self, task_config: Training, task_function: Callable[..., object], **options: Any) -> None:
        # The plugin's constructor imports torch, which a run that finds everything in the cache does not need.
        PythonFunctionTask.__init__(
            self,
            task_config=task_config,
            task_function=task_function,
            task_type=self._ELASTIC_TASK_TYPE if NODES > 1 else self._ELASTIC_TASK_TYPE_STANDALONE,
            task_type_version=1,
            **options,
        )
        self.min_nodes = self.max_nodes = NODES
        self.rdzv_backend = "c10d"

    def execute(self, **inputs: Any) -> Any:
        """Run the step in this process, or in a group of processes."""
        fields = [value for record in inputs.values() if isinstance(record, StepInputs) for _, value in record]
        (backend,) = (value.backend for value in fields if isinstance(value, OptimizeSettings))
        if backend.kind == "torch":
            if NODES > 1:
                raise SettingsError(
                    f"optimize.backend.kind: torch with the deployment's train_nodes {NODES}; allowed: deepspeed, or a "
                    "deployment with train_nodes 1."
                )
            return PythonFunctionTask.execute(self, **inputs)
        close_connections_at_exit()
        self._task_config = replace(self.task_config, nproc_per_node=backend.processes)
        current_context().decks.clear()
        started = time.time()
        try:
            with relay_errors():
                return super().execute(**inputs)
        except Exception as error:
            if isinstance(error, UserError):
                decks.show_unfinished(self.name.rpartition(".")[2], fields, error, started)
            raise to_flyte_error(error) from error.__cause__


TaskPlugins.register_pythontask_plugin(Training, TrainingTask)


@contextmanager
def relay_errors() -> Iterator[None]:
    """Replace Elastic's error by the one that a process of the group wrote, and give it time to save a checkpoint.

    Elastic leaves its handlers of signals behind, which would end a later step with a traceback.
    """
    handlers = {number: signal.getsignal(number) for number in _HANDLED}
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        error_file = Path(folder) / "error.json"
        os.environ[ERROR_PATH] = str(error_file)
        os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SHUTDOWN_SECONDS))
        try:
            yield
        except (FlyteException, IgnoreOutputs) as error:
            if error_file.is_file() and (text := error_file.read_text()):  # A full disk leaves an empty file.
                kind, message = json.loads(text)
                raise resolve_name(kind)(message) from None
            if type(error.__context__).__name__ == "ChildFailedError":
                rank, failure = error.__context__.get_first_failure()
                if failure.exitcode == -signal.SIGKILL:
                    raise DeviceError(
                        f"process {rank} of the training was killed, as for lack of memory. Start the same command "
                        "again: it continues from the last checkpoint."
                    ) from None
            if type(error.__context__).__name__ != "SignalException":  # IgnoreOutputs also ends a node without rank 0.
                if isinstance(error, IgnoreOutputs):
                    _await_outputs()
                raise
            raise Interrupted("stopped by a signal. Start the same command again: it continues.") from None
        finally:
            del os.environ[ERROR_PATH]
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _await_outputs() -> None:
    """Wait for the outputs of the node of rank 0, because the training operator ends a job when its first pod ends.

    Rank 0 uploads the policy after the others have finished, and torch lets them wait for it for five minutes only.
    """
    from tasks.store.s3 import TRANSFER_ERRORS

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torch's handler would turn the end of the job into an error.
    files, outputs = FlyteContextManager.current_context().file_access, current_context().output_metadata_prefix
    written = False
    while not written:
        with suppress(*TRANSFER_ERRORS):
            written = files.exists(f"{outputs}/{OUTPUT_FILE_NAME}")
        time.sleep(POLL_SECONDS)  # The last wait is for the deck, which follows the outputs.
