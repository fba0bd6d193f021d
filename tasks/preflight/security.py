"""What Pod Security's profiles refuse in a pod, by their standard's names; sysctls and SELinux are not judged."""

from collections.abc import Iterator
from typing import Literal

from tasks.preflight.records import Container, PodSpec

Profile = Literal["privileged", "baseline", "restricted"]
LABEL = "pod-security.kubernetes.io/enforce"
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"}
_VOLUMES |= {"secret"}
_SECCOMP = ("RuntimeDefault", "Localhost")
_ADDED_BY_DEFAULT = {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"}
_ADDED_BY_DEFAULT |= {"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}


def refused(pod: PodSpec, profile: Profile) -> list[str]:
    """Fields of a pod for which a namespace with this profile would not take it."""
    if profile == "privileged":
        return []
    return [*_baseline(pod), *(_restricted(pod) if profile == "restricted" else ())]


def _baseline(pod: PodSpec) -> Iterator[str]:
    for name, used in (("hostNetwork", pod.host_network), ("hostPID", pod.host_pid), ("hostIPC", pod.host_ipc)):
        if used:
            yield f"{name} true"
    for volume in pod.volumes:
        if "hostPath" in volume.kinds:
            yield f"volume {volume.name} of hostPath"
    for container in pod.containers:
        context = container.security_context
        if context.privileged:
            yield "privileged true"
        if odd := set(context.added) - _ADDED_BY_DEFAULT:
            yield f"capabilities.add {', '.join(sorted(odd))}"
        if any(port.host_port for port in container.ports):
            yield "hostPort"
    seccomp = (pod.security_context.seccomp, *(one.security_context.seccomp for one in pod.containers))
    if "Unconfined" in seccomp:
        yield "seccompProfile.type Unconfined"


def _restricted(pod: PodSpec) -> Iterator[str]:
    for volume in pod.volumes:
        if odd := volume.kinds - _VOLUMES - {"hostPath"}:
            yield f"volume {volume.name} of {', '.join(sorted(odd))}"
    for container in pod.containers:
        yield from _restricted_container(pod, container)


def _restricted_container(pod: PodSpec, container: Container) -> Iterator[str]:
    whole, own = pod.security_context, container.security_context
    if own.allow_privilege_escalation is not False:
        yield "allowPrivilegeEscalation not false"
    if not (whole.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root):
        yield "runAsNonRoot not true"
    if 0 in (whole.run_as_user, own.run_as_user):
        yield "runAsUser 0"
    if "ALL" not in own.dropped:
        yield "capabilities.drop without ALL"
    if odd := set(own.added) & (_ADDED_BY_DEFAULT - {"NET_BIND_SERVICE"}):
        yield f"capabilities.add {', '.join(sorted(odd))}"
    if (own.seccomp or whole.seccomp or "") not in (*_SECCOMP, "Unconfined"):
        yield "seccompProfile.type neither RuntimeDefault nor Localhost"
