"""Two processes that alternate do what one does, and what the staged workflow does; stopped, they go on."""

import os

import pytest
from safetensors.torch import load_file

from tasks.flyte.inputs import AlternateInputs
from tasks.flyte.tasks import alternate
from tasks.settings import OperationSettings, OptimizeSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tasks.train.colocated import train_alternating
from tasks.train.stage import optimize_stage
from tests.prepared import ROLLOUT as WHOLE
from tests.prepared import VERIFY, prepare_verdicts
from tests.train.small import LORA, Small, zero
from tests.train.test_diagnostics import assert_close_rows
from tests.train.together import Job, alternate_in_group, largest_difference

pytest.importorskip("deepspeed")
Policies = dict[str, ArtifactRef]
"""Policies by the names of their jobs."""
ROLLOUT = WHOLE.model_copy(update={"max_new_tokens": 2})
"""Too short for answers, so that no verifier has to start."""
STAGE = 4  # updates
OFTEN = OperationSettings(updates_per_checkpoint=2)


def optimize(stage: str = "", **changes: object) -> OptimizeSettings:
    """Of an objective that wrong answers alone teach too."""
    values = {"preset": "asymre", "responses_per_update": 16, "learning_rate": 1e-3, **changes}
    if stage:
        values["backend"] = zero(stage)
    return OptimizeSettings.parse(values)


@pytest.fixture(scope="module")
def pairs(small: Small, shards: list[ArtifactRef], tmp_path_factory: pytest.TempPathFactory) -> Policies:
    store, policy = small
    jobs = []
    stages = {"whole": "2", "zero1": "1", "zero2": "2", "stopped": "2", "zero3": "3", "adapters": "3"}
    for name, stage in stages.items():
        settings = optimize(stage, lora=LORA if name == "adapters" else None)
        rollout, mu = (WHOLE, STAGE) if name == "whole" else (ROLLOUT, 2)
        inputs = (rollout, VERIFY, settings, mu, policy, policy, shards, 0, 0)
        jobs.append(Job(name, inputs, {"operation": OFTEN}, stopped=name == "stopped"))
    return alternate_in_group(2, store.ref, tmp_path_factory.mktemp("pairs"), jobs)


@pytest.fixture(scope="module")
def alone(small: Small, shards: list[ArtifactRef]) -> ArtifactRef:
    """The policy of one process, with two updates per refresh."""
    store, policy = small
    return train_alternating(store, ROLLOUT, VERIFY, optimize(), 2, policy, policy, shards, 0, 0)


def apart(store: Store, one: ArtifactRef, other: ArtifactRef) -> float:
    return largest_difference(*(load_file(store.path(ref) / "model.safetensors") for ref in (one, other)))


def test_mu_of_a_whole_stage_equals_the_staged_workflow(small: Small, pairs: Policies) -> None:
    store, policy = small
    rollouts, verdicts = prepare_verdicts(store, policy)
    staged = optimize_stage(store, optimize(), policy, policy, rollouts, verdicts, 0, 0)
    assert apart(store, pairs["whole"], staged) < 1e-5 < apart(store, policy, staged)
    ours, theirs = (read_table(store.path(ref) / "examples.parquet").to_pylist() for ref in (pairs["whole"], staged))
    assert_close_rows(ours, theirs, 1e-3)
    assert {row["update"] for row in ours} == {1, 2, 3, 4}
    both = (store.manifest(pairs["whole"]).parents["verdicts"][0], verdicts)
    judged = [sorted(read_table(store.path(ref) / "verdicts.parquet").to_pylist(), key=str) for ref in both]
    assert judged[0] == judged[1]


@pytest.mark.parametrize("zero", ["zero1", "zero2", "zero3"])
def test_refreshes_are_those_of_one_process(zero: str, small: Small, pairs: Policies, alone: ArtifactRef) -> None:
    store, _ = small
    assert apart(store, pairs[zero], alone) < 1e-5
    ours, theirs = (store.manifest(ref) for ref in (pairs[zero], alone))
    for kind in ("rollouts", "verdicts"):
        tables = [read_table(store.path(one.parents[kind][0]) / f"{kind}.parquet") for one in (ours, theirs)]
        columns = [name for name in tables[0].column_names if name != "engine_logp"]
        assert tables[0].select(columns) == tables[1].select(columns)
    assert ours.timings.phases.keys() == theirs.timings.phases.keys()
    assert [one.facts["processes"] for one in (ours, theirs)] == [2, 1]


def test_adapters_are_merged_for_generation(small: Small, shards: list[ArtifactRef], pairs: Policies) -> None:
    store, policy = small
    settings = optimize(lora=LORA)
    alone = train_alternating(store, ROLLOUT, VERIFY, settings, 2, policy, policy, shards, 0, 0)
    assert apart(store, pairs["adapters"], alone) < 1e-5 < apart(store, policy, alone)
    # An engine without the adapters' first two updates would differ at the second refresh.
    for made in (pairs["adapters"], alone):
        assert store.manifest(made).facts["logp_mismatch_max"] < 1e-4


def test_a_stopped_stage_ends_with_the_same_bits(small: Small, pairs: Policies) -> None:
    assert pairs["stopped"] == pairs["zero2"]
    assert not list(small[0].root.glob("progress/*/*"))


@pytest.mark.long
def test_flyte_starts_the_processes(
    small: Small, shards: list[ArtifactRef], pairs: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYTE_LOCAL_CACHE_ENABLED", "false")
    store, policy = small
    settings = {"rollout": ROLLOUT, "verify": VERIFY, "optimize": optimize("2"), "operation": OFTEN}
    inputs = AlternateInputs(store=store.ref, seed=0, updates_per_rollout=2, **settings)
    made = alternate(inputs=inputs, reference=policy, policy=policy, prompts=shards, stage=0)
    assert made == pairs["zero2"]
    assert "RANK" not in os.environ
