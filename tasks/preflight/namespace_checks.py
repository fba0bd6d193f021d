"""Checks of who asks, and of what the namespace of a run holds."""

from collections.abc import Iterator, Mapping, Sequence

from tasks.preflight.answers import KUBEFLOW, Answers
from tasks.preflight.cluster import Permission
from tasks.preflight.findings import Finding, Unknown, judged
from tasks.preflight.records import PodTemplate
from tasks.preflight.role_pods import RolePod
from tasks.preflight.security import LABEL, Profile, refused
from tasks.settings.deployment import DeploymentSettings, Role

OLDEST = (1, 28)
"""Kubernetes itself mends none that is this old."""
_PROFILES: tuple[Profile, ...] = ("privileged", "baseline", "restricted")
_APPLY = "kubectl apply -k k8s/overlays/<yours>"


def identity_checks(answers: Answers) -> Iterator[Finding]:
    """The server, and what this user may do."""
    version = answers.version
    if isinstance(version, Unknown):
        yield version.of("API server", "failed" if answers.host else "not tried")
    else:
        wrong = []
        if version.number < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            wrong.append((f"Kubernetes {version.git_version}", f"Upgrade the cluster to {oldest} or newer"))
        yield judged("API server", f"{answers.host}, Kubernetes {version.git_version}", wrong)
    if isinstance(answers.permissions, Unknown):
        yield answers.permissions.of("permissions")
    else:
        yield _permissions(answers.permissions)
    yield _creates_pods(answers)


def _permissions(permissions: Mapping[Permission, bool]) -> Finding:
    name, denied = "permissions", [str(permission) for permission, allowed in permissions.items() if not allowed]
    if not denied:
        return Finding(name, "ok", f"all {len(permissions)} that are asked for here")
    mend = "Ask for them: k8s/components/preflight binds a role with all"
    return Finding(name, "warning", f"may not {', '.join(denied)}", mend)


def _creates_pods(answers: Answers) -> Finding:
    name, can = "create pods", answers.creates_pods
    if isinstance(can, Unknown):
        return can.of(name)
    if can:
        return Finding(name, "ok", f"in {answers.namespace}, as this user")
    return Finding(
        name,
        "not tried",
        f"this user may not, in {answers.namespace}; whether Flyte's account may is not known here",
        f"kubectl auth can-i create pods -n {answers.namespace} --as system:serviceaccount:flyte:flyte-flyte-binary",
    )


def namespace_checks(
    answers: Answers, deployment: DeploymentSettings, pods: Mapping[Role, RolePod], roles: Sequence[Role]
) -> Iterator[Finding]:
    """The namespace, and what is in it for these roles."""
    yield _namespace(answers)
    yield _pod_security(answers, pods)
    yield _accounts(answers, pods)
    yield _secrets(answers, deployment)
    yield _templates(answers, deployment, roles)
    yield _priorities(answers, pods)
    yield _training(answers, deployment)


def _namespace(answers: Answers) -> Finding:
    name, found = "namespace", answers.of_namespace
    if isinstance(found, Unknown):
        return found.of(name)
    if found is not None:
        gone = [(f"{found.name} is being deleted", f"Wait, and make it again: {_APPLY}")]
        return judged(name, found.name, gone if found.phase == "Terminating" else [])
    near = [] if isinstance(answers.namespaces, Unknown) else [one.name for one in answers.namespaces]
    like = sorted(one for one in near if one.startswith("mu-grpo-"))
    there = f"; there are {', '.join(like)}" if like else ""
    return Finding(
        name,
        "failed",
        f"{answers.namespace} does not exist{there}",
        f"Name another --project or --domain, or make it: {_APPLY}",
    )


def _pod_security(answers: Answers, pods: Mapping[Role, RolePod]) -> Finding:
    name, found = "Pod Security", answers.of_namespace
    if isinstance(found, Unknown) or found is None:
        return (found or Unknown(f"there is no namespace {answers.namespace}")).of(name)
    profile = next((one for one in _PROFILES if one == found.labels.get(LABEL)), None)
    if profile is None:
        return Finding(
            name,
            "warning",
            f"{found.name} has no label {LABEL}: pods may ask for anything",
            f"kubectl label namespace {found.name} {LABEL}=restricted",
        )
    if not pods:
        return Unknown(f"{LABEL}={profile}; no pod template is known").of(name)
    wrong = []
    for template, pod in {one.template: one.spec for one in pods.values()}.items():
        if fields := refused(pod, profile):
            mend = f"Mend the pod template {template}, or label {found.name} less strictly"
            wrong.append((f"{LABEL}={profile} refuses pods of {template}: {', '.join(fields)}", mend))
    return judged(name, f"{profile}, which all pod templates meet", wrong)


