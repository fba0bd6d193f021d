"""The exit code, the table and the JSON of the command."""

import json
from pathlib import Path

from tasks.cli.preflight import preflight_json, preflight_table
from tasks.cluster.api import Finding, Target
from tests.cli.synthetic import command, plain
from tests.preflight.api_server import SECRET, TOKEN, ApiServer
from tests.preflight.conftest import CONFIG, TAG, deployment_of
from tests.preflight.services import Flyte, Registry
from tests.preflight.spoiled import no_key, without_gpus
from tests.workflows.runs import assert_succeeded, words


def test_a_run_can_start(gpu_pool: ApiServer, registry: Registry, flyte: Flyte, bucket: str, tmp_path: Path) -> None:
    images = registry.holding("team/mu-grpo", TAG)
    deployment, kubeconfig = deployment_of("gpu-4", tmp_path, images=images), gpu_pool.kubeconfig(tmp_path)
    arguments = ["preflight", "--config", str(CONFIG), "--flyte", flyte.url, f"store={bucket}/runs"]
    done = assert_succeeded(command(*arguments, MU_GRPO_DEPLOYMENT=str(deployment), KUBECONFIG=str(kubeconfig)))
    text = words(done.stdout)
    for row in (
        "a run in mu-grpo-development",
        f"API server ok {gpu_pool.url}, Kubernetes v1.33.1-eks-1fbb135",
        "permissions ok all 6 required permissions",
        "secrets ok mu-grpo: hub-token, wandb-api-key",
        # One node has room for 8, the other for 6 beside 2 of another team. Finished and waiting pods use nothing.
        "nodes for rollout ok fits 2 of 5 nodes; room for 14 now",
        "nodes for train ok fits 1 of 5 nodes; room for 2 now",
        f"{images}-train:{TAG} is in its registry",
        "workflow ok workflows.mu_grpo.mu_grpo, latest version v2",
        "23 ok: nothing prevents a run",
    ):
        assert row in text
    assert SECRET not in done.stdout + done.stderr
    assert TOKEN not in done.stdout + done.stderr


def test_a_run_that_cannot_start(gpu_pool: ApiServer, tmp_path: Path) -> None:
    without_gpus(gpu_pool)
    no_key(gpu_pool)
    where = ["--deployment", str(deployment_of("gpu-4", tmp_path)), "--kubeconfig", str(gpu_pool.kubeconfig(tmp_path))]
    done = command("preflight", "--config", str(CONFIG), *where, "--context", "right", "--json", "seed=1")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    place = {"project": "mu-grpo", "domain": "development", "namespace": "mu-grpo-development"}
    assert found == {**place, "ok": False, "checks": found["checks"]}
    failed = {one["name"]: one for one in found["checks"] if one["state"] == "failed"}
    assert {"secrets", "nodes for rollout", "nodes for train", "store"} <= failed.keys()
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
