"""Client of Flyte: finds launch plans, starts executions, and reads the state of their nodes and pods."""

import configparser
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import yaml
from flyteidl.admin.common_pb2 import NamedEntityIdentifierListRequest, ResourceListRequest, Sort
from flyteidl.admin.execution_pb2 import WorkflowExecutionGetRequest
from flyteidl.admin.node_execution_pb2 import NodeExecution, NodeExecutionGetRequest, NodeExecutionListRequest
from flyteidl.admin.project_pb2 import ProjectListRequest
from flyteidl.admin.task_execution_pb2 import TaskExecutionListRequest
from flyteidl.core.catalog_pb2 import CACHE_HIT
from flyteidl.core.execution_pb2 import NodeExecution as NodePhase
from flyteidl.core.execution_pb2 import TaskExecution as TaskPhase
from flyteidl.core.execution_pb2 import WorkflowExecution as WorkflowPhase
from flyteidl.core.identifier_pb2 import WorkflowExecutionIdentifier
from flytekit.clients.auth.exceptions import AuthenticationError, AuthenticationPending
from flytekit.clients.grpc_utils.deadline_interceptor import scoped_grpc_deadline
from flytekit.configuration import Config
from flytekit.configuration.file import get_config_file
from flytekit.configuration.internal import Platform
from flytekit.exceptions.base import FlyteException
from flytekit.exceptions.user import FlyteAuthenticationException, FlyteEntityNotExistException, FlyteTimeout
from flytekit.models.types import LiteralType, SimpleType
from flytekit.remote import FlyteRemote
from flytekit.remote.entities import FlyteLaunchPlan

import tasks.settings
from tasks.cluster.services import OLDEST_FLYTE, version_numbers
from tasks.errors import DeploymentError, SettingsError
from tasks.experiments.result import LaboratoryResult, ReproductionResult
from tasks.report.summary import PolicyAccuracies, RescoredRun, RunSummary
from tasks.settings import Settings
from tasks.settings.base import load_yaml
from tasks.settings.deployment import VARIABLE

EXAMPLE = 'admin: {endpoint: "dns:///localhost:8089", insecure: true}'
_SECONDS = 10.0
"""Seconds that one request may take."""
_MOST = 1000
"""Largest number of projects, plans, nodes or attempts in an answer; usually there are a few dozen."""
_UNNAMED = re.compile(r"d?n\d+")
"""Ids of nodes that have no name in their workflow."""
_MAPPED = re.compile(r"map_(\w+)_[0-9a-f]{32}-arraynode")
"""Names of mapped tasks; the group of the pattern is the name of the function."""
_ENDS = ("start-node", "end-node")
ENDED = ("succeeded", "failed", "aborted", "skipped", "timed_out", "recovered")
"""Last phases of executions and nodes."""
_RESULTS = (RunSummary, PolicyAccuracies, RescoredRun, ReproductionResult, LaboratoryResult)
"""Types of the results of workflows, which are printed as tables."""


class NoAnswerError(DeploymentError):
    """Flyte or its database cannot be reached."""


@dataclass(frozen=True)
class Attempt:
    """An attempt of a task: a pod, or the pods of a map task."""

    number: int
    """Number of the attempt, from 0."""
    phase: str
    reason: str
    """The reason that Kubernetes gives for a pod that is not running."""
    since: datetime
    """Time of Flyte's last update of the attempt, in UTC."""
    error: str
    failed_shards: tuple[tuple[int, int], ...] = ()
    """Failed attempts of the pods of a map task, as numbers from 0: shard and attempt. Flyte has no errors of them."""


@dataclass(frozen=True)
class Node:
    """A node of an execution."""

    path: str
    """Names of the enclosing nodes and of the node, as in ``stage-1 / generate``."""
    phase: str
    seconds: float
    cached: bool
    error: str
    attempts: tuple[Attempt, ...] = ()
    since: datetime | None = None
    """Time at which Flyte reached the node, in UTC."""


