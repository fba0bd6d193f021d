"""The baseline alternates inside one task, and at mu = a stage's updates it is the staged workflow."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.errors import SettingsError
from tasks.experiments.runs import load_run
from tasks.experiments.speedup import BARRIER, BATCHES, UNEXPLAINED, split_causes
from tasks.models.step import prepare_policy
from tasks.report.ledger import training_clock
from tasks.rollout.step import generate_shard
from tasks.settings import (
    ArithmeticSettings,
    OptimizeSettings,
    PromptsSettings,
    RolloutSettings,
    RunSettings,
    VerifySettings,
)
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tasks.train.colocated import train_alternating
from tasks.train.stage import optimize_stage
from tasks.verify.step import verify_rollouts
from tests.prepared import made_once, prepare_stage
from tests.workflows.runs import succeeded
from tools.forked import Runner
from tools.runs import CONFIG

PROMPTS = PromptsSettings(prompts_per_stage=16, prompts_per_shard=8, arithmetic=ArithmeticSettings(levels=[1]))
ROLLOUT = RolloutSettings(responses_per_prompt=4, max_new_tokens=12)
VERIFY = VerifySettings(workers=1)


def optimize() -> OptimizeSettings:
    return OptimizeSettings.parse({"preset": "mu_grpo", "responses_per_update": 16, "learning_rate": 1e-4})


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, ArtifactRef]:
    """A policy that is right now and then."""
    settings = RunSettings.read(CONFIG, "policy.tiny.warm_start.guessing_updates=10")

    def make(folder: Path) -> None:
        prepare_policy(Store.open(folder / "store"), settings.policy, ArithmeticSettings(levels=[1]), "", 0)

    _, copy = made_once(tmp_path_factory, "learner", make)
    store = Store.open(copy / "store")
    (policy,) = store.manifests("policy")
    return store, policy.ref


def model_digest(store: Store, policy: ArtifactRef) -> str:
    return store.manifest(policy).files["model.safetensors"].sha256


def test_mu_of_a_whole_stage_is_the_staged_workflow(learner: tuple[Store, ArtifactRef]) -> None:
    store, policy = learner
    shards = prepare_stage(store, PROMPTS, 0, 0)
    rollouts = [generate_shard(store, ROLLOUT, policy, shard, 0, 0) for shard in shards]
    verdicts = verify_rollouts(store, VERIFY, rollouts, 0, 0)
    staged = optimize_stage(store, optimize(), policy, policy, rollouts, verdicts, 0, 0)
    alternated = train_alternating(store, ROLLOUT, VERIFY, optimize(), 4, policy, policy, shards, 0, 0)
    assert model_digest(store, staged) == model_digest(store, alternated) != model_digest(store, policy)


def test_a_refresh_every_update_resets_staleness(learner: tuple[Store, ArtifactRef]) -> None:
    store, policy = learner
    shards = prepare_stage(store, PROMPTS, 0, 0)
    after = train_alternating(store, ROLLOUT, VERIFY, optimize(), 2, policy, policy, shards, 0, 0)
    manifest = store.manifest(after)
    rows = read_table(store.path(after) / "metrics.parquet").to_pylist()
    assert [row["staleness"] for row in rows] == [0, 1, 0, 1]
    assert [row["update"] for row in rows] == [1, 2, 3, 4]
    assert [rows[i]["ratio_max_negative"] for i in (0, 2)] == [1.0, 1.0]
    assert {"load", "generate", "verify", "logp", "optimize", "switch", "save"} == set(manifest.timings.phases)
    (rollouts,) = manifest.parents["rollouts"]
    table = read_table(store.path(rollouts) / "rollouts.parquet")
    assert len(table) == 64
    assert table["policy"].unique().to_pylist() == [f"{policy.digest}+0", f"{policy.digest}+2"]
    assert store.manifest(manifest.parents["verdicts"][0]).facts["responses"] == 64
    facts = store.manifest(rollouts).facts
    assert (len(facts["call_seconds"]), facts["engines"]) == (2, 1)
    assert sum(facts["call_seconds"]) == pytest.approx(manifest.timings.phases["generate"], abs=0.05)


def test_a_lagging_server_and_several_updates_per_batch(learner: tuple[Store, ArtifactRef]) -> None:
    """Off-policy GRPO's (v, i) schedule: new rollouts every v batches, i updates on each."""
    store, policy = learner
    values = {"preset": "off_policy_grpo", "responses_per_update": 16, "learning_rate": 1e-4}
    settings = OptimizeSettings.parse({**values, "objective": {"schedule": {"updates_per_batch": 3}}})
    shards = prepare_stage(store, PROMPTS, 0, 0)
    manifest = store.manifest(train_alternating(store, ROLLOUT, VERIFY, settings, 6, policy, policy, shards, 0, 0))
    rows = read_table(store.path(manifest.ref) / "metrics.parquet").to_pylist()
    assert [row["staleness"] for row in rows] == [0, 1, 2, 3, 4, 5] * 2
    assert manifest.facts["updates"] == 12
    (rollouts,) = manifest.parents["rollouts"]
    table = read_table(store.path(rollouts) / "rollouts.parquet")
    assert table["policy"].unique().to_pylist() == [f"{policy.digest}+0", f"{policy.digest}+6"]
    # The gate is centred on the weights before a batch, so the first update on a batch never leaves it.
    assert all(row["clip_fraction"] == 0 for row in rows if row["staleness"] % 3 == 0)


