"""Checks of what a namespace allows its pods: quotas, and bounds of a single pod."""

from collections.abc import Iterator, Mapping

from tasks.preflight.answers import Answers
from tasks.preflight.findings import Finding, judged, listed
from tasks.preflight.pools import Amount, copies, shown
from tasks.preflight.records import CPU, GPU, MEMORY, PODS, STORAGE, Limit, Quota, ScopeSelector
from tasks.preflight.role_pods import RolePod
from tasks.settings.deployment import Role

_MEND = "Change it in k8s/overlays/<yours>, or change the deployment's pods"


def counted(pod: RolePod) -> dict[str, int]:
    """What a pod counts for in quotas, by their names for it; requests are limits."""
    asked = pod.ask.requests
    return {
        **{name: asked.get(name, 0) for name in (CPU, MEMORY, STORAGE)},
        **{f"{kind}.{name}": asked.get(name, 0) for name in (CPU, MEMORY, STORAGE) for kind in ("requests", "limits")},
        f"requests.{GPU}": asked.get(GPU, 0),
        PODS: asked.get(PODS, 0),
        f"count/{PODS}": asked.get(PODS, 0),
    }


def counts(quota: Quota, pod: RolePod) -> bool | None:
    """Whether a quota counts a pod; None when its scope is none that can be judged here."""
    priority = pod.spec.priority_class_name
    found = [
        *(_in_scope(ScopeSelector(scope_name=scope, operator="Exists"), priority) for scope in quota.scopes),
        *(_in_scope(selector, priority) for selector in quota.selectors),
    ]
    return False if False in found else None if None in found else True


def _in_scope(selector: ScopeSelector, priority: str) -> bool | None:
    match selector.scope_name, selector.operator:
        case "BestEffort", _:
            return False
        case "NotBestEffort", _:
            return True
        case "PriorityClass", "In":
            return priority in selector.values
        case "PriorityClass", "NotIn":
            return priority not in selector.values
        case "PriorityClass", "Exists":
            return bool(priority)
        case "PriorityClass", "DoesNotExist":
            return not priority
    return None


def room_in(quotas: list[Quota], pod: RolePod, used: bool = True) -> int | None:
    """How many of a role's pods quotas allow beside what is used, or at all; None without a quota for them."""
    rooms = [
        copies({name: counted(pod).get(name, 0) for name in quota.hard}, _left(quota, used))
        for quota in quotas
        if counts(quota, pod) and any(counted(pod).get(name, 0) for name in quota.hard)
    ]
    return min(rooms, default=None)


def _left(quota: Quota, used: bool) -> Amount:
    return {name: value - (quota.used.get(name, 0) if used else 0) for name, value in quota.hard.items()}


def quota_checks(answers: Answers, pods: Mapping[Role, RolePod]) -> Iterator[Finding]:
    """Whether a namespace's quotas and bounds let each role's pod in."""
    for name, answer in (("quota", answers.quotas), ("limit range", answers.limits)):
        if not isinstance(answer, list):
            yield answer.of(name)
        elif not pods:
            yield Finding(name, "not tried", "no pod template is known")
        else:
            yield _quota(answers, pods) if name == "quota" else _limits(answers, pods)


def _quota(answers: Answers, pods: Mapping[Role, RolePod]) -> Finding:
    assert isinstance(answers.quotas, list)
    never, waits, lefts, unjudged = [], [], [], []
    for quota in answers.quotas:
        of = [pod for pod in pods.values() if counts(quota, pod)]
        if not of:
            if any(counts(quota, pod) is None for pod in pods.values()):
                unjudged.append(f"{quota.name} is of a scope that is not judged here")
            continue
        now = _left(quota, used=True)
        lefts.append(f"{quota.name} has left {', '.join(shown(*one) for one in now.items())}")
        for resource, hard in quota.hard.items():
            # The largest pod stands for the others: what lets it in lets them in.
            pod = max(of, key=lambda one: one.count * counted(one).get(resource, 0))
            asked = pod.count * counted(pod).get(resource, 0)
            what = f"{shown(resource, asked)} of {pod.role}"
            if asked > hard:
                never.append((f"{quota.name} allows {shown(resource, hard)}, which {what} exceed", _MEND))
            elif asked > now[resource]:
                waits.append(f"{quota.name} has {shown(resource, now[resource])} left, and {what} wait")
    if never or not waits:
        found = listed([*lefts, *unjudged]) or "there is none"
        return judged("quota", found, never)
    return Finding("quota", "warning", listed(waits), "Wait for what runs in the namespace, or raise the quota")


def _limits(answers: Answers, pods: Mapping[Role, RolePod]) -> Finding:
    assert isinstance(answers.limits, list)
    wrong = [
        found
        for limit_range in answers.limits
        for limit in limit_range.limits
        if limit.type in ("Container", "Pod")
        for found in _out_of_bounds(f"{limit_range.name} allows a {limit.type}", limit, list(pods.values()))
    ]
    return judged("limit range", "every role's pod is within its bounds" if answers.limits else "there is none", wrong)


def _out_of_bounds(allows: str, limit: Limit, pods: list[RolePod]) -> Iterator[tuple[str, str]]:
    for bounds, extreme, word in ((limit.max, max, "at most"), (limit.min, min, "at least")):
        for resource, bound in bounds.items():
            asked, role = extreme((pod.ask.requests.get(resource, 0), pod.role) for pod in pods)
            if asked != bound and extreme(asked, bound) == asked:
                yield f"{allows} {word} {shown(resource, bound)}; {role} asks {shown(resource, asked)}", _MEND