@dataclass(frozen=True)
class ExecutionState:
    """State of an execution at one moment."""

    phase: str
    nodes: tuple[Node, ...]
    error: str

    @property
    def done(self) -> bool:
        """True when the execution has ended."""
        return self.phase in ENDED


class Flyte:
    """Client of the Flyte that a config file names, for one project and domain.

    ``config`` is a file for ``pyflyte --config``; None stands for the file that flytekit finds.

    Raises:
        DeploymentError: no file names a Flyte.
    """

    def __init__(self, config: Path | None, project: str, domain: str) -> None:
        self.project, self.domain = project, domain
        self._file, settings = _config(config)
        self.endpoint = settings.platform.endpoint
        self._remote = FlyteRemote(settings, project, domain)
        try:
            self._client = self._remote.client.raw
        except OSError as error:  # Without verification the client fetches the server's certificate at once.
            raise self._no_answer(str(error)) from None

    def version_warning(self) -> str:
        """Return a warning if this Flyte is too old for the workflows, otherwise an empty string.

        Raises:
            DeploymentError: the server is a Flyte 2, or does not answer.
        """
        with self._requests():
            version = str(self._remote.client.get_control_plane_version())
        numbers = version_numbers(version)
        if numbers is None or OLDEST_FLYTE <= numbers < (2,):
            return ""
        wanted = f"the workflows need Flyte {'.'.join(map(str, OLDEST_FLYTE))} or a newer Flyte 1"
        if numbers >= (2,):
            raise DeploymentError(f"{self._file}: the Flyte at {self.endpoint} is {version}; {wanted}. Name another.")
        return f"the Flyte at {self.endpoint} is {version}; {wanted}"

    def plan(self, name: str, version: str | None) -> FlyteLaunchPlan:
        """Return the launch plan of a name and version; without a version the one that was registered last.

        Raises:
            DeploymentError: no such plan is registered; the message lists the plans that are.
        """
        with self._requests():
            try:
                return self._remote.fetch_launch_plan(name=name, version=version)
            except FlyteEntityNotExistException:
                pass
            self._check_project()
            versions, names = self._versions(name), self._names()
        where = f"{self.project}, {self.domain} of the Flyte at {self.endpoint}"
        if version is not None and versions:
            raise DeploymentError(
                f"--version: {name} has no version {version} in {where}; it has {', '.join(versions)}. Name one of "
                "these, or register it."
            )
        register = (
            f"pyflyte register --copy none -p {self.project} -d {self.domain} --version NAME workflows, with "
            f"{VARIABLE} naming a deployment that offers it"
        )
        if not names:
            raise DeploymentError(f"{name}: no launch plan is registered in {where}. Register: {register}.")
        raise DeploymentError(
            f"{name} is not a launch plan in {where}; these are: {', '.join(names)}. Name one of them, or register: "
            f"{register}."
        )

    def find(self, name: str) -> "Execution | None":
        """Return the execution of a name, or None."""
        execution = Execution(self, name)
        with self._requests():
            try:
                plan = self._client.get_execution(execution.request).spec.launch_plan
            except FlyteEntityNotExistException:
                return None
        execution.plan, execution.version = plan.name, plan.version
        return execution

    def start(
        self, plan: FlyteLaunchPlan, texts: Mapping[str, str], name: str | None, overwrite_cache: bool = False
    ) -> "Execution":
        """Start an execution of a plan with inputs as text, objects as YAML or JSON; without a name Flyte chooses one.

        With ``overwrite_cache`` Flyte takes no result from its cache, so that every task asks the store.

        Raises:
            SettingsError: an input is unknown, fixed, missing or of another type.
        """
        fixed = plan.fixed_inputs.literals
        free = {key: variable for key, variable in plan.interface.inputs.items() if key not in fixed}
        allowed = ", ".join(sorted(free)) or "none, all of its inputs are fixed"
        for key in texts:
            if key in fixed:
                raise SettingsError(f"--set {key}: {plan.name} fixes it; allowed: {allowed}.")
            if key not in free:
                hint = f' A single field is changed with --set "overrides={key}=..."' if "overrides" in free else ""
                raise SettingsError(f"--set {key}: {plan.name} has no such input; allowed: {allowed}.{hint}")
        for key, parameter in plan.default_inputs.parameters.items():
            if parameter.required and key not in texts:
                raise SettingsError(f"--set {key}=...: {plan.name} needs it, and it has no default.")
        values = {key: _value(key, text, free[key].type, "overrides" in texts) for key, text in texts.items()}
        types = {key: type(value) for key, value in values.items()}
        with self._requests():
            execution = self._remote.execute(
                plan, values, execution_name=name, type_hints=types, overwrite_cache=overwrite_cache
            )
        return Execution(self, str(execution.id.name))

    def _check_project(self) -> None:
        projects = self._client.list_projects(ProjectListRequest(limit=_MOST)).projects
        domains = {project.id: [domain.id for domain in project.domains] for project in projects}
        if self.project not in domains:
            raise DeploymentError(
                f"--project: the Flyte at {self.endpoint} has no project {self.project}; it has "
                f"{', '.join(sorted(domains)) or 'none'}. Name one of these, or add it to Flyte's settings: "
                "seedProjects in k8s/flyte/values.yaml."
            )
        if self.domain not in domains[self.project]:
            raise DeploymentError(
                f"--domain: {self.project} has no domain {self.domain}; it has {', '.join(domains[self.project])}. "
                "Name one of these."
            )

    def _names(self) -> list[str]:
        """Return the names of the registered launch plans; default plans of workflows only if there are no others."""
        request = NamedEntityIdentifierListRequest(project=self.project, domain=self.domain, limit=_MOST)
        names = sorted(entity.name for entity in self._client.list_launch_plan_ids_paginated(request).entities)
        return [name for name in names if "." not in name] or names

    def _versions(self, name: str) -> list[str]:
        """Return the ten versions that were registered last."""
        request = ResourceListRequest(limit=10, sort_by=Sort(key="created_at", direction=Sort.DESCENDING))
        request.id.project, request.id.domain, request.id.name = self.project, self.domain, name
        return [plan.id.version for plan in self._client.list_launch_plans_paginated(request).launch_plans]

    @contextmanager
    def _requests(self) -> Iterator[None]:
        """Limit the time of every request inside the block, and turn its failure into a DeploymentError."""
        try:
            with scoped_grpc_deadline(_SECONDS):
                yield
        except (FlyteException, AuthenticationError, AuthenticationPending, grpc.RpcError, OSError) as error:
            raise self._explain(error) from None

    def _explain(self, error: Exception) -> DeploymentError:
        call = error if isinstance(error, grpc.RpcError) else error.__cause__
        code, details = (call.code(), call.details()) if isinstance(call, grpc.RpcError) else (None, str(error))
        if code == grpc.StatusCode.UNAVAILABLE or isinstance(error, FlyteTimeout | OSError):
            return self._no_answer(details)
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return DeploymentError(
                f"{self._file}: {self.endpoint} answers, but not as the admin of a Flyte 1 does ({details}). Name "
                "one with admin.endpoint; Flyte 2 is another product under the same name."
            )
        if code == grpc.StatusCode.INTERNAL:
            return NoAnswerError(
                f"The Flyte at {self.endpoint} cannot answer now ({details}). Look at its database and its log."
            )
        if isinstance(error, FlyteAuthenticationException | AuthenticationError | AuthenticationPending):
            return DeploymentError(
                f"{self._file}: the Flyte at {self.endpoint} asks for a login, which failed: {details}. Set "
                "admin.authType, and what it needs, as for pyflyte."
            )
        return DeploymentError(f"The Flyte at {self.endpoint} refuses: {details}")

    def _no_answer(self, details: str) -> NoAnswerError:
        return NoAnswerError(
            f"{self._file}: no Flyte answers at {self.endpoint} ({details}). Check admin.endpoint, which is the gRPC "
            "port (8089 of the chart flyte-binary, 81 of flyte-core), admin.insecure, and that the port-forward runs."
        )