def weights(store: Store, policy: ArtifactRef) -> torch.Tensor:
    """All weights of a policy, in one row."""
    tensors = load_file(store.path(policy) / "model.safetensors")
    return torch.cat([tensors[name].flatten().double() for name in sorted(tensors)])


def test_a_kl_to_the_base_policy_holds_the_weights_back(learner: tuple[Store, ArtifactRef]) -> None:
    """After 32 updates in two stages; the second starts from other weights than the base's."""
    store, policy = learner
    shards = prepare_stage(store, PROMPTS, 0, 0)
    moved = {}
    for coefficient in (0.0, 10.0):
        regulariser = {"kind": "reference_kl", "coefficient": coefficient}
        values = {"preset": "grpo", "responses_per_update": 4, "learning_rate": 1e-4}
        settings = OptimizeSettings.parse({**values, "objective": {"regulariser": regulariser}})
        first = train_alternating(store, ROLLOUT, VERIFY, settings, 4, policy, policy, shards, 0, 0)
        assert ("reference" in store.manifest(first).parents) == (coefficient > 0)
        second = train_alternating(store, ROLLOUT, VERIFY, settings, 4, policy, first, shards, 1, 0)
        moved[coefficient] = (weights(store, second) - weights(store, policy)).norm()
    assert moved[10.0] < 0.95 * moved[0.0]


def test_a_mu_that_does_not_divide_the_stage_is_refused(learner: tuple[Store, ArtifactRef]) -> None:
    store, policy = learner
    with pytest.raises(SettingsError, match="updates_per_rollout: 3 takes 12 prompts per refresh"):
        train_alternating(
            store, ROLLOUT, VERIFY, optimize(), 3, policy, policy, prepare_stage(store, PROMPTS, 0, 0), 0, 0
        )


def check_causes(store: Store) -> None:
    """The calls of both runs are known, and the causes of their difference add up to it."""
    reports = store.manifests("report")
    runs = {one.facts["algorithm"]: load_run(store, "tiny", one.facts["algorithm"], 0, one.ref) for one in reports}
    for run in runs.values():
        assert run.calls is not None
        generated = run.ledger.seconds["generate"]
        assert 0.5 * generated < sum(one.seconds for one in run.calls) <= generated
        tokens = [one.facts["responses"] * one.facts["response_tokens"] for one in run.history.of_kind("verdicts")]
        assert run.response_tokens == pytest.approx(sum(tokens))
        assert sum(one.needed_F[1] for one in run.calls) == run.response_tokens
    causes = {one.name: one.seconds for one in split_causes(list(runs.values()), "mu_grpo", ["grpo"])}
    assert {BARRIER, BATCHES, UNEXPLAINED} <= causes.keys()
    seconds = {name: training_clock(run.history)[-1] for name, run in runs.items()}
    assert sum(causes.values()) == pytest.approx(seconds["grpo"] - seconds["mu_grpo"], abs=0.01)


def test_the_workflow_runs_and_compares(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    changes = (
        "policy.tiny.warm_start.working_updates=40 policy.tiny.warm_start.guessing_updates=20 "
        "prompts.prompts_per_stage=32 prompts.prompts_per_shard=32 evaluate.problems=10"
    )
    succeeded(runner.run("mu_grpo", "--overrides", changes))
    baseline = succeeded(
        runner.run("grpo", "--updates_per_rollout", "1", "--overrides", f"{changes} optimize.preset=grpo")
    )
    assert "grpo, mu 1, seed 0: 8 updates" in baseline.stdout
    assert "warm start" not in baseline.stdout.split("policy    updates")[0]
    check_causes(Store.open(runner.store))
    table = CliRunner().invoke(app, ["compare", "--store", str(runner.store)]).stdout
    assert "mu_grpo, mu 2" in table
    assert "grpo, mu 1" in table
    assert "wall-clock" in table
