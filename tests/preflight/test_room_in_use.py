"""Nodes that others use too."""

from tests.preflight.api_server import ApiServer
from tests.preflight.conftest import Ask
from tests.preflight.spoiled import GPU, occupied, wrong_rows


def test_no_room_now_is_a_warning_that_names_what_is_short(gpu_pool: ApiServer, ask: Ask) -> None:
    occupied(gpu_pool, "gpu-train-1", 5)
    found = ask(gpu_pool)
    assert wrong_rows(found) == {"pod of train": "warning"}
    expected = f"fits 1 of 5 nodes, and waits: room for 0 of 1 now; gpu-train-1: asks 4 {GPU}, has 3 {GPU}"
    assert found["pod of train"].found == expected
    assert "Wait for what runs there, or add nodes" in found["pod of train"].fix


def test_shards_that_do_not_all_fit_at_once(gpu_pool: ApiServer, ask: Ask) -> None:
    four = "prompts.prompts_per_shard=128"
    assert ask(gpu_pool, overrides=four)["shards"].found.startswith("4 a stage, 4 at once")
    occupied(gpu_pool, "gpu-rollout-1", 6)
    occupied(gpu_pool, "gpu-rollout-2", 5)
    found = ask(gpu_pool, overrides=four)["shards"]
    assert found.state == "warning"
    assert "the nodes have room for 3 now: 2 rounds" in found.found
    assert "prompts.prompts_per_shard" in found.fix