def _accounts(answers: Answers, pods: Mapping[Role, RolePod]) -> Finding:
    name = "service accounts"
    if isinstance(answers.accounts, Unknown):
        return answers.accounts.of(name)
    if not pods:
        return Unknown("no pod template is known").of(name)
    there = {one.name for one in answers.accounts}
    named = {pod.spec.service_account_name: pod.template for pod in pods.values()}
    wrong = [
        (f"{account}, which {template} names, does not exist in {answers.namespace}", f"Make it: {_APPLY}")
        for account, template in named.items()
        if account not in there
    ]
    return judged(name, ", ".join(named), wrong)


def _secrets(answers: Answers, deployment: DeploymentSettings) -> Finding:
    name, asked = "secrets", deployment.secrets
    keys = [key for key in (asked.hub_token, asked.tracker_key) if key]
    if not keys:
        return Finding(name, "ok", "none is asked for")
    if isinstance(answers.secret, Unknown):
        return answers.secret.of(name)
    make = f"kubectl create secret generic {asked.name} -n {answers.namespace} "
    if answers.secret is None:
        literals = " ".join(f"--from-file={key}=..." for key in keys)
        return Finding(name, "failed", f"{asked.name} does not exist in {answers.namespace}", make + literals)
    there = answers.secret.keys
    wrong = [
        (
            f"{asked.name} has no key {key}; it has {', '.join(sorted(there)) or 'none'}",
            f"Add the key to the secret, or name another in the deployment's secrets: {key}",
        )
        for key in keys
        if key not in there
    ]
    return judged(name, f"{asked.name}: {', '.join(keys)}", wrong)


def _templates(answers: Answers, deployment: DeploymentSettings, roles: Sequence[Role]) -> Finding:
    name = "pod templates"
    if isinstance(answers.templates, Unknown):
        return answers.templates.of(name)
    there = {one.name for one in answers.templates}
    of_roles: dict[str, list[str]] = {}
    for role in roles:
        of_roles.setdefault(deployment.pod(role).template, []).append(role)
    have = f"; it has {', '.join(sorted(there))}" if there else ""
    wrong = [
        (
            f"{template} of {', '.join(of)} does not exist in {answers.namespace}{have}",
            f"Make it: {_APPLY}, or name another in the deployment's pods",
        )
        for template, of in of_roles.items()
        if template not in there
    ]
    joined = [one.name for one in answers.templates if one.name in of_roles and one.spec.terms is not None]
    if joined and not wrong:
        found = f"{', '.join(joined)}: Flyte joins a template's required node affinity to its own by 'or'"
        return Finding(name, "warning", found, "Put what must hold into nodeSelector of the template")
    return judged(name, ", ".join(of_roles), wrong)


def _priorities(answers: Answers, pods: Mapping[Role, RolePod]) -> Finding:
    name = "priority classes"
    if isinstance(answers.priorities, Unknown):
        return answers.priorities.of(name)
    if not pods:
        return Unknown("no pod template is known").of(name)
    there = {one.name for one in answers.priorities}
    named = {pod.spec.priority_class_name: pod.template for pod in pods.values() if pod.spec.priority_class_name}
    wrong = [
        (f"{priority}, which {template} names, does not exist", f"Make it: {_APPLY}")
        for priority, template in named.items()
        if priority not in there
    ]
    return judged(name, ", ".join(named) or "none is named", wrong)


def _training(answers: Answers, deployment: DeploymentSettings) -> Finding:
    name = "PyTorchJob"
    if deployment.train_nodes == 1:
        return Finding(name, "ok", "not needed for train_nodes 1")
    if isinstance(answers.training, Unknown):
        return answers.training.of(name)
    if "pytorchjobs" in (answers.training or ()):
        return Finding(name, "ok", f"{KUBEFLOW} is served")
    return Finding(
        name,
        "failed",
        f"{KUBEFLOW} has no pytorchjobs here, and train_nodes is {deployment.train_nodes}",
        "Install Kubeflow's training operator v1 and enable Flyte's pytorch plugin, or set train_nodes: 1",
    )


def known_templates(answers: Answers) -> dict[str, PodTemplate]:
    """The pod templates of the namespace, by name; none when they are not known."""
    return {} if isinstance(answers.templates, Unknown) else {one.name: one for one in answers.templates}
