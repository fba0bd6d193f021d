import shutil
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from tasks.errors import GateError
from tasks.settings import VerifySettings
from tasks.store import Store
from tasks.store.tables import ROLLOUTS, VERDICTS, read_table
from tasks.verify.step import verify_rollouts
from tests.cli.synthetic import write
from tests.verify.helpers import HANGS, boxed, workers_of

ONE = VerifySettings(workers=1, deadline_seconds=30.0)
ROWS = [
    ("a", 0, "42", f"so {boxed('42')}", 4, "stop"),
    ("a", 1, "42", boxed("43"), 2, "stop"),
    ("b", 0, "1/2", boxed("0.5"), 3, "stop"),
    ("b", 1, "1/2", "on and on", 9, "length"),
    ("c", 0, "?", boxed("1"), 2, "stop"),
]
MISSING = ("c", 1, "?", "", 0, "missing")


def shard(store, rows):
    """A rollouts artifact of (prompt_id, sample_index, answer, response, response tokens, finish reason)."""
    names = ("prompt_id", "sample_index", "answer", "response", "response_token_ids", "finish_reason")
    same = {"prompt": "?", "prompt_token_ids": [1], "policy": "p"}
    table = [{**same, **dict(zip(names, row, strict=True))} for row in rows]
    for row in table:
        tokens = row["response_token_ids"]
        row |= {"response_token_ids": [2] * tokens, "engine_logp": [-1.0] * tokens}
    return write(store, "rollouts", {"rollouts.parquet": (table, ROLLOUTS)})


def test_verdicts_and_facts(store):
    shards = [shard(store, ROWS[:2]), shard(store, [*ROWS[2:], MISSING])]
    ref = verify_rollouts(store, ONE, shards, stage=0, seed=3)
    table = read_table(store.path(ref) / "verdicts.parquet")
    manifest = store.manifest(ref)
    assert table.schema == VERDICTS
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ("a", 0, "correct", 1.0, "42", True),
        ("a", 1, "wrong", 0.0, "43", False),
        ("b", 0, "correct", 1.0, "0.5", False),
        ("b", 1, "no_answer", 0.0, None, False),
        ("c", 0, "gold_unparsable", None, "1", False),
        ("c", 1, "missing", None, None, False),
    ]
    outcomes = {"correct": 2, "wrong": 1, "no_answer": 1, "gold_unparsable": 1, "missing": 1}
    means = {"reward": 0.5, "working": 0.2, "response_tokens": 4.0, "truncated": 0.2}
    assert manifest.facts == {"responses": 6, "outcomes": outcomes, **means}
    inputs = ({"rollouts": shards}, 3, ONE.model_dump(mode="json"))
    assert (manifest.parents, manifest.seed, manifest.settings) == inputs
    assert set(manifest.timings.phases) == {"load", "start", "verify"}
    assert len(workers_of()) == 1  # It stands ready for the next step.
    assert verify_rollouts(store, ONE.model_copy(update={"workers": 2}), shards, 0, 3) == ref


def test_verdicts_in_portions_are_those_of_the_whole_also_after_an_interruption(store, monkeypatch):
    shards = [shard(store, ROWS), shard(store, ROWS[:3])]
    whole = verify_rollouts(store, ONE, shards, 0, 0)
    tables = [read_table(store.path(whole) / "verdicts.parquet").to_pylist()]
    monkeypatch.setattr("tasks.verify.step._PORTION", 2)
    working = Store(store.ref, work="key")
    for _ in range(2):
        parts = verify_rollouts(working, ONE, shards, 0, 0)
        tables.append(read_table(store.path(parts) / "verdicts.parquet").to_pylist())
        assert store.manifest(parts).facts == store.manifest(whole).facts
        store.delete(parts.folder)  # Else the next attempt finds it, and its own facts are not written.
        shutil.rmtree(store.root / "progress/key/judged-000001")  # What was judged before and after it is kept.
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0]) == 8


def test_the_gate_stops_the_stage_before_the_next_shard_and_nothing_is_kept(store, monkeypatch):
    titles = []
    monkeypatch.setattr("tasks.verify.pool.bar", lambda title, _: titles.append(title) or nullcontext(Mock()))
    shards = [shard(store, [("d", 0, "42", boxed(HANGS), 5, "stop")]), shard(store, ROWS)]
    counts = r"1 timeouts and 0 crashes among 6 responses, .* 0\.1667; verify.max_failure_share is 0\.0.*'d'"
    fix = r"raise verify.deadline_seconds \(1\) .*, raise verify.memory_mib \(2048\)"
    settings, working = VerifySettings(workers=1, deadline_seconds=1.0), Store(store.ref, work="key")
    for attempts in (1, 2):
        with pytest.raises(GateError, match=rf"{counts}.*{fix}"):
            verify_rollouts(working, settings, shards, stage=0, seed=0)
        assert titles == ["stage 1 verify 1/2"] * attempts  # What failed is judged again.
    assert not (store.root / "verdicts").exists()
