"""The bucket's policies and lifecycle asked about single keys, as S3 reads them."""

import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from tests.k8s.flyte_values import values
from tools import ROOT

FOLDER, BUCKET = ROOT / "k8s/storage", "mu-grpo"
_FLYTE = values("values.yaml", "gpu-pool.yaml")["configuration"]["inline"]
READ_ALONE = ("prompts/", "policies/")
"""What runs read and never write."""
KEPT = (
    "runs/",
    *READ_ALONE,
    f"{'/'.join(_FLYTE['flyteadmin']['metadataStoragePrefix'])}/",
    f"{_FLYTE['datacatalog']['storage-prefix']}/",
)
"""What is needed for as long as somebody wants it: stores, what runs read, registered workflows, cached outputs."""


def wrong(keys: Iterable[str]) -> list[str]:
    """Return the keys that no policy allows, that are needed but expire, or that are never removed and not needed."""
    found = []
    for key in keys:
        action = "s3:GetObject" if key.startswith(READ_ALONE) else "s3:PutObject"
        if not any(allows(name, action, key) for name in ("policy-flyte.json", "policy-steps.json")):
            found.append(f"{key}: no policy allows {action}")
        if not key.startswith(("runs/", *READ_ALONE)) and not allows("policy-flyte.json", "s3:GetObject", key):
            found.append(f"{key}: policy-flyte.json does not allow s3:GetObject")
        days = expires(key)
        if days is not None and key.startswith(KEPT):
            found.append(f"{key}: is needed, but expires after {days} days")
        if days is None and not key.startswith(KEPT):
            found.append(f"{key}: is kept for ever, and nobody needs it")
    return found


def allows(policy: str, action: str, key: str) -> bool:
    """Return True if a policy allows an action on an object: a statement that denies goes over those that allow."""
    effects = {
        statement["Effect"]
        for statement in json.loads((FOLDER / policy).read_text())["Statement"]
        if any(fnmatchcase(action, one) for one in _listed(statement["Action"]))
        and any(fnmatchcase(f"arn:aws:s3:::{BUCKET}/{key}", one) for one in _listed(statement["Resource"]))
    }
    return effects == {"Allow"}


def expires(key: str) -> int | None:
    """Days after which an object is removed; None where it never is."""
    rules: list[dict[str, Any]] = json.loads((FOLDER / "lifecycle.json").read_text())["Rules"]
    days = [
        rule["Expiration"]["Days"]
        for rule in rules
        if rule["Status"] == "Enabled" and "Expiration" in rule and key.startswith(rule["Filter"]["Prefix"])
    ]
    return min(days, default=None)


def _listed(said: str | list[str]) -> list[str]:
    return [said] if isinstance(said, str) else said
