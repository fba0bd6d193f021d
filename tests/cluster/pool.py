"""A GPU pool on a real control plane: what an overlay puts there, made-up nodes, and the pods of others."""

import copy
import os
from pathlib import Path

import yaml

from tests.cluster.api import Api, Object, until
from tests.cluster.control_plane import ControlPlane
from tests.preflight.clusters import right
from tools import ROOT


class Objects:
    """A cluster's objects, to be spoiled by the functions that spoil the server that is made up."""

    def __init__(self, objects: list[Object]) -> None:
        self.objects = copy.deepcopy(objects)

    def all(self, kind: str) -> list[Object]:
        return [one for one in self.objects if one["kind"] == kind]

    def find(self, kind: str, name: str) -> Object:
        return next(one for one in self.all(kind) if one["metadata"]["name"] == name)

    def remove(self, kind: str, name: str) -> None:
        self.objects.remove(self.find(kind, name))


def apply_pool(plane: ControlPlane, folder: Path) -> list[Object]:
    """Applies the overlay with the roles of the preflight, as a user's own overlay; what the cluster then holds."""
    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(ROOT / "k8s/overlays/gpu-pool", folder)],
        "components": [os.path.relpath(ROOT / "k8s/components/preflight", folder)],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
    plane.kubectl("apply", "-k", str(folder))
    with right("gpu-pool") as expected:
        objects = expected.objects
    api = Api(plane)
    inside = {one["metadata"].get("namespace") for one in objects} - {None}
    for name in sorted(inside - {one["metadata"]["name"] for one in api.all("Namespace")}):
        api.put({"kind": "Namespace", "metadata": {"name": name}})
    if plane.controls:  # Pods are let in once their account is there.
        for name in inside:
            until(lambda name=name: api.get("ServiceAccount", "default", name))
    for kind in ("Node", "Secret", "Pod"):
        for one in objects:
            if one["kind"] == kind:
                api.put(one)
    return objects
