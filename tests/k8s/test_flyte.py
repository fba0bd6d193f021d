"""Flyte's own settings: what they admit, and that both charts say the same."""

import json
from typing import Any

import pytest
import yaml

from tasks.settings.deployment import ROLES, DeploymentSettings, quantity
from tests.k8s.flyte_values import FOLDER, as_helm_writes, values
from tests.k8s.policies import wrong
from tests.k8s.test_manifests import named
from tests.preflight.clusters import rendered
from tools import ROOT

DEPLOYMENTS = sorted((ROOT / "configs/deployments").glob("*.yaml"))
UNITS = {"cpu": "cpu", "memory": "memory", "ephemeralStorage": "ephemeral_storage", "gpu": "gpus"}


def test_the_limits_admit_the_pods_of_every_deployment() -> None:
    limits = values("values.yaml")["configuration"]["inline"]["task_resources"]["limits"]
    assert quantity(limits["gpu"]) >= 8
    for path in DEPLOYMENTS:
        deployment = DeploymentSettings.read(path)
        for role in ROLES:
            for name, field in UNITS.items():
                asked = quantity(str(getattr(deployment.pods[role], field)))
                assert asked <= quantity(limits[name]), f"{path.stem}: {role} asks for more {name} than Flyte admits"


def test_values_of_both_charts_agree() -> None:
    binary, core = values("values.yaml", "gpu-pool.yaml"), values("core.yaml")
    inline, maps = binary["configuration"]["inline"], core["configmap"]
    assert inline["task_resources"] == maps["task_resource_defaults"]["task_resources"]
    assert inline["propeller"] == maps["core"]["propeller"]
    limits, cache = inline["storage"]["limits"], inline["storage"]["cache"]
    assert limits == core["storage"]["limits"]
    assert list(cache.values()) == [core["storage"]["cache"][key] for key in ("maxSizeMBs", "targetGCPercent")]
    assert inline["plugins"]["k8s"] == maps["k8s"]["plugins"]["k8s"]
    assert {**inline["flyteadmin"], **inline["server"], **inline["datacatalog"]} == {
        **maps["adminServer"]["flyteadmin"],
        **maps["adminServer"]["server"],
        **maps["datacatalogServer"]["datacatalog"],
    }
    assert binary["enabled_plugins"] == maps["enabled_plugins"]
    assert binary["flyte-core-components"]["admin"]["seedProjects"] == core["flyteadmin"]["initialProjects"]
    assert binary["configuration"]["storage"]["userDataContainer"] == core["storage"]["bucketName"]


def test_map_tasks_stay_within_what_flyte_counts() -> None:
    """No more shards at once than max_parallelism, and time for every attempt of one that starts late."""
    found = values("values.yaml")["configuration"]["inline"]["propeller"]
    assert found["array-node-config"]["default-parallelism-behavior"] == "workflow"
    hours = int(found["array-node-config"]["max-delta-timestamp"].removesuffix("h"))
    for path in DEPLOYMENTS:
        for role in ("rollout", "evaluate"):
            pod = DeploymentSettings.read(path).pods[role]
            assert hours * 60 >= 2 * pod.timeout_minutes, f"{path.stem}: {role}"


def test_a_container_that_is_created_late_ends_no_run() -> None:
    """Flyte makes it a failure without a retry, at once or after three minutes by its own settings."""
    k8s = values("values.yaml")["configuration"]["inline"]["plugins"]["k8s"]
    for name in ("create-container-error", "create-container-config-error", "image-pull-backoff"):
        assert int(k8s[f"{name}-grace-period"].removesuffix("m")) >= 5


def dotted(said: Any, place: str = "") -> list[str]:
    """Keys of maps with a dot in them; those of maps in lists stay whole."""
    if not isinstance(said, dict):
        return []
    own = [f"{place}.{key}" for key in said if "." in key]
    return own + [one for key, value in said.items() for one in dotted(value, f"{place}.{key}")]


def test_no_key_of_flytes_settings_has_a_dot() -> None:
    """Flyte 1.16 cuts the keys of its settings at their dots, and finds no ``nvidia.com/gpu`` then."""
    binary, core = values("values.yaml", "gpu-pool.yaml", "notifications.yaml"), values("core.yaml")
    assert dotted(binary["configuration"]["inline"]) == dotted(core["configmap"]) == []
    for k8s in (binary["configuration"]["inline"]["plugins"]["k8s"], core["configmap"]["k8s"]["plugins"]["k8s"]):
        (tolerations,) = k8s["resource-tolerations"]
        assert list(tolerations) == [k8s["gpu-resource-name"]]


