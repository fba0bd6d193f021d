"""Flyte reads its settings without a word about what it does not know: here every key of ours is one of its own.

From the configuration structs of Flyte 1.16 (flytepropeller/pkg/controller/config, flyteplugins/.../flytek8s/config,
flyteadmin/pkg/config, flytestdlib/storage), as far as they are used.
"""

from typing import Any

import pytest

from tests.k8s.flyte_values import Values, values

# A map stands for a struct, None for a value or a map whose keys are free.
PROPELLER: Values = {
    "rawoutput-prefix": None,
    "metadata-prefix": None,
    "max-ttl-hours": None,
    "max-workflow-retries": None,
    "queue": {"queue": dict.fromkeys(("type", "rate", "capacity", "base-delay", "max-delay"))},
    "gc-interval": None,
    "node-config": {
        "default-deadlines": {"node-execution-deadline": None, "node-active-deadline": None},
        "max-node-retries-system-failures": None,
        "interruptible-failure-threshold": None,
    },
    "array-node-config": {"default-parallelism-behavior": None, "max-delta-timestamp": None},
    "literal-offloading-config": {"enabled": None},
}
K8S: Values = dict.fromkeys(
    (
        "inject-finalizer",
        "delete-resource-on-finalize",
        "default-pod-template-name",
        "default-env-vars",
        "interruptible-tolerations",
        "resource-tolerations",
        "gpu-resource-name",
        "gpu-device-node-label",
        "image-pull-backoff-grace-period",
    )
) | {
    f"{kind}-node-selector-requirement": {"key": None, "operator": None, "values": None}
    for kind in ("interruptible", "non-interruptible")
}
RESOURCES: Values = dict.fromkeys(("cpu", "memory", "ephemeralStorage", "gpu"))
ADMIN: Values = {
    "flyteadmin": dict.fromkeys(
        (
            "maxParallelism",
            "k8sServiceAccount",
            "metadataStoragePrefix",
            "useOffloadedWorkflowClosure",
            "useOffloadedInputs",
        )
    ),
    "server": {"dataProxy": {"upload": {"storagePrefix": None}}},
}
NOTIFICATIONS: Values = {
    "type": None,
    "region": None,
    "publisher": {"topicName": None},
    "processor": {"queueName": None, "accountId": None},
    "emailer": {"sender": None, "subject": None, "body": None},
}
CATALOG: Values = {"datacatalog": {"storage-prefix": None}}
FLYTE: Values = {
    **ADMIN,
    **CATALOG,
    "propeller": PROPELLER,
    "plugins": {"k8s": K8S},
    "task_resources": {"defaults": RESOURCES, "limits": RESOURCES},
    "storage": {
        "signedUrl": {"stowConfigOverride": None},
        "limits": {"maxDownloadMBs": None},
        "cache": {"max_size_mbs": None, "target_gc_percent": None},
    },
    "notifications": NOTIFICATIONS,
}


def unknown(said: Any, known: Any, place: str = "") -> list[str]:
    """Keys that Flyte would pass over."""
    if known is None or not isinstance(said, dict):
        return []
    own = [f"{place}.{key}" for key in said if key not in known]
    return own + [one for key in said if key in known for one in unknown(said[key], known[key], f"{place}.{key}")]


@pytest.mark.parametrize("cluster", ["development.yaml", "gpu-pool.yaml", "notifications.yaml"])
def test_the_binary_knows_every_key(cluster: str) -> None:
    assert unknown(values("values.yaml", cluster)["configuration"]["inline"], FLYTE) == []


def test_the_parts_know_every_key() -> None:
    maps = values("core.yaml", "notifications.yaml")["configmap"]
    assert unknown(maps["adminServer"], ADMIN) == []
    assert unknown(maps["datacatalogServer"], CATALOG) == []
    assert unknown({**maps["core"], **maps["k8s"], **maps["task_resource_defaults"]}, FLYTE) == []
    said = values("notifications.yaml")["workflow_notifications"]["config"]
    assert unknown(said, {"notifications": NOTIFICATIONS}) == []


def test_a_misspelt_key_is_seen() -> None:
    said = {"propeller": {"node-config": {"interruptible-threshold": 1}}, "plugins": {"k8s": {}}}
    assert unknown(said, FLYTE) == [".propeller.node-config.interruptible-threshold"]
