"""Generation and training that alternate in one process; at mu = a stage's updates they are the staged workflow."""

import pytest
import torch
from safetensors.torch import load_file

from tasks.cli.inspect import read_responses
from tasks.settings import OptimizeSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tasks.stored.unfinished import JudgedResponses
from tasks.train.colocated import train_alternating
from tasks.train.stage import optimize_stage
from tests.prepared import OPTIMIZE, PROMPTS, ROLLOUT, VERIFY, Small, prepare_prompts, prepare_verdicts


@pytest.fixture
def shards(learner: Small) -> list[ArtifactRef]:
    return prepare_prompts(learner[0], PROMPTS, 0, 0)


@pytest.mark.parametrize(("preset", "stage"), [("mu_grpo", 1), ("red_drop", 0)])
def test_mu_of_a_whole_stage_is_the_staged_workflow(learner: Small, preset: str, stage: int) -> None:
    store, policy = learner
    shards = prepare_prompts(store, PROMPTS, stage, 0)
    rollouts, verdicts = prepare_verdicts(store, policy, stage=stage)
    optimize = OptimizeSettings.parse({"preset": preset, "responses_per_update": 16, "learning_rate": 1e-4})
    staged = optimize_stage(store, optimize, policy, policy, rollouts, verdicts, stage, 0)
    alternated = train_alternating(store, ROLLOUT, VERIFY, optimize, 4, policy, policy, shards, stage, 0)
    digests = [store.manifest(one).files["model.safetensors"].sha256 for one in (staged, alternated, policy)]
    assert digests[0] == digests[1] != digests[2]
    advantages = []
    for one in (staged, alternated):
        manifest = store.manifest(one)
        shown = read_responses(store, JudgedResponses.of_policy("stage 1", manifest))
        advantages.append({(row["prompt_id"], row["sample_index"]): row["advantage"] for row in shown})
        trained = {row["advantage"] for row in read_table(store.path(one) / "examples.parquet").to_pylist()}
        assert trained <= set(advantages[-1].values())
    assert advantages[0] == advantages[1]


def test_a_refresh_every_update_resets_staleness(learner: Small, shards: list[ArtifactRef]) -> None:
    store, policy = learner
    manifest = store.manifest(train_alternating(store, ROLLOUT, VERIFY, OPTIMIZE, 2, policy, policy, shards, 0, 0))
    rows = read_table(store.path(manifest.ref) / "metrics.parquet").to_pylist()
    assert [row["staleness"] for row in rows] == [0, 1, 0, 1]
    assert [row["update"] for row in rows] == [1, 2, 3, 4]
    assert [rows[i]["ratio_max_negative"] for i in (0, 2)] == [1.0, 1.0]
    assert {"load", "start", "generate", "verify", "logp", "optimize", "switch", "save"} == set(manifest.timings.phases)
    (rollouts,) = manifest.parents["rollouts"]
    table = read_table(store.path(rollouts) / "rollouts.parquet")
    assert len(table) == 64
    assert table["policy"].unique().to_pylist() == [f"{policy.digest}+0", f"{policy.digest}+2"]
    assert store.manifest(manifest.parents["verdicts"][0]).facts["responses"] == 64
    facts = store.manifest(rollouts).facts
    assert (len(facts["call_seconds"]), facts["engines"]) == (2, 1)
    assert sum(facts["call_seconds"]) == pytest.approx(manifest.timings.phases["generate"], abs=0.05)


def test_a_lagging_server_and_several_updates_per_batch(learner: Small, shards: list[ArtifactRef]) -> None:
    """Off-policy GRPO's (v, i) schedule: new rollouts every v batches, i updates on each."""
    store, policy = learner
    values = {"preset": "off_policy_grpo", "responses_per_update": 16, "learning_rate": 1e-4}
    settings = OptimizeSettings.parse({**values, "objective": {"schedule": {"updates_per_batch": 3}}})
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


def test_a_kl_to_the_base_policy_holds_the_weights_back(learner: Small, shards: list[ArtifactRef]) -> None:
    """After 32 updates in two stages; the second starts from other weights than the base's."""
    store, policy = learner
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