@pytest.mark.parametrize("cluster", ["development.yaml", "gpu-pool.yaml"])
def test_flytes_data_is_below_prefixes_that_the_bucket_policy_allows(cluster: str) -> None:
    inline = values("values.yaml", cluster)["configuration"]["inline"]
    kept = [
        "/".join(inline["flyteadmin"]["metadataStoragePrefix"]),
        inline["datacatalog"]["storage-prefix"],
        inline["server"]["dataProxy"]["upload"]["storagePrefix"],
        inline["propeller"]["metadata-prefix"],
        inline["propeller"]["rawoutput-prefix"].removeprefix("s3://mu-grpo/"),
    ]
    # None is part of another: what expires of one is not the other's.
    assert [(a, b) for a in kept for b in kept if a is not b and f"{b}/".startswith(f"{a}/")] == []
    assert wrong(f"{prefix}/x" for prefix in kept) == []


def test_flyte_leaves_the_labels_of_namespaces() -> None:
    """It applies its templates as ``kubectl apply`` does, in the order of their names, for every project and domain.

    What a template lacks is taken away, so the last one decides; namespaces of other projects get no labels.
    """
    namespace = yaml.safe_load((ROOT / "k8s/base/namespace.yaml").read_text())
    binary = values("values.yaml")["clusterResourceTemplates"]["inline"]
    core = {one["key"]: one["value"] for one in values("core.yaml")["cluster_resource_manager"]["templates"]}
    for templates in (binary, core):
        found = {"mu-grpo-development": {}, "others-development": {}}
        for name in found:
            for key in sorted(templates):
                one = yaml.safe_load(templates[key].replace("{{ namespace }}", name))
                found[one["metadata"]["name"]] = one
        assert found["mu-grpo-development"] == namespace
        assert "labels" not in found["others-development"]["metadata"]


@pytest.mark.parametrize("cluster", ["development.yaml", "gpu-pool.yaml", "notifications.yaml"])
def test_templates_for_flyte_pass_through_helm(cluster: str) -> None:
    found = as_helm_writes(values("values.yaml", cluster)["configuration"]["inline"])
    if cluster == "notifications.yaml":
        core = values(cluster)["workflow_notifications"]["config"]["notifications"]
        assert found["notifications"] == core
        assert "{{ phase }}" in core["emailer"]["subject"]


def test_flytes_role_allows_its_notifications() -> None:
    """Without the topic and the queue it does not start."""
    said = values("notifications.yaml")["workflow_notifications"]["config"]["notifications"]
    policy = json.loads((FOLDER / "policy-notifications.json").read_text())
    resources = {action: one["Resource"] for one in policy["Statement"] for action in one["Action"]}
    topic, processor = said["publisher"]["topicName"], said["processor"]
    assert resources["sns:Publish"] == topic
    queue = f"arn:aws:sqs:{said['region']}:{processor['accountId']}:{processor['queueName']}"
    assert {resources[f"sqs:{verb}"] for verb in ("GetQueueUrl", "ReceiveMessage", "DeleteMessage")} == {queue}
    (sends,) = (one for one in policy["Statement"] if one["Action"] == ["ses:SendEmail"])
    assert sends["Condition"]["StringEquals"]["ses:FromAddress"] == said["emailer"]["sender"]


def test_development_values_name_objects_of_their_overlay() -> None:
    configuration = values("values.yaml", "development.yaml")["configuration"]
    documents = rendered("k8s/overlays/development")
    store, postgres = (named(documents, "Secret")[name]["stringData"] for name in ("store", "postgres"))
    s3 = configuration["storage"]["providerConfig"]["s3"]
    assert (s3["accessKey"], s3["secretKey"]) == (store["ROOT_ACCESS_KEY"], store["ROOT_SECRET_KEY"])
    database = configuration["database"]
    assert (database["username"], database["password"], database["dbname"]) == tuple(postgres.values())
    addresses = {
        f"{name}.{one['metadata']['namespace']}": one["spec"]["ports"][0]["port"]
        for name, one in named(documents, "Service").items()
    }
    assert database["host"] in addresses
    assert s3["endpoint"] in {f"http://{name}:{port}" for name, port in addresses.items()}
    assert configuration["inline"]["plugins"]["k8s"]["default-env-vars"] == [
        {"FLYTE_AWS_ENDPOINT": s3["endpoint"]},
        {"FLYTE_AWS_ACCESS_KEY_ID": s3["accessKey"]},
        {"FLYTE_AWS_SECRET_ACCESS_KEY": s3["secretKey"]},
    ]