class Execution:
    """An execution on a Flyte."""

    def __init__(self, flyte: Flyte, name: str) -> None:
        self.name, self._flyte = name, flyte
        self.plan = self.version = ""  # Flyte.find sets them.
        self.request = WorkflowExecutionGetRequest(
            id=WorkflowExecutionIdentifier(project=flyte.project, domain=flyte.domain, name=name)
        )
        self._ended: dict[str, tuple[Node, ...]] = {}

    @property
    def link(self) -> str:
        """Address of the execution's page in the console."""
        domain = self._flyte._remote.generate_console_http_domain().rstrip("/").removesuffix("/console")
        flyte = self._flyte
        return f"{domain}/console/projects/{flyte.project}/domains/{flyte.domain}/executions/{self.name}"

    def state(self) -> ExecutionState:
        """Request the present state; nodes that had ended at an earlier request are not requested again."""
        with self._flyte._requests():
            closure = self._flyte._client.get_execution(self.request).closure
            nodes = tuple(self._nodes(self.request.id, "", ()))
        error = closure.error.message
        if closure.HasField("abort_metadata"):
            error = f"{closure.abort_metadata.cause} ({closure.abort_metadata.principal or 'somebody'})"
        return ExecutionState(WorkflowPhase.Phase.Name(closure.phase).lower(), nodes, error)

    def result(self) -> str:
        """Return the execution's result, as a table if the project defines its type."""
        with self._flyte._requests():
            outputs = self._flyte._remote.fetch_execution(name=self.name).outputs
            return "\n".join(_format_output(outputs, name, literal) for name, literal in outputs.literals.items())

    def _nodes(self, execution: WorkflowExecutionIdentifier, parent: str, path: tuple[str, ...]) -> Iterator[Node]:
        by_age = Sort(key="created_at", direction=Sort.ASCENDING)
        request = NodeExecutionListRequest(
            workflow_execution_id=execution, unique_parent_id=parent, limit=_MOST, sort_by=by_age
        )
        for node in self._flyte._client.list_node_executions_paginated(request).node_executions:
            key = f"{execution.name} {node.id.node_id}"
            if node.metadata.spec_node_id in _ENDS or node.id.node_id in _ENDS:
                continue
            expanded = self._ended.get(key) or tuple(self._expand(node, path))
            if expanded[0].phase in ENDED:
                self._ended[key] = expanded
            yield from expanded

    def _expand(self, node: NodeExecution, path: tuple[str, ...]) -> Iterator[Node]:
        """Yield a node, then the nodes inside it."""
        closure, metadata = node.closure, node.metadata
        graph = metadata.is_parent_node and not metadata.is_dynamic
        attempts, task = ((), "") if graph else self._attempts(node)
        name = metadata.spec_node_id or node.id.node_id
        path = (*path, f"{name} {task}" if task and _UNNAMED.fullmatch(name) else name)
        phase = NodePhase.Phase.Name(closure.phase).lower().removeprefix("dynamic_")
        hit = closure.task_node_metadata.cache_status == CACHE_HIT
        seconds = closure.duration.ToTimedelta().total_seconds()
        since = closure.created_at.ToDatetime()
        yield Node(" / ".join(path), phase, seconds, hit, self._error(node, attempts), attempts, since)
        if metadata.is_parent_node:
            yield from self._nodes(node.id.execution_id, node.id.node_id, path)
        elif closure.HasField("workflow_node_metadata"):
            yield from self._nodes(closure.workflow_node_metadata.executionId, "", path)

    def _error(self, node: NodeExecution, attempts: tuple[Attempt, ...]) -> str:
        """Return the whole error of a node; some nodes that fail have none, and their last attempt has it."""
        if node.closure.phase not in (NodePhase.FAILED, NodePhase.TIMED_OUT):
            return str(node.closure.error.message)
        # In a list of nodes Flyte cuts every error after 100 bytes.
        closure = self._flyte._client.get_node_execution(NodeExecutionGetRequest(id=node.id)).closure
        return closure.error.message or (attempts[-1].error if attempts else "")

    def _attempts(self, node: NodeExecution) -> tuple[tuple[Attempt, ...], str]:
        """Return the attempts of a node, and the name of its task."""
        request = TaskExecutionListRequest(node_execution_id=node.id, limit=_MOST)
        executions = self._flyte._client.list_task_executions_paginated(request).task_executions
        attempts = (
            Attempt(
                number=execution.id.retry_attempt,
                phase=TaskPhase.Phase.Name(execution.closure.phase).lower(),
                reason=execution.closure.reason,
                since=execution.closure.updated_at.ToDatetime(),
                error=execution.closure.error.message,
                failed_shards=tuple(
                    (shard.index, shard.retry_attempt)
                    for shard in execution.closure.metadata.external_resources
                    if shard.phase in (TaskPhase.FAILED, TaskPhase.RETRYABLE_FAILED)
                ),
            )
            for execution in executions
        )
        task = _MAPPED.sub(r"\1", executions[0].id.task_id.name.rpartition(".")[2]) if executions else ""
        return tuple(sorted(attempts, key=lambda attempt: attempt.number)), task


