"""A real control plane for the tests of a module, with what an overlay puts there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.api import Api, Object, until
from tests.cluster.control_plane import PROGRAMS, ControlPlane, programs
from tests.cluster.pool import apply_pool
from tests.preflight.conftest import ask

__all__ = ["ask"]


@contextmanager
def started(folder: Path, made_up_nodes: bool) -> Iterator[ControlPlane]:
    """A control plane that pods can be given to, where the machine has its programs."""
    found = programs()
    if found is None:
        pytest.skip(f"no real API server here: {PROGRAMS} names no folder with etcd and kube-apiserver")
    with ControlPlane(folder, found, made_up_nodes) as plane:
        if plane.controls:  # Pods are let in once their account is there.
            until(lambda: Api(plane).get("ServiceAccount", "default", "default"))
        yield plane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An empty cluster, whose nodes tests make up."""
    with started(tmp_path_factory.mktemp("control-plane"), made_up_nodes=True) as found:
        yield found


@pytest.fixture(scope="module")
def pool(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """What the cluster holds after the overlay of a GPU pool was applied, with its nodes and the pods of others."""
    return apply_pool(plane, tmp_path_factory.mktemp("overlay"))
