"""A whole run whose responses come from vLLM, in the environment that `make test-vllm` sets up.

A run that alternates is in tests/train/test_vllm.py.
"""

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
