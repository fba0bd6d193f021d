"""Whole runs whose responses come from vLLM; in the environment that `make test-vllm` sets up."""

from pathlib import Path

import pytest

from tasks.store import Store
from tools.runs import Runner, steps

pytest.importorskip("vllm")
VLLM = "rollout.engine.kind=vllm rollout.engine.eager=true"


def test_a_run_with_vllm_learns_from_its_own_log_probabilities(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.made("mu_grpo_2", "--overrides", VLLM)
    store = Store.open(runner.store)
    policies = {one.facts["stage"]: one for one in store.manifests("policy")}
    assert policies[2].facts["updates"] == 16
    assert all(policies[stage].facts["logp_mismatch"] < 1e-4 for stage in (1, 2))
    accuracy = {
        store.manifest(one.parents["policy"][0]).facts["stage"]: one.facts["accuracy"]
        for one in store.manifests("evaluation")
    }
    assert accuracy[2] > accuracy[0] + 0.1
    assert all(one.settings["engine"]["kind"] == "vllm" for one in store.manifests("evaluation"))
    assert steps(runner.made("mu_grpo_2", "--overrides", VLLM)) == []


def test_a_run_that_alternates_gives_vllm_the_weights_of_every_refresh(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    sizes = "prompts.prompts_per_stage=32 prompts.prompts_per_shard=32 evaluate.problems=10"
    changes = f"{VLLM} {sizes} optimize.preset=grpo evaluate.engine.kind=transformers"
    runner.made("grpo", "--updates_per_rollout", "1", "--overrides", changes)
    policies = {one.facts["stage"]: one for one in Store.open(runner.store).manifests("policy")}
    assert policies[4].facts["updates"] == 8
    assert all(policies[stage].facts["logp_mismatch_max"] < 1e-3 for stage in (1, 2, 3, 4))
