"""vLLM and DeepSpeed alternate in the same processes; in the environment that `make test-vllm` sets up."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from tasks.models.step import prepare_policy
from tasks.settings import EngineSettings, PolicySettings
from tasks.store import Store
from tasks.store.tables import read_table
from tasks.train.colocated import train_alternating
from tests.conftest import SMALL
from tests.prepared import PROMPTS, prepare_prompts
from tests.train.test_alternating_processes import OFTEN, ROLLOUT, VERIFY, optimize
from tests.train.together import Job, alternate_in_group, largest_difference

pytest.importorskip("vllm")


def test_two_processes_make_the_policy_of_one(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    tiny = SMALL.model_copy(update={"hidden_size": 64})  # attention heads as wide as vLLM needs them on a CPU
    policy = prepare_policy(store, PolicySettings(tiny=tiny), PROMPTS.arithmetic, "", 0)
    shards = prepare_prompts(store, PROMPTS, 0, 0)
    rollout = ROLLOUT.model_copy(update={"engine": EngineSettings(kind="vllm", eager=True)})

    def inputs(stage: str) -> tuple[object, ...]:
        return rollout, VERIFY, optimize(stage), 2, policy, policy, shards, 0, 0

    stages = {"zero2": "2", "stopped": "2", "zero3": "3"}
    jobs = [Job(name, inputs(stage), {"operation": OFTEN}, name == "stopped") for name, stage in stages.items()]
    out = tmp_path / "out"
    out.mkdir()
    made = alternate_in_group(2, store.ref, out, jobs)
    alone = train_alternating(store, *inputs(""))
    assert made["stopped"] == made["zero2"]
    for ref in (made["zero2"], made["zero3"], alone):
        manifest = store.manifest(ref)
        # An engine that kept its first weights would differ at the second refresh, and one in two of its processes too.
        assert manifest.facts["logp_mismatch_max"] < 1e-4
        assert manifest.facts["updates"] == 4
        weights, expected, first = (load_file(store.path(one) / "model.safetensors") for one in (ref, alone, policy))
        assert largest_difference(weights, expected) < 1e-5 < largest_difference(weights, first)
        table = read_table(store.path(manifest.parents["rollouts"][0]) / "rollouts.parquet")
        assert table["policy"].unique().to_pylist() == [f"{policy.digest}+0", f"{policy.digest}+2"]
