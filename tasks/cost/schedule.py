"""When pods run on a pool of GPUs: each as soon as what it waits for is done and its GPUs are free."""

import heapq
from collections.abc import Sequence

from tasks.cost.jobs import Job

Interval = tuple[float, float]


def one_after_the_other(jobs: Sequence[Job]) -> dict[str, Interval]:
    """Start and end of every job in one process, by name; seconds from the start of the run."""
    times, now = {}, 0.0
    for job in jobs:
        times[job.name] = (now, now + job.length)
        now += job.length
    return times


def on_pool(jobs: Sequence[Job], gpus: int, most_pods: int) -> dict[str, Interval]:
    """Start and end of every job on a cluster, by name; seconds from the start of the run.

    Of those that could start, training comes first, as its priority class says, and then the one that was asked for
    first. A job that has to wait holds up none that fits.

    Args:
        jobs: each after those that it waits for.
        gpus: of the pool, enough for every job.
        most_pods: at once.
    """
    times: dict[str, Interval] = {}
    waiting = list(jobs)
    running: list[tuple[float, str, int]] = []
    now, free = 0.0, gpus
    while waiting or running:
        ready = [job for job in waiting if all(name in times and times[name][1] <= now for name in job.after)]
        for job in sorted(ready, key=lambda job: job.role != "train"):
            if job.gpus <= free and len(running) < most_pods:
                times[job.name] = (now, now + job.length)
                heapq.heappush(running, (now + job.length, job.name, job.gpus))
                free -= job.gpus
                waiting.remove(job)
        if not running:
            raise ValueError(f"{waiting[0].name}: waits for {waiting[0].after}, or for GPUs that there are not")
        now = running[0][0]
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[2]
    return times


def length(intervals: Sequence[Interval]) -> float:
    """Seconds that are in at least one of them."""
    covered, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered
