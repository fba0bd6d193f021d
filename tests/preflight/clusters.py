"""Right clusters, made of the project's own manifests and of nodes and pods as an API server tells them."""

import base64
import copy
import subprocess
import sys
from functools import cache
from pathlib import Path

import yaml

from tests.preflight.api_server import NAMESPACE, SECRET, ApiServer, Object, recorded
from tools import ROOT


@cache
def _rendered(path: str) -> str:
    kubectl = Path(sys.executable).parent / "kubectl"
    done = subprocess.run([kubectl, "kustomize", ROOT / path], capture_output=True, text=True, check=True)
    return done.stdout


def rendered(path: str) -> list[Object]:
    """What kustomize makes of a folder of k8s/."""
    return list(yaml.safe_load_all(_rendered(path)))


def preflight_rules() -> list[Object]:
    """Those of the component's roles, which the user of these tests has and no others."""
    return [
        {**one, "namespace": role["metadata"].get("namespace", "")}
        for role in rendered("k8s/components/preflight")
        if role["kind"] in ("Role", "ClusterRole")
        for one in role["rules"]
    ]


def right(overlay: str) -> ApiServer:
    """The server of a cluster to which an overlay was applied."""
    found = recorded(overlay)
    objects = [one for one in rendered(f"k8s/overlays/{overlay}") if one["kind"] != "Deployment"]
    for one in objects:
        if one["kind"] == "ResourceQuota":
            one["status"] = {"hard": one["spec"]["hard"], "used": dict.fromkeys(one["spec"]["hard"], "0")}
    objects += [{"kind": "Node", **one} for one in found["nodes"]] + [{"kind": "Pod", **one} for one in found["pods"]]
    for namespace in ("default", "flyte", "kube-system"):
        objects.append({"kind": "Namespace", "metadata": {"name": namespace}, "status": {"phase": "Active"}})
    objects.append(_named("ServiceAccount", "default"))
    value = base64.b64encode(SECRET.encode()).decode()
    objects.append({**_named("Secret", "mu-grpo"), "data": {"hub-token": value, "wandb-api-key": value}})
    return ApiServer(copy.deepcopy(objects), found["version"], preflight_rules())


def _named(kind: str, name: str) -> Object:
    return {"kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}
