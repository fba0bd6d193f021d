"""Fixtures with a real control plane for the tests of a module, and with the objects of an overlay."""

from collections.abc import Iterator

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.control_plane import PROGRAMS, ControlPlane, programs
from tests.preflight.clusters import objects_of, write_overlay
from tests.preflight.conftest import ask
from tests.waiting import until

__all__ = ["ask"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An empty cluster, whose nodes are objects that tests create; skips if the machine lacks the programs."""
    found = programs()
    if found is None:
        pytest.skip(f"no real API server here: {PROGRAMS} names no folder with etcd and kube-apiserver")
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), found) as started:
        yield started


@pytest.fixture(scope="module")
def pool(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """Objects of the cluster after a user's overlay was applied, with nodes of a GPU pool and pods of others."""
    folder = tmp_path_factory.mktemp("overlay")
    write_overlay(folder)
    plane.kubectl("apply", "-k", str(folder))
    api, objects = Api(plane), objects_of("gpu-pool")
    inside = {one["metadata"].get("namespace") for one in objects} - {None}
    for name in inside:
        api.create({"kind": "Namespace", "metadata": {"name": name}})  # Those that exist are refused.
    if plane.controls:  # Pods are let in once their account is there.
        for name in inside:
            until(lambda name=name: api.get("ServiceAccount", "default", name))
    for kind in ("Node", "Secret", "Pod"):
        for one in objects:
            if one["kind"] == kind:
                api.put(one)
    return objects
