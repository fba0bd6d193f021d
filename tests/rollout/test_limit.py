"""The limit of a rollouts artifact is part of what it is: objectives divide by it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.artifacts import ArtifactRef
from tasks.artifacts.tables import read_table
from tasks.rollout import step
from tasks.rollout.engine import Request, Response, Sampling, Work
from tasks.rollout.step import generate_shard
from tasks.settings import RolloutSettings
from tests.rollout.test_missing import Small, prompts


class Brief:
    """An engine whose responses are of two tokens, whatever the limit."""

    context_tokens = 64
    work = Work()

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_done: Callable[[int, int], None]
    ) -> list[Response]:
        assert sampling.max_new_tokens > 2
        on_done(len(requests), 2 * len(requests))
        return [Response(np.array([5, 1], np.int32), np.array([-1, -1], np.float32), "stop") for _ in requests]


def test_equal_responses_under_another_limit_are_another_artifact(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def brief(_: Path, __: str, ___: Any) -> Brief:
        return Brief()

    monkeypatch.setattr(step, "engine_of", brief)
    store, policy = small
    shard = prompts(store, "1+1=", "2+2=")

    def made(limit: int) -> ArtifactRef:
        settings = RolloutSettings(responses_per_prompt=2, max_new_tokens=limit)
        return generate_shard(store, settings, policy, shard, 0, 0)

    short, long = made(8), made(16)
    assert made(8) == short
    assert short != long
    for ref, limit in ((short, 8), (long, 16)):
        assert store.manifest(ref).settings["max_new_tokens"] == limit
    tables = [read_table(store.path(ref) / "rollouts.parquet") for ref in (short, long)]
    assert tables[0].equals(tables[1])
