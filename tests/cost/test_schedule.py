"""Pods on a pool of GPUs: what waits for what, and what runs side by side."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.cost.files import Traffic
from tasks.cost.jobs import Counts, Job
from tasks.cost.schedule import length, on_pool, one_after_the_other
from tasks.settings.deployment import Role


def job(name: str, seconds: float, gpus: int = 1, after: tuple[str, ...] = (), role: Role = "rollout") -> Job:
    return Job(name, "generate", role, after, gpus, {"generate": seconds}, Counts(), Traffic())


def test_shards_share_the_gpus() -> None:
    times = on_pool([job(str(shard), 10) for shard in range(5)], gpus=2, most_pods=16)
    assert sorted(times.values()) == [(0, 10), (0, 10), (10, 20), (10, 20), (20, 30)]


def test_what_waits_for_all_shards_and_what_does_not() -> None:
    jobs = [job("a", 10), job("b", 4), job("verify", 3, 0, ("a", "b")), job("evaluate", 2, 1, ("b",))]
    times = on_pool(jobs, gpus=2, most_pods=16)
    assert times == {"a": (0, 10), "b": (0, 4), "evaluate": (4, 6), "verify": (10, 13)}


def test_training_comes_first_and_evaluation_runs_beside_generation() -> None:
    start = job("policy", 1, 0)
    evaluate, train = job("evaluate", 5, 1, ("policy",)), job("train", 9, 4, ("policy",), "train")
    assert on_pool([start, evaluate, train], 4, 16) == {"policy": (0, 1), "train": (1, 10), "evaluate": (10, 15)}
    shards = [job(f"shard {place}", 5, 1, ("policy",)) for place in range(4)]
    times = on_pool([start, evaluate, *shards], 4, 16)
    assert [times[name] for name in ("evaluate", "shard 2", "shard 3")] == [(1, 6), (1, 6), (6, 11)]


def test_only_so_many_pods_at_once() -> None:
    times = on_pool([job(str(place), 1, 0) for place in range(6)], gpus=1, most_pods=4)
    assert max(end for _, end in times.values()) == 2


def test_a_job_that_can_never_start_is_an_error() -> None:
    with pytest.raises(ValueError, match="wide: waits for"):
        on_pool([job("wide", 1, 8)], gpus=4, most_pods=16)


def test_one_after_the_other_in_one_process() -> None:
    assert one_after_the_other([job("a", 3), job("b", 4)]) == {"a": (0, 3), "b": (3, 7)}


def test_length_counts_what_overlaps_once() -> None:
    assert length([(0, 4), (2, 6), (8, 9), (8.5, 8.7)]) == 7
    assert length([]) == 0


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=20),
    st.integers(4, 8),
)
@settings(max_examples=60, deadline=None)
def test_no_gpu_is_used_twice_and_nothing_waits_for_no_reason(drawn: list[tuple[int, int, int]], gpus: int) -> None:
    """Every job starts when a job that it waits for ends, when another job ends, or at once."""
    jobs = [
        job(str(place), seconds, held, tuple(str(one) for one in range(max(0, place - waits), place)))
        for place, (seconds, held, waits) in enumerate(drawn)
    ]
    times = on_pool(jobs, gpus, most_pods=99)
    ends = {0.0, *(end for _, end in times.values())}
    for one in jobs:
        start, end = times[one.name]
        assert end - start == one.length
        assert start in ends
        assert all(times[name][1] <= start for name in one.after)
        assert sum(other.gpus for other in jobs if times[other.name][0] <= start < times[other.name][1]) <= gpus
    work = sum(one.length * one.gpus for one in jobs) / gpus
    assert max(end for _, end in times.values()) >= max(work, max(one.length for one in jobs))
