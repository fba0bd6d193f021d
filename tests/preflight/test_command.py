"""The exit code, the table and the JSON of the command."""

import json
import re
from pathlib import Path

from tasks.cli.preflight import preflight_json, preflight_table
from tasks.cluster.api import Finding, Target
from tests.cli.synthetic import command, plain
from tests.preflight.api_server import SECRET, TOKEN, ApiServer
from tests.preflight.conftest import CONFIG, TAG, deployment_of
from tests.preflight.services import Flyte, Registry
from tests.preflight.spoiled import POOLS, no_key, occupied, tainted
from tests.workflows.runs import assert_succeeded, words
from tools import ROOT


def test_a_run_can_start(gpu_pool: ApiServer, registry: Registry, flyte: Flyte, bucket: str, tmp_path: Path) -> None:
    images = registry.holding("team/mu-grpo", TAG)
    deployment, kubeconfig = deployment_of("gpu-4", tmp_path, images=images), gpu_pool.kubeconfig(tmp_path)
    arguments = ["preflight", "--config", str(CONFIG), "--flyte", flyte.url, f"store={bucket}/runs"]
    done = assert_succeeded(command(*arguments, MU_GRPO_DEPLOYMENT=str(deployment), KUBECONFIG=str(kubeconfig)))
    text = words(done.stdout)
    for row in (
        "secrets ok mu-grpo: hub-token, wandb-api-key",
        # One node has room for 8, the other for 6 beside 2 of another team. Finished and waiting pods use nothing.
        "nodes for rollout ok fits 2 of 5 nodes; room for 14 now",
        "nodes for train ok fits 1 of 5 nodes; room for 2 now",
        "workflow ok workflows.mu_grpo.mu_grpo, latest version v2",
        "23 ok: nothing prevents a run",
    ):
        assert row in text
    assert SECRET not in done.stdout + done.stderr
    assert TOKEN not in done.stdout + done.stderr


def without_addresses(text: str) -> str:
    """Return the words of an output without ports and names of buckets, which differ between tests."""
    return re.sub(r"(127\.0\.0\.1:)\d+|(s3://test-)\w+", r"\1\2", words(text))


def test_a_run_that_cannot_start(
    gpu_pool: ApiServer, registry: Registry, flyte: Flyte, bucket: str, tmp_path: Path
) -> None:
    """The cluster is that of the example in docs/preflight.md."""
    tainted(gpu_pool)
    no_key(gpu_pool)
    for node in POOLS["rollout"]:
        occupied(gpu_pool, node, 6)
    flyte.workflows.clear()
    deployment = deployment_of("gpu-4", tmp_path, images=registry.holding("team/mu-grpo", TAG))
    where = ["--deployment", str(deployment), "--kubeconfig", str(gpu_pool.kubeconfig(tmp_path)), "--context", "right"]
    arguments = ["preflight", "--config", str(CONFIG), *where, "--flyte", flyte.url, f"store={bucket}/runs"]
    done = command(*arguments)
    assert done.returncode == 1, done.stderr
    page = (ROOT / "docs/preflight.md").read_text()
    example = re.search(r"```text\n\$ mu-grpo preflight .*\n((?:.*\n)*?)```", page)[1]
    assert without_addresses(done.stdout) == without_addresses(example)
    found = json.loads(command(*arguments, "--json", "seed=1").stdout)
    place = {"project": "mu-grpo", "domain": "development", "namespace": "mu-grpo-development"}
    assert found == {**place, "ok": False, "checks": found["checks"]}
    failed = {one["name"]: one for one in found["checks"] if one["state"] == "failed"}
    assert set(failed) == {"secrets", "nodes for train", "workflow"}
    assert failed["secrets"]["found"] == "mu-grpo has no key wandb-api-key; it has hub-token"
    assert failed["secrets"]["fix"].startswith("Add the key to the secret")


def test_markup_and_long_texts_are_shown_whole() -> None:
    failed = Finding("secrets", "failed", "[red]x[/red] " + "long " * 60, "correct [it]")
    fine = Finding("quota", "ok", "fine")
    text = words(plain(preflight_table([failed, fine], Target())))
    assert "[red]x[/red]" in text
    assert text.count("long") == 60
    assert "fix correct [it]" in text
    assert "1 ok, 1 failed: a run cannot start" in text
    assert json.loads(preflight_json([fine], Target()))["ok"] is True
