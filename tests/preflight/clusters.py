"""Simulated clusters without faults, from the manifests of the project and stored nodes and pods."""

import base64
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import yaml

from tests.preflight.api_server import NAMESPACE, SECRET, ApiServer, Object
from tools import ROOT


@cache
def _rendered(path: str) -> str:
    kubectl = Path(sys.executable).parent / "kubectl"
    done = subprocess.run([kubectl, "kustomize", ROOT / path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(path: str) -> list[Object]:
    """Return the objects that kustomize makes from a folder of k8s/."""
    return list(yaml.safe_load_all(_rendered(path)))


def write_overlay(folder: Path) -> None:
    """Write an overlay as a user would: that of a GPU pool, with the roles of the preflight."""
    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(ROOT / "k8s/overlays/gpu-pool", folder)],
        "components": [os.path.relpath(ROOT / "k8s/components/preflight", folder)],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))


def objects_of(overlay: str) -> list[Object]:
    """Return the objects of a cluster after an overlay was applied, with its nodes and the pods of others."""
    found = [one for one in rendered(f"k8s/overlays/{overlay}") if one["kind"] != "Deployment"]
    for kind in ("Node", "Pod"):
        found += [{"kind": kind, **one} for one in _recorded(overlay)[f"{kind.lower()}s"]]
    for namespace in ("default", "flyte", "kube-system"):
        found.append({"kind": "Namespace", "metadata": {"name": namespace}, "status": {"phase": "Active"}})
    value = base64.b64encode(SECRET.encode()).decode()
    metadata = {"name": "mu-grpo", "namespace": NAMESPACE}
    return [*found, {"kind": "Secret", "metadata": metadata, "data": {"hub-token": value, "wandb-api-key": value}}]


def right(overlay: str) -> ApiServer:
    """Return the simulated API server of this cluster, whose user has the roles of the preflight and no others."""
    rules = [
        {**one, "namespace": role["metadata"].get("namespace", "")}
        for role in rendered("k8s/components/preflight")
        for one in role.get("rules", ())
    ]
    return ApiServer(objects_of(overlay), _recorded(overlay)["version"], rules)


def _recorded(name: str) -> Object:
    """Return the version, nodes and pods of a cluster, with the fields that the preflight and the scheduler read."""
    found: Object = json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text())
    return found
