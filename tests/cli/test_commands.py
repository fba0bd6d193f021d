"""The mu-grpo command, run as a user runs it."""

from pathlib import Path

import pytest
from safetensors import safe_open

from tasks.cli.experiments import log_folder
from tasks.store import ArtifactRef, Store
from tests.cli.synthetic import ROOT, command, run_command, run_refused, words
from tests.conftest import SMALL

CONFIG = str(ROOT / "configs/tiny-cpu.yaml")


def test_a_plan_names_every_number_that_follows_from_the_file_and_overrides() -> None:
    overrides = ["--stages", "2", "updates_per_rollout=4", "optimize.preset=grpo"]
    text = words(run_command("plan", "--config", CONFIG, *overrides))
    for line in (
        "stages 2",
        "responses per stage 4096 512 x 8; 8192 in all",
        "shards per stage 2 of 256 prompts",
        "updates per stage 16",
        "updates in all 32",
        "mu, updates per rollout 4",
        "rollout refreshes 8",
        "staleness 0 to 3",
        "evaluations 3",
        "coefficient one_side(r, 0.8, 1.2) * r * A",
    ):
        assert line in text
    text = words(run_command("plan", "--config", CONFIG, "prompts.prompts_per_shard=1024"))
    assert "shards per stage 1 of 512 prompts" in text  # A shard has no more prompts than its stage.


def test_a_planned_policy_has_the_parameters_that_it_will_have(small: tuple[Store, ArtifactRef]) -> None:
    from tasks.cluster.shapes import tiny_parameters

    store, policy = small
    with safe_open(store.path(policy) / "model.safetensors", "pt") as file:
        parameters = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118 - not a dict
    assert tiny_parameters(SMALL) == parameters
    text = words(run_command("plan", "--config", CONFIG, f"policy.path={store.path(policy)}"))
    assert f"policy {parameters / 1e6:,.2f} M" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--config", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (["plan", "--config", CONFIG, "optimize.learning_rate=fast"], "optimize.learning_rate: got 'fast'"),
        (["plan", "--config", CONFIG, "rollout.nothing=1"], "rollout.nothing: unknown field"),
        *(([name, "--store", "nowhere"], "no store here") for name in ("inspect", "compare", "report", "check", "gc")),
        (["lineage", "latest", "--store", "nowhere"], "no store here"),
        (["settings", "optimize.objective.vito"], "optimize.objective.vito: no setting has this name"),
        (["laboratory", "a", "--config", CONFIG], "updates_per_rollout: 256 does not divide the 16 updates of a stage"),
    ],
)
def test_a_mistake_is_a_message(arguments: list[str], message: str) -> None:
    done = command(*arguments)
    assert done.returncode != 0
    assert not done.stdout
    assert message in words(done.stderr)
    assert "Traceback" not in done.stderr


def test_a_store_on_s3_can_be_named(bucket: str) -> None:
    """Its two slashes reach the store as they were typed."""
    assert f"{bucket}/prefix: no store here" in run_refused("compare", "--store", f"{bucket}/prefix")
    Store.open(f"{bucket}/prefix")
    for name in ("compare", "report", "inspect"):
        assert f"{bucket}/prefix: no finished run in this store" in run_refused(name, "--store", f"{bucket}/prefix")


def test_the_laboratory_logs_beside_artifacts_or_beside_the_local_copy(bucket: str, tmp_path: Path) -> None:
    assert log_folder(str(tmp_path)) == tmp_path / "logs"
    assert log_folder(f"{bucket}/prefix") == Store.open(f"{bucket}/prefix").root / "logs"
