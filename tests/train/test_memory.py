"""A stage's responses need memory for a few numbers each: their tokens and names stay on the disk."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.settings import OptimizeSettings
from tasks.store.tables import ROLLOUTS, VERDICTS, stream_table, table_writer
from tasks.train.advantages import select
from tasks.train.batches import Responses, collect, plan_batches
from tasks.train.scoring import draws, finite_responses
from tools.benchmarks.rows import GROUP_SIZE, rollout_tables, verdict_table

MIB = 2**20


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow holds."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def stored(folder: Path, rows: int) -> tuple[Path, Path]:
    paths = folder / f"{rows}.rollouts", folder / f"{rows}.verdicts"
    with table_writer(paths[0], ROLLOUTS) as add, table_writer(paths[1], VERDICTS) as add_verdicts:
        for table in rollout_tables(0, rows, "policy"):
            add(table)
            add_verdicts(verdict_table(table))
    return paths


def read(paths: tuple[Path, Path], folder: Path) -> Responses:
    return collect(stream_table(paths[0]), stream_table(paths[1]), GROUP_SIZE, folder)


def test_fifty_times_the_responses_take_a_few_bytes_each(tmp_path: Path, pool: pa.MemoryPool) -> None:
    few, many = (stored(tmp_path, rows) for rows in (2_000, 100_000))
    settings = OptimizeSettings.parse({"preset": "mu_grpo", "responses_per_update": 1000}).objective

    def peak(paths: tuple[Path, Path]) -> int:
        tracemalloc.start()
        found = read(paths, tmp_path)
        dropped_R = ~finite_responses(found.engine_logp.flat, found)
        select(found, settings, 3, dropped_R, draws(len(dropped_R), np.arange(len(dropped_R)), (0, 0)))
        plan_batches(found, 1000, (0, 0))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    first = peak(few)
    arrows = pool.max_memory()
    assert peak(many) - first < 40 * MIB  # 400 bytes a response
    assert pool.max_memory() - arrows < MIB


def test_streamed_responses_are_those_of_whole_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = stored(tmp_path, 4_000)
    tables = [pa.concat_tables(stream_table(path)) for path in paths]
    whole = collect([tables[0]], [tables[1].slice(0, 1001), tables[1].slice(1001)], GROUP_SIZE)
    monkeypatch.setattr("tasks.train.batches.ROWS_AT_ONCE", 500)  # It is no multiple of the group size.
    streamed = read(paths, tmp_path)
    assert streamed.reward_R.tolist() == tables[1]["reward"].to_pylist()
    for name in ("reward_R", "group_R", "truncated_R"):
        assert np.array_equal(getattr(streamed, name), getattr(whole, name))
    for name in ("prompt_token_ids", "response_token_ids", "engine_logp"):
        for found in (streamed, whole):
            column = getattr(found, name.replace("token_ids", "tokens"))
            assert [column[row].tolist() for row in range(4_000)] == tables[0][name].to_pylist()
