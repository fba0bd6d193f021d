"""Room on a cluster that others use too: nodes without space now, and quotas."""

from tests.preflight.api_server import ApiServer
from tests.preflight.conftest import Ask
from tests.preflight.spoiled import GPU, occupied, small_quota, wrong_rows


def test_no_room_now_is_a_warning_that_names_what_is_short(gpu_pool: ApiServer, ask: Ask) -> None:
    occupied(gpu_pool, "gpu-train-1", 5)
    found = ask(gpu_pool)
    assert wrong_rows(found) == {"pod of train": "warning"}
    expected = f"fits 1 of 5 nodes, and waits: asks 4 {GPU}, gpu-train-1 has 3 {GPU} free"
    assert found["pod of train"].found == expected
    assert "Wait for what runs there, or add nodes" in found["pod of train"].mend


def test_shards_that_do_not_all_fit_at_once(gpu_pool: ApiServer, ask: Ask) -> None:
    four = "prompts.prompts_per_shard=128"
    assert ask(gpu_pool, overrides=four)["shards"].found.startswith("4 a stage, 4 at once")
    occupied(gpu_pool, "gpu-rollout-1", 6)
    occupied(gpu_pool, "gpu-rollout-2", 5)
    found = ask(gpu_pool, overrides=four)["shards"]
    assert found.state == "warning"
    assert "the nodes have room for 3 now: 2 rounds" in found.found
    assert "prompts.prompts_per_shard" in found.mend
    quota = gpu_pool.find("ResourceQuota", "mu-grpo")
    quota["status"]["used"]["requests.nvidia.com/gpu"] = "18"
    assert "the quota has room for 2 now: 2 rounds" in ask(gpu_pool, overrides=four)["shards"].found


def test_a_quota_that_is_used_up_is_a_warning(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.find("ResourceQuota", "mu-grpo")["status"]["used"]["requests.memory"] = "5400Gi"
    found = ask(gpu_pool)["quota"]
    assert found.state == "warning"
    assert found.found == "mu-grpo has 744Gi memory left, and 960Gi memory of train wait"


def test_a_quota_for_other_pods_does_not_count(gpu_pool: ApiServer, ask: Ask) -> None:
    small_quota(gpu_pool)
    spec = gpu_pool.find("ResourceQuota", "mu-grpo")["spec"]
    of_class = {"scopeName": "PriorityClass", "operator": "In", "values": ["batch"]}
    spec["scopeSelector"] = {"matchExpressions": [of_class]}
    assert ask(gpu_pool)["quota"].state == "ok"
    of_class["values"] = ["mu-grpo-rollout"]
    assert ask(gpu_pool)["quota"].state == "ok"  # 1 GPU of its 2
    of_class["values"] = ["mu-grpo-train"]
    assert ask(gpu_pool)["quota"].state == "failed"
    spec.pop("scopeSelector")
    spec["scopes"] = ["BestEffort"]
    assert ask(gpu_pool)["quota"].state == "ok"
    spec["scopes"] = ["Terminating"]
    assert ask(gpu_pool)["quota"].found == "mu-grpo is of a scope that is not judged here"


def test_train_nodes_share_the_quota(gpu_pool: ApiServer, ask: Ask) -> None:
    gpu_pool.find("ResourceQuota", "mu-grpo")["spec"]["hard"]["requests.nvidia.com/gpu"] = "7"
    assert ask(gpu_pool)["quota"].state == "ok"
    assert f"8 {GPU} of train exceed" in ask(gpu_pool, changes={"train_nodes": 2})["quota"].found
