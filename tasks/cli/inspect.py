"""The responses of a stage, to be looked at."""

from collections import defaultdict
from typing import Any

import numpy as np
from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from tasks.artifacts import Store
from tasks.artifacts.records import Manifest
from tasks.artifacts.tables import read_table
from tasks.cli.runs import find_reports
from tasks.errors import DataError

_COLUMNS = ["prompt_id", "sample_index", "prompt", "answer", "response", "response_token_ids", "engine_logp"]


def inspect_rollouts(
    store: Store,
    stage: int,
    seed: int | None,
    algorithm: str | None,
    prompt: str | None,
    outcome: str | None,
    groups: int,
) -> Group:
    """Tables of some groups of a stage: every response with its outcome, best first.

    Raises:
        DataError: there is no such run, stage, prompt or outcome.
    """
    report = find_reports(store, seed, algorithm)[0]
    policy = _policy_after(store, report, stage)
    rows = _rows(store, policy)
    chosen: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if prompt in (None, row["prompt_id"]) and outcome in (None, row["outcome"]):
            chosen[row["prompt_id"]].append(row)
    if not chosen:
        wanted = " and ".join(
            f"{name} {value!r}" for name, value in (("prompt", prompt), ("outcome", outcome)) if value is not None
        )
        found = ", ".join(sorted({row["outcome"] for row in rows}))
        raise DataError(f"stage {stage}: no response with {wanted}; outcomes here: {found}.")
    # Groups with both better and worse responses are those that are learned from.
    order = sorted(chosen, key=lambda name: -float(np.std([row["reward"] or 0.0 for row in chosen[name]])))
    return Group(
        *(_table(chosen[name]) for name in order[:groups]),
        f"{len(chosen)} groups, {len(rows)} responses in stage {stage}",
    )


def _policy_after(store: Store, report: Manifest, stage: int) -> Manifest:
    for evaluation in report.parents["evaluations"]:
        policy = store.manifest(store.manifest(evaluation).parents["policy"][0])
        if policy.facts["stage"] == stage:
            return policy
    raise DataError(f"stage {stage}: not in the run with {len(report.parents['evaluations']) - 1} stages.")


def _rows(store: Store, policy: Manifest) -> list[dict[str, Any]]:
    verdicts = read_table(store.path(policy.parents["verdicts"][0]) / "verdicts.parquet").to_pylist()
    rollouts = [
        row
        for shard in policy.parents["rollouts"]
        for row in read_table(store.path(shard) / "rollouts.parquet", columns=_COLUMNS).to_pylist()
    ]
    return [{**rollout, **verdict} for rollout, verdict in zip(rollouts, verdicts, strict=True)]


def _table(rows: list[dict[str, Any]]) -> Table:
    first = rows[0]
    table = Table(
        box=box.SIMPLE_HEAD, title=escape(f"{first['prompt']}   (answer {first['answer']})"), title_justify="left"
    )
    for name in ("sample", "outcome", "reward", "tokens", "mean logp"):
        table.add_column(name, justify="left" if name == "outcome" else "right", no_wrap=True)
    table.add_column("response", overflow="fold")
    for row in sorted(rows, key=lambda row: (-(row["reward"] or 0.0), row["sample_index"])):
        table.add_row(
            str(row["sample_index"]),
            row["outcome"],
            "-" if row["reward"] is None else f"{row['reward']:g}",
            str(len(row["response_token_ids"])),
            f"{np.mean(row['engine_logp']):.3f}",
            escape(row["response"]),
        )
    return table
