"""Objects of Kubernetes, as much of them as the checks need; amounts are whole thousandths, so that sums are exact."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tasks.settings.deployment import quantity

GPU = "nvidia.com/gpu"
_VERSION = r"^v(\d+)\.(\d+)"
CPU, MEMORY, STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"


def thousandths(text: str) -> int:
    """A quantity in thousandths of a core, a byte or a piece."""
    return round(1000 * quantity(text))


def _amounts(values: Mapping[str, object]) -> dict[str, int]:
    return {name: thousandths(str(value)) for name, value in values.items()}


Amounts = Annotated[dict[str, int], BeforeValidator(_amounts)]
"""Thousandths by resource, as in ``{"cpu": 500}`` for half a core."""


class Record(BaseModel):
    """An object as the API server tells it, with what is not asked for left out.

    Validation never shows the object itself: it may be a secret.
    """

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True, extra="ignore"
    )


class Taint(Record):
    """What keeps pods off a node that do not tolerate it."""

    key: str
    value: str = ""
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Record):
    """What a pod puts up with; an empty key or effect stands for every one."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Record):
    """A condition on one label of a node."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == "In" and len(self.values) == 1:
            return f"{self.key}={self.values[0]}"
        return f"{self.key} {self.operator} {', '.join(self.values)}".strip()


class Term(Record):
    """Conditions on a node that must all hold."""

    on_labels: tuple[Requirement, ...] = Field((), validation_alias="matchExpressions")
    on_fields: tuple[Requirement, ...] = Field((), validation_alias="matchFields")

    def __str__(self) -> str:
        return " and ".join(map(str, (*self.on_labels, *self.on_fields))) or "nothing"


class Condition(Record):
    """A state of a node."""

    type: str
    status: str


class HeldImage(Record):
    """An image that a node has pulled."""

    names: tuple[str, ...] = ()


class Node(Record):
    """A machine of the cluster."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    labels: dict[str, str] = Field({}, validation_alias=AliasPath("metadata", "labels"))
    taints: tuple[Taint, ...] = Field((), validation_alias=AliasPath("spec", "taints"))
    cordoned: bool = Field(False, validation_alias=AliasPath("spec", "unschedulable"))
    allocatable: Amounts = Field({}, validation_alias=AliasPath("status", "allocatable"))
    conditions: tuple[Condition, ...] = Field((), validation_alias=AliasPath("status", "conditions"))
    images: tuple[HeldImage, ...] = Field((), validation_alias=AliasPath("status", "images"))

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that pods can run."""
        return any(one.type == "Ready" and one.status == "True" for one in self.conditions)


class SecurityContext(Record):
    """Of a pod, or of a container."""

    run_as_non_root: bool | None = None
    run_as_user: int | None = None
    privileged: bool | None = None
    allow_privilege_escalation: bool | None = None
    dropped: tuple[str, ...] = Field((), validation_alias=AliasPath("capabilities", "drop"))
    added: tuple[str, ...] = Field((), validation_alias=AliasPath("capabilities", "add"))
    seccomp: str | None = Field(None, validation_alias=AliasPath("seccompProfile", "type"))


class Port(Record):
    """Of a container."""

    host_port: int = 0


class Container(Record):
    """Of a pod or of a template."""

    name: str
    requests: Amounts = Field({}, validation_alias=AliasPath("resources", "requests"))
    limits: Amounts = Field({}, validation_alias=AliasPath("resources", "limits"))
    restart_policy: str = ""
    """``Always`` makes an init container one that stays beside the others."""
    ports: tuple[Port, ...] = ()
    security_context: SecurityContext = SecurityContext()


class Volume(Record):
    """Of a pod; what it is made of is the field that is not its name."""

    model_config = ConfigDict(extra="allow")

    name: str

    @property
    def kinds(self) -> set[str]:
        """Such as emptyDir or hostPath."""
        return set(self.model_extra or {})


_REQUIRED = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


class PodSpec(Record):
    """What a pod asks for."""

    node_name: str = ""
    service_account_name: str = "default"
    priority_class_name: str = ""
    node_selector: dict[str, str] = {}
    terms: tuple[Term, ...] | None = Field(None, validation_alias=AliasPath(*_REQUIRED))
    """One of these must hold for a node; None: any node will do."""
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = {}
    pod_requests: Amounts = Field({}, validation_alias=AliasPath("resources", "requests"))
    """Of the pod as a whole, which count instead of its containers'."""
    security_context: SecurityContext = SecurityContext()
    host_network: bool = False
    host_pid: bool = Field(False, validation_alias="hostPID")
    host_ipc: bool = Field(False, validation_alias="hostIPC")
    volumes: tuple[Volume, ...] = ()


class Owner(Record):
    """What made a pod."""

    kind: str


class Pod(Record):
    """A pod that was made, on a node or waiting for one."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(validation_alias=AliasPath("metadata", "namespace"))
    owners: tuple[Owner, ...] = Field((), validation_alias=AliasPath("metadata", "ownerReferences"))
    spec: PodSpec
    phase: str = Field("Pending", validation_alias=AliasPath("status", "phase"))

    @property
    def stays(self) -> bool:
        """Whether it belongs to its node: a daemon set's pod, or one that the kubelet itself starts."""
        return any(owner.kind in ("DaemonSet", "Node") for owner in self.owners)


class PodTemplate(Record):
    """What Flyte makes a task's pod from."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    spec: PodSpec = Field(validation_alias=AliasPath("template", "spec"))


class Named(Record):
    """An object of which the name is enough."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))


class Namespace(Named):
    """With the labels that say how strict it is."""

    phase: str = Field("Active", validation_alias=AliasPath("status", "phase"))
    labels: dict[str, str] = Field({}, validation_alias=AliasPath("metadata", "labels"))


class Secret(Named):
    """Without its values: these are dropped while the answer is read."""

    keys: Annotated[frozenset[str], BeforeValidator(frozenset)] = Field(frozenset(), validation_alias="data")


class Quota(Named):
    """What a namespace may hold at once, and what it holds."""

    hard: Amounts = Field({}, validation_alias=AliasPath("spec", "hard"))
    used: Amounts = Field({}, validation_alias=AliasPath("status", "used"))
    scopes: tuple[str, ...] = Field((), validation_alias=AliasPath("spec", "scopes"))
    selectors: tuple["ScopeSelector", ...] = Field(
        (), validation_alias=AliasPath("spec", "scopeSelector", "matchExpressions")
    )


class ScopeSelector(Record):
    """Which pods a quota counts."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class Limit(Record):
    """Bounds of one container, or of one pod."""

    type: str
    max: Amounts = {}
    min: Amounts = {}


class LimitRange(Named):
    """Bounds of what is made in a namespace."""

    limits: tuple[Limit, ...] = Field((), validation_alias=AliasPath("spec", "limits"))


class Version(Record):
    """Of an API server."""

    git_version: str = Field(pattern=_VERSION)

    @property
    def number(self) -> tuple[int, int]:
        """Such as (1, 33)."""
        found = re.match(_VERSION, self.git_version)
        assert found is not None
        return int(found[1]), int(found[2])


class Page(Record):
    """A part of a list."""

    items: tuple[object, ...] | None
    further: str = Field("", validation_alias=AliasPath("metadata", "continue"))
    """What the next part is asked for with."""


class Review(Record):
    """Whether somebody may do something."""

    allowed: bool = Field(validation_alias=AliasPath("status", "allowed"))


class Resource(Record):
    """Of an API."""

    name: str


class Discovery(Record):
    """What an API offers."""

    resources: tuple[Resource, ...]
