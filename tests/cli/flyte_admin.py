"""Flyte's admin for tests: a gRPC server that knows what is registered, and tells of executions what a test writes."""

import re
from concurrent import futures
from datetime import UTC, datetime
from typing import Any, Self

import grpc
from flyteidl.admin import (
    common_pb2,
    execution_pb2,
    launch_plan_pb2,
    node_execution_pb2,
    project_pb2,
    task_execution_pb2,
    version_pb2,
    workflow_pb2,
)
from flyteidl.core import execution_pb2 as phases
from flyteidl.core import literals_pb2
from flyteidl.core.catalog_pb2 import CACHE_DISABLED, CACHE_HIT
from flyteidl.service import admin_pb2_grpc

from tools.serialised import Serialised

Data = execution_pb2.WorkflowExecutionGetDataResponse
PROJECT, DOMAIN = "mu-grpo", "development"
VERSIONS = ("v1", "v2")


class Admin(admin_pb2_grpc.AdminServiceServicer):
    """What is registered, in one project and two versions."""

    def __init__(self, registered: Serialised) -> None:
        self._registered = registered
        self.names = sorted(registered.launch_plans)
        self.version = "v1.16.8"
        self.created: list[execution_pb2.ExecutionCreateRequest] = []
        self.closures: dict[str, list[execution_pb2.ExecutionClosure]] = {}
        """By execution: what is told of it, one after the other, the last for ever."""
        self.nodes: dict[str, list[node_execution_pb2.NodeExecution]] = {}
        """By the node that they are inside of."""
        self.attempts: dict[str, list[task_execution_pb2.TaskExecution]] = {}
        self.outputs = literals_pb2.LiteralMap()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def node(self, name: str, phase: str, inside: str = "", message: str = "", cached: bool = False) -> None:
        """Tells of a node from here on; ``message`` is its error."""
        made = node_execution_pb2.NodeExecution()
        made.id.node_id = made.metadata.spec_node_id = name
        made.closure.phase = phases.NodeExecution.Phase.Value(phase)
        made.closure.task_node_metadata.cache_status = CACHE_HIT if cached else CACHE_DISABLED
        if message:
            made.closure.error.message = message
        self.nodes.setdefault(inside, []).append(made)
        for one in self.nodes.get("", []):
            one.metadata.is_parent_node = one.id.node_id in self.nodes

    def attempt(self, node: str, phase: str, reason: str, age: float, message: str = "") -> None:
        """Tells of a node's first attempt from here on; ``age`` is the time since its last change in seconds."""
        made = task_execution_pb2.TaskExecution()
        made.id.task_id.name = "tasks.flyte.tasks.generate"
        made.closure.phase = phases.TaskExecution.Phase.Value(phase)
        made.closure.reason = reason
        if message:
            made.closure.error.message = message
        made.closure.updated_at.FromSeconds(int(datetime.now(UTC).timestamp() - age))
        self.attempts[node] = [made]

    def tell(self, execution: str, *phases_: str, message: str = "") -> None:
        """Tells these phases of an execution, one after the other; at ABORTING its database is away."""
        told = [execution_pb2.ExecutionClosure(phase=phases.WorkflowExecution.Phase.Value(phase)) for phase in phases_]
        if message:
            told[-1].error.message = message
        self.closures[execution] = told

    def GetVersion(self, request: Any, context: grpc.ServicerContext) -> version_pb2.GetVersionResponse:
        return version_pb2.GetVersionResponse(control_plane_version=version_pb2.Version(Version=self.version))

    def ListProjects(self, request: Any, context: grpc.ServicerContext) -> project_pb2.Projects:
        domains = [project_pb2.Domain(id=name) for name in (DOMAIN, "production")]
        projects = [project_pb2.Project(id=name, domains=domains) for name in ("flytesnacks", PROJECT)]
        return project_pb2.Projects(projects=projects)

    def ListLaunchPlanIds(self, request: Any, context: grpc.ServicerContext) -> common_pb2.NamedEntityIdentifierList:
        names = self.names if (request.project, request.domain) == (PROJECT, DOMAIN) else ()
        found = [common_pb2.NamedEntityIdentifier(project=PROJECT, domain=DOMAIN, name=one) for one in names]
        return common_pb2.NamedEntityIdentifierList(entities=found)

    def ListLaunchPlans(self, request: Any, context: grpc.ServicerContext) -> launch_plan_pb2.LaunchPlanList:
        here = (request.id.project, request.id.domain) == (PROJECT, DOMAIN) and request.id.name in self.names
        found = [self._plan(request.id.name, version) for version in reversed(VERSIONS)] if here else []
        return launch_plan_pb2.LaunchPlanList(launch_plans=found[: request.limit])

    def GetLaunchPlan(self, request: Any, context: grpc.ServicerContext) -> launch_plan_pb2.LaunchPlan:
        if request.id.name not in self.names or request.id.version not in VERSIONS or request.id.project != PROJECT:
            context.abort(grpc.StatusCode.NOT_FOUND, "entry not found")
        return self._plan(request.id.name, request.id.version)

    def GetWorkflow(self, request: Any, context: grpc.ServicerContext) -> workflow_pb2.Workflow:
        spec = self._registered.workflows[request.id.name]
        made = workflow_pb2.Workflow(id=request.id)
        compiled = made.closure.compiled_workflow
        compiled.primary.template.CopyFrom(spec.template)
        for inner in spec.sub_workflows:
            compiled.sub_workflows.add().template.CopyFrom(inner)
        for task in self._registered.tasks.values():
            compiled.tasks.add().template.CopyFrom(task.template)
        return made

    def CreateExecution(self, request: Any, context: grpc.ServicerContext) -> execution_pb2.ExecutionCreateResponse:
        if request.name and not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", request.name):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"invalid name format: {request.name}")
        self.created.append(request)
        made = execution_pb2.ExecutionCreateResponse()
        made.id.project, made.id.domain, made.id.name = PROJECT, DOMAIN, request.name or f"f{len(self.created)}"
        self.closures.setdefault(made.id.name, [execution_pb2.ExecutionClosure()])
        return made

    def GetExecution(self, request: Any, context: grpc.ServicerContext) -> execution_pb2.Execution:
        if request.id.name not in self.closures:
            context.abort(grpc.StatusCode.NOT_FOUND, "entry not found")
        told = self.closures[request.id.name]
        closure = told.pop(0) if len(told) > 1 else told[0]
        if closure.phase == phases.WorkflowExecution.ABORTING:
            context.abort(grpc.StatusCode.INTERNAL, "dial tcp 127.0.0.1:5432: connect: connection refused")
        spec = execution_pb2.ExecutionSpec()
        spec.launch_plan.name, spec.launch_plan.version = "smoke", VERSIONS[-1]
        spec.launch_plan.project, spec.launch_plan.domain = PROJECT, DOMAIN
        return execution_pb2.Execution(id=request.id, spec=spec, closure=closure)

    def GetExecutionData(self, request: Any, context: grpc.ServicerContext) -> Data:
        return Data(full_outputs=self.outputs)

    def ListNodeExecutions(self, request: Any, context: grpc.ServicerContext) -> node_execution_pb2.NodeExecutionList:
        """Every error is cut after 100 bytes, as Flyte does."""
        found = node_execution_pb2.NodeExecutionList(node_executions=self.nodes.get(request.unique_parent_id, []))
        for one in found.node_executions:
            if one.closure.error.message:
                one.closure.error.message = one.closure.error.message[:100]
        return found

    def GetNodeExecution(self, request: Any, context: grpc.ServicerContext) -> node_execution_pb2.NodeExecution:
        return next(one for nodes in self.nodes.values() for one in nodes if one.id.node_id == request.id.node_id)

    def ListTaskExecutions(self, request: Any, context: grpc.ServicerContext) -> task_execution_pb2.TaskExecutionList:
        found = self.attempts.get(request.node_execution_id.node_id, [])
        return task_execution_pb2.TaskExecutionList(task_executions=found)

    def _plan(self, name: str, version: str) -> launch_plan_pb2.LaunchPlan:
        made = launch_plan_pb2.LaunchPlan()
        made.CopyFrom(self._registered.launch_plans[name])
        made.id.project, made.id.domain, made.id.version = PROJECT, DOMAIN, version
        return made
