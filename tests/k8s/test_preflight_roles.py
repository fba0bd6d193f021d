"""The roles of `mu-grpo preflight`: enough for all that it asks, nothing else, and part of an overlay."""

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tasks.cluster.api import Permission, needed
from tests.k8s.test_manifests import BUILT_IN, named, rendered
from tools import ROOT

COMPONENT = ROOT / "k8s/components/preflight"
NAMESPACE = "mu-grpo-development"


def allows(document: dict[str, Any], asked: Permission) -> bool:
    return any(
        asked.verb in rule["verbs"]
        and "" in rule["apiGroups"]
        and asked.resource in rule["resources"]
        and asked.name in rule.get("resourceNames", [asked.name])
        for rule in document["rules"]
    )


def test_the_roles_are_of_their_schema() -> None:
    documents = rendered(COMPONENT)
    assert len(documents) == 4
    for document in documents:
        assert BUILT_IN.match(document["apiVersion"])
        kubernetes_validate.validate(document, "1.33", strict=True)


@pytest.mark.parametrize("what", needed(NAMESPACE, "mu-grpo"))
def test_every_permission_that_is_asked_for_is_granted(what: str) -> None:
    documents = rendered(COMPONENT)
    (cluster,), (inside,) = named(documents, "ClusterRole").values(), named(documents, "Role").values()
    asked = needed(NAMESPACE, "mu-grpo")[what]
    assert asked.namespace in ("", inside["metadata"]["namespace"])
    assert allows(inside if asked.namespace else cluster, asked)


def test_nothing_else_is_granted() -> None:
    asked = list(needed(NAMESPACE, "mu-grpo").values())
    for document in rendered(COMPONENT):
        for rule in document.get("rules", []):
            assert set(rule["verbs"]) <= {"get", "list"} or (rule["verbs"], rule["resources"]) == (["create"], ["pods"])
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    assert any((one.verb, one.resource) == (verb, resource) for one in asked), (verb, resource)
            # Every other secret stays closed.
            assert "secrets" not in rule["resources"] or rule["resourceNames"] == ["mu-grpo"]


def test_bindings_bind_the_roles() -> None:
    documents = rendered(COMPONENT)
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        (found,) = named(documents, binding).values()
        assert found["roleRef"]["kind"] == role
        assert found["roleRef"]["name"] in named(documents, role)
        assert found["metadata"].get("namespace") == named(documents, role)["mu-grpo-preflight"]["metadata"].get(
            "namespace"
        )
        assert [one["kind"] for one in found["subjects"]] == ["Group"]


def test_the_component_is_part_of_an_overlay(tmp_path: Path) -> None:
    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(ROOT / "k8s/overlays/gpu-pool", tmp_path)],
        "components": [os.path.relpath(COMPONENT, tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    documents = rendered(tmp_path)
    assert "mu-grpo-preflight" in named(documents, "Role")
    assert "mu-grpo-train" in named(documents, "PodTemplate")
