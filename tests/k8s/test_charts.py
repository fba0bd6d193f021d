"""What Flyte's own charts make of k8s/flyte, by helm, where ``FLYTE_CHARTS`` names their folder.

``make test-charts`` fetches them.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.settings import Settings
from tasks.settings.deployment import quantity
from tests.k8s.flyte_values import FOLDER, Values, as_helm_writes, values, within
from tools import ROOT

Objects = dict[tuple[str, str], Any]
CHARTS = os.environ.get("FLYTE_CHARTS")
pytestmark = pytest.mark.skipif(CHARTS is None, reason="FLYTE_CHARTS names no folder: make test-charts fetches them")
BINARY = [("development.yaml",), ("gpu-pool.yaml",), ("gpu-pool.yaml", "notifications.yaml")]
CORE = [("core.yaml",), ("core.yaml", "notifications.yaml")]
TEMPLATES = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mu-grpo-development"}},
    yaml.safe_load((ROOT / "k8s/base/namespace.yaml").read_text()),
]
JOBS = {"create", "delete", "get", "list", "patch", "update", "watch"}


def made(chart: str, names: tuple[str, ...]) -> Objects:
    """The objects that ``helm upgrade`` of docs/cluster.md would apply, by kind and name."""
    files = [part for name in names for part in ("-f", str(FOLDER / name))]
    command = ["helm", "template", "flyte", str(Path(CHARTS or "") / chart), "-n", "flyte", *files]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stderr[-2000:]
    objects = [one for one in yaml.safe_load_all(found.stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def read(*files: dict[str, str]) -> Values:
    """What Flyte reads: files in the order of their names, a later one over an earlier."""
    texts = {name: text for one in files for name, text in one.items()}
    found: Values = {}
    for name in sorted(texts):
        found = Settings.merge(found, yaml.safe_load(texts[name]))
    return found


def templates(objects: Objects, name: str) -> list[Values]:
    """The objects that Flyte applies to the namespace of a project and domain."""
    texts = objects["ConfigMap", name]["data"]
    return [yaml.safe_load(texts[key].replace("{{ namespace }}", "mu-grpo-development")) for key in sorted(texts)]


def may_run_training_on_several_nodes(role: Values) -> bool:
    return any(
        {"kubeflow.org", "*"} & set(rule["apiGroups"])
        and {"pytorchjobs", "*"} & set(rule["resources"])
        and set(rule["verbs"]) >= JOBS
        for rule in role["rules"]
    )


@pytest.mark.parametrize("names", BINARY, ids="+".join)
def test_flyte_binary_reads_the_values(names: tuple[str, ...]) -> None:
    said = values("values.yaml", *names)
    objects = made("flyte-binary", ("values.yaml", *names))
    found = read(
        objects["ConfigMap", "flyte-flyte-binary-config"]["data"],
        objects["Secret", "flyte-flyte-binary-config-secret"].get("stringData") or {},
    )
    assert within(as_helm_writes(said["configuration"]["inline"]), found) == []
    assert within(said["enabled_plugins"], found) == []
    assert found["flyte"]["admin"]["seedProjects"] == ["mu-grpo"]
    database, storage = said["configuration"]["database"], said["configuration"]["storage"]
    secret = {key: database[key] for key in ("password", "passwordPath") if key in database}
    assert within({"host": database["host"], "dbname": "flyte", **secret}, found["database"]["postgres"]) == []
    assert found["storage"]["container"] == storage["metadataContainer"]
    assert found["storage"]["stow"]["config"].get("endpoint") == storage["providerConfig"]["s3"].get("endpoint")
    (role,) = (one for (kind, _), one in objects.items() if kind == "ClusterRole")
    assert may_run_training_on_several_nodes(role)
    assert templates(objects, "flyte-flyte-binary-cluster-resource-templates") == TEMPLATES
    pod = objects["Deployment", "flyte-flyte-binary"]["spec"]["template"]["spec"]
    if "passwordPath" in database:
        assert mounted(pod["containers"][0], pod, Path(database["passwordPath"]).parent) == "flyte-database"


def mounted(container: Values, pod: Values, folder: Path) -> str:
    """The secret that a container finds in a folder."""
    (mount,) = (one for one in container["volumeMounts"] if one["mountPath"] == str(folder))
    (volume,) = (one for one in pod["volumes"] if one["name"] == mount["name"])
    return str(volume["secret"]["secretName"])


@pytest.mark.parametrize("names", CORE, ids="+".join)
def test_flyte_core_reads_the_values(names: tuple[str, ...]) -> None:
    said = values(*names)
    objects = made("flyte-core", names)
    admin = read(objects["ConfigMap", "flyte-admin-base-config"]["data"])
    maps = said["configmap"]
    assert within(maps["adminServer"], admin) == []
    assert within(maps["task_resource_defaults"], admin) == []
    assert within(said["db"]["admin"], admin) == []
    assert within(said.get("workflow_notifications", {}).get("config", {}), admin) == []
    propeller = read(objects["ConfigMap", "flyte-propeller-config"]["data"])
    for part in ("core", "k8s", "enabled_plugins"):
        assert within(maps[part], propeller) == []
    catalog = read(objects["ConfigMap", "datacatalog-config"]["data"])
    assert within(maps["datacatalogServer"], catalog) == []
    assert within(said["db"]["datacatalog"], catalog) == []
    assert {one["storage"]["container"] for one in (admin, propeller, catalog)} == {"mu-grpo"}
    assert may_run_training_on_several_nodes(objects["ClusterRole", "flyte-flytepropeller"])
    assert templates(objects, "clusterresource-template") == TEMPLATES
    assert {admin["storage"]["cache"]["max_size_mbs"], propeller["storage"]["cache"]["max_size_mbs"]} == {256}
    role = said["flyteadmin"]["serviceAccount"]["annotations"]
    for part in ("flyteadmin", "flytepropeller", "datacatalog"):
        assert objects["ServiceAccount", part]["metadata"]["annotations"] == role
        pod = objects["Deployment", part]["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == part
        assert quantity(pod["containers"][0]["resources"]["limits"]["memory"]) > 2 * 256 * 2**20
    assert not any(kind == "Ingress" for kind, _ in objects)
    pod = objects["Deployment", "flyteadmin"]["spec"]["template"]["spec"]
    folder = Path(said["db"]["admin"]["database"]["passwordPath"]).parent
    assert mounted(pod["containers"][0], pod, folder) == "flyte-database"
