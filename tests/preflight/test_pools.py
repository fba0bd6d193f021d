"""The scheduler's rules as functions: properties over drawn nodes and pods, and what Kubernetes' documentation says."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.preflight.pools import (
    Ask,
    Taken,
    copies,
    holds,
    left,
    meets,
    obstacle,
    place,
    requests,
    shown,
    taken,
    tolerates,
    total,
    untolerated,
)
from tasks.preflight.records import Node, Pod, PodSpec, Requirement, Taint, Term, Toleration

KEYS, VALUES = st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2", "x", ""])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.builds(Taint, key=KEYS, value=VALUES, effect=EFFECTS)
TOLERATIONS = st.builds(
    Toleration,
    key=st.one_of(st.just(""), KEYS),
    operator=st.sampled_from(["Exists", "Equal", ""]),
    value=VALUES,
    effect=st.one_of(st.just(""), EFFECTS),
)
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
REQUIREMENTS = st.builds(Requirement, key=KEYS, operator=OPERATORS, values=st.lists(VALUES, max_size=2).map(tuple))
TERMS = st.builds(Term.model_construct, on_labels=st.lists(REQUIREMENTS, max_size=2).map(tuple))
LABELS = st.dictionaries(KEYS, VALUES)
RESOURCES = st.sampled_from(["cpu", "memory", "nvidia.com/gpu"])
AMOUNTS = st.dictionaries(RESOURCES, st.integers(0, 8000))
READY = {"type": "Ready", "status": "True"}
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def node(
    name: str = "n",
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    room: dict[str, int] | None = None,
) -> Node:
    made = Node.model_validate({"metadata": {"name": name}, "status": {"conditions": [READY]}})
    return made.model_copy(update={"labels": labels or {}, "taints": taints, "allocatable": room or {}})


NODES = st.builds(node, labels=LABELS, taints=st.lists(TAINTS, max_size=2).map(tuple), room=AMOUNTS)
ASKS = st.builds(
    Ask,
    requests=AMOUNTS,
    selector=st.dictionaries(KEYS, VALUES, max_size=2),
    terms=st.one_of(st.none(), st.lists(TERMS, max_size=2).map(tuple)),
    accelerator=st.one_of(st.none(), REQUIREMENTS),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
)


@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, ("k", "v", "NoSchedule"), True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, ("k", "v", "NoSchedule"), True),
        ({"key": "k", "operator": "", "value": "v"}, ("k", "v", "NoExecute"), True),
        ({"key": "k", "operator": "Equal", "value": "w"}, ("k", "v", "NoSchedule"), False),
        ({"key": "k", "operator": "Exists"}, ("k", "v", "NoExecute"), True),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, ("k", "v", "NoExecute"), False),
        ({"operator": "Exists"}, ("anything", "", "NoSchedule"), True),
        ({"key": "j", "operator": "Exists"}, ("k", "v", "NoSchedule"), False),
        ({"key": "k", "operator": "Matches", "value": "v"}, ("k", "v", "NoSchedule"), False),
        ({"key": "k"}, ("k", "", "NoSchedule"), True),
    ],
)
def test_tolerations_are_those_of_kubernetes(
    toleration: dict[str, str], taint: tuple[str, str, str], expected: bool
) -> None:
    key, value, effect = taint
    assert tolerates(Toleration(**toleration), Taint(key=key, value=value, effect=effect)) is expected


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ("1", "2"), {"a": "2"}, True),
        ("In", ("1",), {}, False),
        ("In", (), {"a": ""}, False),
        ("NotIn", ("1",), {}, True),
        ("NotIn", ("1",), {"a": "1"}, False),
        ("Exists", (), {"a": ""}, True),
        ("DoesNotExist", (), {"b": "1"}, True),
        ("Gt", ("4",), {"a": "8"}, True),
        ("Gt", ("8",), {"a": "8"}, False),
        ("Lt", ("8",), {"a": "-1"}, True),
        ("Lt", ("8",), {}, False),
        ("Gt", ("many",), {"a": "8"}, False),
        ("Gt", (), {"a": "8"}, False),
        ("Is", ("8",), {"a": "8"}, False),
    ],
)
def test_requirements_are_those_of_kubernetes(
    operator: str, values: tuple[str, ...], labels: dict[str, str], expected: bool
) -> None:
    assert holds(Requirement(key="a", operator=operator, values=values), labels) is expected


@given(TAINTS, TOLERATIONS)
def test_a_toleration_without_key_and_effect_stands_for_all(taint: Taint, toleration: Toleration) -> None:
    everything = toleration.model_copy(update={"key": "", "operator": "Exists", "effect": ""})
    assert tolerates(everything, taint)
    if tolerates(toleration, taint):
        wider = toleration.model_copy(update={"effect": ""})
        assert tolerates(wider, taint)
        assert tolerates(wider.model_copy(update={"operator": "Exists"}), taint)


@given(REQUIREMENTS, LABELS)
def test_operators_come_in_opposites(requirement: Requirement, labels: dict[str, str]) -> None:
    for one, other in (("In", "NotIn"), ("Exists", "DoesNotExist")):
        first, second = (requirement.model_copy(update={"operator": operator}) for operator in (one, other))
        assert holds(first, labels) is not holds(second, labels)


@given(st.lists(TERMS, max_size=3), NODES)
def test_one_term_is_enough_and_an_empty_one_holds_nowhere(terms: list[Term], one: Node) -> None:
    assert meets(None, one)
    assert meets(tuple(terms), one) == any(meets((term,), one) for term in terms)
    assert not meets((Term(),), one)
    assert meets((*terms, named := Term.model_construct(on_fields=(of_name("n"),))), one)
    assert not meets((named.model_copy(update={"on_fields": (of_name("other"),)}),), one)


def of_name(name: str) -> Requirement:
    return Requirement(key="metadata.name", operator="In", values=(name,))


@given(NODES, st.lists(TOLERATIONS, max_size=3), TAINTS)
def test_more_tolerations_never_close_a_node_and_more_taints_never_open_one(
    one: Node, tolerations: list[Toleration], taint: Taint
) -> None:
    found = untolerated(tolerations, one)
    assert set(map(str, found)) <= set(map(str, one.taints))
    assert not untolerated([*tolerations, Toleration(operator="Exists")], one)
    more = one.model_copy(update={"taints": (*one.taints, taint)})
    kept_off = taint.effect != "PreferNoSchedule" and not any(tolerates(own, taint) for own in tolerations)
    assert untolerated(tolerations, more) == [*found, *([taint] if kept_off else [])]


@given(AMOUNTS, AMOUNTS)
def test_as_many_copies_fit_as_there_is_room_for(asked: dict[str, int], room: dict[str, int]) -> None:
    count = copies(asked, room)
    if any(asked.values()):
        assert all(count * value <= room.get(name, 0) for name, value in asked.items())
        assert any((count + 1) * value > room.get(name, 0) for name, value in asked.items())
    else:
        assert count == 1
    assert copies(asked, {name: -value for name, value in room.items()}) in (0, 1)


@given(ASKS, st.lists(NODES, max_size=4), st.lists(AMOUNTS, min_size=4, max_size=4), st.lists(AMOUNTS, min_size=4))
def test_a_placement_is_each_nodes_own(
    ask: Ask, drawn: list[Node], used: list[dict[str, int]], residents: list[dict[str, int]]
) -> None:
    nodes = [one.model_copy(update={"name": f"n{index}"}) for index, one in enumerate(drawn)]
    of = {f"n{index}": residents[index] for index in range(4)}
    everything = {name: total([amounts, used[int(name[1])]]) for name, amounts in of.items()}
    placement = place(ask, nodes, Taken(everything, of))
    possible = {one.name for one in placement.possible}
    assert possible | placement.obstacles.keys() == {one.name for one in nodes}
    assert not possible & placement.obstacles.keys()
    for one in nodes:
        found = obstacle(ask, one, of)
        assert (found is None) == (one.name in possible)
        assert placement.obstacles.get(one.name) == found
    assert placement.ever.keys() == placement.now.keys() == possible
    for name in possible:
        # What runs there takes room, and never gives any.
        assert placement.now[name] <= placement.ever[name]
        assert placement.ever[name] >= 1


@given(ASKS, NODES, RESOURCES, st.integers(1, 4000))
def test_a_node_stops_a_pod_for_one_reason_at_a_time(ask: Ask, one: Node, resource: str, more: int) -> None:
    found = obstacle(ask, one, {})
    if found is None:
        larger = one.model_copy(update={"allocatable": total([one.allocatable, {resource: more}])})
        assert obstacle(ask, larger, {}) is None
        cordoned = obstacle(ask, one.model_copy(update={"cordoned": True}), {})
        assert (cordoned is None) == any(tolerates(it, CORDONED) for it in ask.tolerations)
        assert cordoned is None or cordoned.what == "cordoned"
        assert obstacle(ask, one.model_copy(update={"conditions": ()}), {}).what == "not ready"
    elif found.kind == "size":
        asked = ask.requests[found.what]
        assert left(one, {}).get(found.what, 0) < asked
        enough = one.model_copy(update={"allocatable": one.allocatable | ask.requests})
        assert obstacle(ask, enough, {}) is None


def spec(**values: object) -> PodSpec:
    return PodSpec.model_validate(values)


def container(cpu: str, **values: object) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **values}


@pytest.mark.parametrize(
    ("pod", "cores"),
    [
        (spec(containers=[container("1"), container("500m")]), 1.5),
        (spec(containers=[container("1")], initContainers=[container("3"), container("2")]), 3),
        (spec(containers=[container("4")], initContainers=[container("3")]), 4),
        (spec(containers=[container("1")], initContainers=[container("1", restartPolicy="Always")]), 2),
        # An ordinary init container runs beside the sidecars that were started before it.
        (
            spec(containers=[container("1")], initContainers=[container("1", restartPolicy="Always"), container("3")]),
            4,
        ),
        (
            spec(containers=[container("1")], initContainers=[container("3"), container("1", restartPolicy="Always")]),
            3,
        ),
        (spec(containers=[container("1")], overhead={"cpu": "250m"}), 1.25),
        (spec(containers=[container("1")], resources={"requests": {"cpu": "3"}}), 3),
        (spec(containers=[{"name": "c", "resources": {"limits": {"cpu": "2"}}}]), 2),
        (spec(containers=[{"name": "c"}]), 0),
    ],
)
def test_a_pods_requests_are_those_of_kubernetes(pod: PodSpec, cores: float) -> None:
    found = requests(pod)
    assert found.get("cpu", 0) == cores * 1000
    assert found["pods"] == 1000


def test_what_is_taken_is_of_pods_that_are_there() -> None:
    def pod(name: str, where: str | None, phase: str, owner: str = "Job") -> Pod:
        return Pod.model_validate(
            {
                "metadata": {"name": name, "namespace": "x", "ownerReferences": [{"kind": owner}]},
                "spec": {"containers": [container("1")]} | ({"nodeName": where} if where else {}),
                "status": {"phase": phase},
            }
        )

    found = taken(
        [
            pod("a", "n1", "Running"),
            pod("b", "n1", "Pending"),
            pod("c", "n1", "Succeeded"),
            pod("d", "n1", "Failed"),
            pod("e", None, "Pending"),
            pod("f", "n2", "Running", "DaemonSet"),
            pod("g", "n2", "Running", "Node"),
            pod("h", "n2", "Unknown"),
        ]
    )
    assert {name: amounts["cpu"] for name, amounts in found.all.items()} == {"n1": 2000, "n2": 3000}
    assert found.residents == {"n2": {"cpu": 2000, "pods": 2000}}


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 31850, "31.85 cores"),
        ("requests.cpu", 500, "0.5 cores"),
        ("memory", 160 * 2**30 * 1000, "160Gi memory"),
        ("limits.memory", 512 * 2**20 * 1000, "512Mi memory"),
        ("ephemeral-storage", 482098734124 * 1000, "448.98Gi ephemeral-storage"),
        ("nvidia.com/gpu", 8000, "8 nvidia.com/gpu"),
        ("memory", (160 * 2**30 - 1) * 1000, "159.99Gi memory"),
        ("memory", -512 * 2**20 * 1000, "-512Mi memory"),
        ("pods", 0, "0 pods"),
    ],
)
def test_amounts_are_shown_as_people_write_them(resource: str, amount: int, text: str) -> None:
    assert shown(resource, amount) == text


@given(RESOURCES, st.integers(0, 2**63))
def test_amounts_are_shown_to_the_hundredth_and_never_larger_than_they_are(resource: str, amount: int) -> None:
    text = shown(resource, amount).split()[0]
    unit = 1000 * {"Gi": 2**30, "Mi": 2**20}.get(text[-2:], 1)
    number = Fraction(text.rstrip("GMi")) * unit
    assert number <= amount < number + Fraction(unit, 100)
