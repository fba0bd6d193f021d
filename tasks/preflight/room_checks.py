"""Checks of the nodes: where each role's pod can run at all, what is free there, and how many shards fit at once."""

from collections.abc import Iterator, Mapping, Sequence

from tasks.preflight.answers import Answers
from tasks.preflight.asked import roles_of
from tasks.preflight.findings import Finding, Unknown, listed
from tasks.preflight.nowhere import AT_MOST, nowhere
from tasks.preflight.pools import Placement, Taken, left, place, shown, taken, total
from tasks.preflight.quota_checks import room_in
from tasks.preflight.records import CPU, GPU, MEMORY, STORAGE, Node, Pod
from tasks.preflight.role_pods import RolePod
from tasks.report.formats import some
from tasks.settings import RunSettings
from tasks.settings.deployment import DeploymentSettings, Role

_SHOWN = (GPU, CPU, MEMORY, STORAGE)


def room_checks(
    answers: Answers, deployment: DeploymentSettings, pods: Mapping[Role, RolePod], run: RunSettings
) -> Iterator[Finding]:
    """GPUs, a line for each of the run's roles and for each pool of nodes, and the shards."""
    roles = roles_of(run)
    if not isinstance(answers.nodes, list):
        for name in ("GPUs", *(f"pod of {role}" for role in roles), "shards"):
            yield answers.nodes.of(name)
        return
    yield _gpus(answers.nodes, deployment, roles)
    used = taken(answers.pods if isinstance(answers.pods, list) else [])
    placed = {role: place(pod.ask, answers.nodes, used) for role, pod in pods.items()}
    for role in roles:
        if role in pods:
            yield _role(pods[role], placed[role], answers.nodes, answers.pods, used)
        else:
            missing = Unknown(f"needs the pod template {deployment.pod(role).template}")
            yield (answers.templates if isinstance(answers.templates, Unknown) else missing).of(f"pod of {role}")
    if isinstance(answers.pods, list):
        yield from _pools(placed, used, roles)
    yield _shards(answers, deployment, pods, placed, run)


def _gpus(nodes: list[Node], deployment: DeploymentSettings, roles: Sequence[Role]) -> Finding:
    name = "GPUs"
    if not any(deployment.pod(role).gpus for role in roles):
        return Finding(name, "ok", "none is asked for")
    counts = {node.name: node.allocatable.get(GPU, 0) for node in nodes}
    if not any(counts.values()):
        return Finding(
            name,
            "failed",
            f"no node of {len(nodes)} offers {GPU}",
            "Add GPU nodes; where there are some, install NVIDIA's GPU operator or device plugin: "
            "kubectl get daemonsets -A shows whether it runs",
        )
    bare = [node.name for node in nodes if deployment.accelerator_label in node.labels and not counts[node.name]]
    found = f"{shown(GPU, sum(counts.values()))} on {sum(map(bool, counts.values()))} of {len(nodes)} nodes"
    if bare:
        mend = "Look at the device plugin's pods there: kubectl get pods -A -o wide"
        return Finding(name, "warning", f"{found}; none on {some(bare, AT_MOST)}, labelled as GPU nodes", mend)
    return Finding(name, "ok", found)


def _role(pod: RolePod, placed: Placement, nodes: list[Node], pods: list[Pod] | Unknown, used: Taken) -> Finding:
    name, ever, now = f"pod of {pod.role}", sum(placed.ever.values()), sum(placed.now.values())
    if not ever:
        return nowhere(name, pod, placed, nodes, used)
    fits = f"fits {len(placed.possible)} of {len(nodes)} nodes"
    if ever < pod.count:
        found = f"{fits}, which hold {ever} of the {pod.count} that must run at once"
        return Finding(name, "failed", found, "Add nodes to its pool, or lower train_nodes")
    if isinstance(pods, Unknown):
        return Finding(name, "warning", f"{fits}; what is free there is not known: {pods.why}", pods.mend)
    if now < pod.count:
        found = f"{fits}, and waits: {listed(_shortages(pod, placed, used))}"
        return Finding(name, "warning", found, "Wait for what runs there, or add nodes to its pool")
    return Finding(name, "ok", f"{fits}; room for {now} now")


def _shortages(pod: RolePod, placed: Placement, used: Taken) -> list[str]:
    """Resources of which no possible node has enough left; or that they are short together."""
    found = []
    for resource, asked in pod.ask.requests.items():
        most, node = max((left(one, used.all).get(resource, 0), one.name) for one in placed.possible)
        if most < asked:
            found.append(f"asks {shown(resource, asked)}, {node} has {shown(resource, max(0, most))} free")
    now = sum(placed.now.values())
    return found or [f"{pod.count} must run at once, and there is room for {now}" if now else "no node has all it asks"]


def _pools(placed: Mapping[Role, Placement], used: Taken, all_roles: Sequence[Role]) -> Iterator[Finding]:
    """What is free on nodes that serve the same roles."""
    serves: dict[str, list[Role]] = {}
    nodes: dict[str, Node] = {}
    for role, placement in placed.items():
        for node in placement.possible:
            serves.setdefault(node.name, []).append(role)
            nodes[node.name] = node
    pools: dict[tuple[Role, ...], list[Node]] = {}
    for name, roles in serves.items():
        pools.setdefault(tuple(roles), []).append(nodes[name])
    for of, members in pools.items():
        whole = total(node.allocatable for node in members)
        free = total(left(node, used.all) for node in members)
        amounts = [
            f"{shown(one, free[one]).split()[0]} of {shown(one, whole[one])}" for one in _SHOWN if whole.get(one)
        ]
        found = f"{some([node.name for node in members], AT_MOST)}: {', '.join(amounts)}"
        yield Finding("free for all" if of == all_roles else f"free for {', '.join(of)}", "ok", found)


def _shards(
    answers: Answers,
    deployment: DeploymentSettings,
    pods: Mapping[Role, RolePod],
    placed: Mapping[Role, Placement],
    run: RunSettings,
) -> Finding:
    if run.alternates:
        return Finding("shards", "ok", "none: pods that train generate")
    name, wanted = "shards", min(run.shards, deployment.max_parallelism)
    asked = f"{run.shards} a stage, {wanted} at once by max_parallelism {deployment.max_parallelism}"
    if "rollout" not in placed or not any(placed["rollout"].ever.values()):
        return Finding(name, "not tried", f"{asked}; the pod of rollout fits no node that is known")
    if isinstance(answers.pods, Unknown):
        return answers.pods.of(name)
    fit = sum(placed["rollout"].now.values())
    allowed = None if isinstance(answers.quotas, Unknown) else room_in(answers.quotas, pods["rollout"])
    room = fit if allowed is None else min(fit, allowed)
    by = "the nodes have" if allowed is None or fit <= allowed else "the quota has"
    if room >= wanted:
        return Finding(name, "ok", f"{asked}; room for {room}")
    rounds = f"{-(-run.shards // room)} rounds" if room else "all wait"
    return Finding(
        name,
        "warning",
        f"{asked}; {by} room for {room} now: {rounds}",
        "Wait, add nodes or quota, or make fewer shards: prompts.prompts_per_shard",
    )
