"""A whole run whose answers are programs, judged by running them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.store import Store
from tasks.store.layout import Kind
from tasks.store.tables import read_table
from tools.forked import Runner

CHANGES = (
    "prompts.arithmetic.as_code=true verify.kind=code prompts.prompts_per_stage=32 evaluate.problems=20 "
    "evaluate.samples_per_problem=2"
)


@pytest.mark.long
def test_a_policy_that_writes_programs(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.made("mu_grpo_1", "--overrides", CHANGES)
    store = Store.open(runner.store)
    verdicts = _rows(store, "verdicts")
    assert len(verdicts) == 32 * 8
    assert {"correct", "wrong"} <= {row["outcome"] for row in verdicts} <= {"correct", "wrong", "no_answer"}
    answers = {row["prompt_id"]: json.loads(row["answer"])["outputs"] for row in _rows(store, "rollouts")}
    for row in verdicts:
        printed = [row["extracted"].removeprefix("print(").removesuffix(")\n")] if row["extracted"] else []
        assert (row["outcome"] == "correct") == (printed == answers[row["prompt_id"]])
    accuracies = [manifest.facts["accuracy"] for manifest in store.manifests("evaluation")]
    assert len(accuracies) == 2
    assert max(accuracies) > 0
    (report,) = store.manifests("report")
    assert "print(" in (store.path(report.ref) / "report.html").read_text()


def _rows(store: Store, kind: Kind) -> list[dict[str, Any]]:
    paths = [store.path(manifest.ref) / f"{kind}.parquet" for manifest in store.manifests(kind)]
    return [row for path in paths for row in read_table(path).to_pylist()]