def _config(path: Path | None) -> tuple[str, Config]:
    """Return the name of a config file for messages, and its content."""
    option, variable = "--config", os.environ.get("FLYTECTL_CONFIG")
    if path is None and variable:  # If there is no such file, flytekit would use the one in the home folder.
        option, path = "FLYTECTL_CONFIG", Path(variable)
    if path is not None and not path.is_file():
        raise DeploymentError(f"{option}: {path} is not a file. Name one that holds {EXAMPLE}")
    name = str(path or "~/.flyte/config.yaml")
    try:
        file = get_config_file(None if path is None else str(path))
        endpoint, config = Platform.URL.read(file), Config.auto(file)
    except (OSError, configparser.Error, ValueError, AttributeError, TypeError) as error:
        raise DeploymentError(f"{name}: cannot be read as a config of Flyte: {error}. It must hold {EXAMPLE}") from None
    if not endpoint:
        what = f"{name} has no admin.endpoint" if file else "no config of Flyte is found"
        raise DeploymentError(
            f"--config: {what}. Name a file with --config, or with FLYTECTL_CONFIG, which pyflyte reads too; "
            f"it must hold {EXAMPLE}"
        )
    return name, config


def _value(name: str, text: str, wanted: LiteralType, overridden: bool) -> object:
    """Return the value of an input from its text; ``overridden`` settings are checked by the workflow alone."""
    kind = getattr(tasks.settings, _title(wanted), None)
    if isinstance(kind, type) and issubclass(kind, Settings) and not overridden:
        kind.parse(_mapping(name, text), f"--set {name}")
    readers: dict[int, tuple[str, Any]] = {
        SimpleType.INTEGER: ("a whole number", int),
        SimpleType.STRING: ("a text", str),
        SimpleType.DATETIME: ("a time, as 2026-11-20 in UTC or 2026-11-20T12:00:00+02:00", datetime.fromisoformat),
        SimpleType.STRUCT: ("an object of YAML or JSON", lambda text: _mapping(name, text)),
    }
    allowed, read = readers.get(wanted.simple, ("nothing on a command line", None))
    try:
        return read(text)
    except (ValueError, TypeError):
        raise SettingsError(f"--set {name}: got {text!r}; allowed: {allowed}.") from None


def _title(kind: LiteralType) -> str:
    """Return the name of the class of a type; empty for types that are not classes of this project."""
    return str((kind.metadata or {}).get("title", ""))


def _mapping(name: str, text: str) -> dict[str, Any]:
    try:
        value = load_yaml(text)
    except yaml.YAMLError:
        value = None
    if not isinstance(value, dict):
        raise SettingsError(
            f"--set {name}: got {text!r}; allowed: an object, as '{{field: value}}', with every key once."
        )
    return value


def _format_output(outputs: Any, name: str, literal: Any) -> str:
    title = _title(outputs.variable_map[name].type)
    kind = next((kind for kind in _RESULTS if kind.__name__ == title), None)
    return str(outputs.get(name, kind)) if kind else f"{name}: {literal}"
