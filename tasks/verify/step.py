"""Rollouts become verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import VERDICTS, read_table, table_writer, to_table
from tasks.interruption import heeded
from tasks.settings import VerifySettings
from tasks.verify.verdicts import FAILURES, Outcome, Verdict
from tasks.verify.verifier import check_failures, standing

_COLUMNS = ["prompt_id", "sample_index", "answer", "response", "finish_reason", "response_token_ids"]


def verify_rollouts(
    store: Store, settings: VerifySettings, rollouts: Sequence[ArtifactRef], stage: int, seed: int
) -> ArtifactRef:
    """Checks every response of a stage.

    Args:
        store: of the rollouts and the verdicts.
        settings: deadline, limits and gate.
        rollouts: the stage's shards.
        stage: counts from 0.
        seed: the run's; noted only, nothing here is random.

    Returns:
        A verdicts artifact, one row per response in the order of the rollouts, shard after shard.

    Raises:
        GateError: the verifier could not tell for too large a share of the responses.
        Interrupted: SIGTERM came; the shards that are done are kept.
    """
    title = f"stage {stage + 1} verify"
    parents = {"rollouts": rollouts}
    with heeded(), store.write("verdicts", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            paths = [folder / "rollouts.parquet" for folder in store.paths(rollouts)]
            responses = sum(pq.read_metadata(path).num_rows for path in paths)
        tally = Tally()
        failed: list[tuple[Verdict, str]] = []
        verifier = standing(settings)
        with table_writer(draft.path / "verdicts.parquet", VERDICTS) as add:
            for shard, path in enumerate(paths):
                with draft.phase("load"):
                    rows = _rows(path)
                named = title if len(paths) == 1 else f"{title} {shard + 1}/{len(paths)}"

                def judge(rows: list[dict[str, Any]] = rows, named: str = named) -> pa.Table:
                    verdicts = verifier.verify([pair(row) for row in rows], named)
                    return to_table(verdict_rows(rows, verdicts), VERDICTS)

                with draft.phase("verify"):
                    table = store.progress.table("verdicts", shard, judge)
                    verdicts = table_verdicts(table)
                    failed += [
                        (verdict, row["prompt_id"])
                        for row, verdict in zip(rows, verdicts, strict=True)
                        if verdict.outcome in FAILURES
                    ]
                    # Of all responses, those to come included: what is too much already stops before the next shard.
                    check_failures([one for one, _ in failed], settings, [name for _, name in failed], responses)
                    tally.add(rows, verdicts)
                    add(table)
        draft.facts.update(tally.facts())
    return draft.ref


def pair(row: Mapping[str, Any]) -> tuple[str, str | None]:
    """What the verifier takes for a row of the rollouts or samples table."""
    return row["answer"], None if row["finish_reason"] == "missing" else row["response"]


def _rows(path: Path) -> list[dict[str, Any]]:
    """A shard's rows; their token ids stay Arrow's, because only their number is asked for."""
    table = read_table(path, _COLUMNS)
    rows: list[dict[str, Any]] = table.drop_columns("response_token_ids").to_pylist()
    for row, token_ids in zip(rows, table["response_token_ids"], strict=True):
        row["response_token_ids"] = token_ids
    return rows


def verdict_rows(rollouts: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Rows of the verdicts table for rows of the rollouts table, in their order."""
    return [
        {
            "prompt_id": row["prompt_id"],
            "sample_index": row["sample_index"],
            "outcome": str(verdict.outcome),
            "reward": verdict.reward,
            "extracted": verdict.extracted,
            "shows_working": verdict.shows_working,
        }
        for row, verdict in zip(rollouts, verdicts, strict=True)
    ]


def table_verdicts(table: pa.Table) -> list[Verdict]:
    """The verdicts in rows of the verdicts table."""
    return [
        Verdict(Outcome(row["outcome"]), row["reward"], row["extracted"], row["shows_working"])
        for row in table.to_pylist()
    ]


class Tally:
    """Sums over a stage's responses, taken up shard by shard."""

    def __init__(self) -> None:
        self._outcomes: Counter[Outcome] = Counter()
        self._reward = 0.0
        self._scored = self._working = self._tokens = self._truncated = 0

    def add(self, rollouts: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict]) -> None:
        """Takes up responses: rows of the rollouts table, of which token ids and finish reason count, and verdicts."""
        for row, verdict in zip(rollouts, verdicts, strict=True):
            self._outcomes[verdict.outcome] += 1
            self._reward += verdict.reward or 0.0
            self._scored += verdict.reward is not None
            self._working += verdict.shows_working
            self._tokens += len(row["response_token_ids"])
            self._truncated += row["finish_reason"] == "length"

    def facts(self) -> dict[str, Any]:
        """Counts per outcome, and means: of the reward over scored responses, of the rest over all; None over none."""
        responses = self._outcomes.total()
        return {
            "responses": responses,
            "outcomes": {str(outcome): self._outcomes[outcome] for outcome in Outcome if self._outcomes[outcome]},
            "reward": _mean(self._reward, self._scored),
            "working": _mean(self._working, responses),
            "response_tokens": _mean(self._tokens, responses),
            "truncated": _mean(self._truncated, responses),
        }


def _mean(total: float, number: int) -> float | None:
    return total / number if number else None
