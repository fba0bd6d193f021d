"""Judges the rollouts of a stage."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.interruption import heeding
from tasks.settings import VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import ROWS_AT_ONCE, VERDICTS, Rows, stream_table, table_writer, to_table
from tasks.verify.pool import Asked, check_failures, shared_verifier
from tasks.verify.verdicts import FAILURES, Outcome, Verdict

_NAMES, _READ = ["prompt_id", "sample_index"], ["answer", "response", "finish_reason", "prompt"]
_JUDGED_AT_ONCE = 2**15
"""Responses of a shard that are judged and kept together; at their end workers wait for the slowest."""


@heeding
def verify_rollouts(
    store: Store, settings: VerifySettings, rollouts: Sequence[ArtifactRef], stage: int, seed: int
) -> ArtifactRef:
    """Judge every response of a stage and write a verdicts artifact.

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
        Interrupted: SIGTERM came; the portions that are done are kept.
    """
    title = f"stage {stage + 1} verify"
    with store.write("verdicts", settings=settings, parents={"rollouts": rollouts}, seed=seed) as draft:
        with draft.phase("load"):
            paths = [folder / "rollouts.parquet" for folder in store.paths(rollouts)]
            sizes = [pq.read_metadata(path).num_rows for path in paths]
        count = sum(len(range(0, size, _JUDGED_AT_ONCE)) for size in sizes)
        tally = Tally()
        failed: list[tuple[Verdict, str]] = []
        verifier = shared_verifier(settings)
        with draft.phase("verify"), table_writer(draft.path / "verdicts.parquet", VERDICTS) as add:
            for number, (tables, read) in enumerate(_portions(paths, sizes, tally)):
                named = title if count == 1 else f"{title} {number + 1}/{count}"

                def judge(
                    tables: Iterator[pa.Table] = tables, read: list[pa.Table] = read, named: str = named
                ) -> pa.Table:
                    asked = (pair(row) for table in tables for row in table.to_pylist())
                    verdicts = verifier.verify(asked, named)
                    return to_table(verdict_rows(pa.concat_tables(read).to_pylist(), verdicts), VERDICTS)

                table = store.progress.table("judged", number, judge)
                verdicts = table_verdicts(table)
                names = table["prompt_id"].to_pylist()
                failed += [one for one in zip(verdicts, names, strict=True) if one[0].outcome in FAILURES]
                # Of all responses, those to come included: what is too much already stops before the next portion.
                check_failures(failed, settings, sum(sizes))
                tally.add_verdicts(verdicts)
                add(table)
                deque(tables, maxlen=0)  # Rows that nobody asked for, because their verdicts were stored before.
        draft.facts.update(tally.facts())
    return draft.ref


def _portions(
    paths: Sequence[Path], sizes: Sequence[int], tally: "Tally"
) -> Iterator[tuple[Iterator[pa.Table], list[pa.Table]]]:
    """Yield responses that are judged together, as tables that are read when they are asked for.

    Beside them stand prompt_id and sample_index of those that were read. A portion must be read before the next one.
    """
    for path, size in zip(paths, sizes, strict=True):
        rows = Rows(stream_table(path, [*_NAMES, *_READ, "response_token_ids"]))
        for first in range(0, size, _JUDGED_AT_ONCE):
            read: list[pa.Table] = []
            yield _tables(rows, min(_JUDGED_AT_ONCE, size - first), tally, read), read


def _tables(rows: Rows, count: int, tally: "Tally", read: list[pa.Table]) -> Iterator[pa.Table]:
    while count:
        table = rows.take(min(count, ROWS_AT_ONCE))
        count -= table.num_rows
        tally.add_rollouts(table)
        read.append(table.select(_NAMES))
        yield table.select(_READ)


def pair(row: Mapping[str, Any]) -> Asked:
    """Return what the verifier takes for a row of the rollouts or samples table."""
    return row["answer"], None if row["finish_reason"] == "missing" else row["response"], row["prompt"]


def verdict_rows(rollouts: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return rows of the verdicts table for rows of the rollouts table, in their order."""
    return [
        {"prompt_id": row["prompt_id"], "sample_index": row["sample_index"], **vars(verdict)}
        for row, verdict in zip(rollouts, verdicts, strict=True)
    ]


def table_verdicts(table: pa.Table) -> list[Verdict]:
    """Return the verdicts in rows of the verdicts table."""
    return [
        Verdict(Outcome(row["outcome"]), row["reward"], row["extracted"], row["shows_working"])
        for row in table.to_pylist()
    ]


class Tally:
    """Sums over a stage's responses, which are added portion by portion."""

    def __init__(self) -> None:
        self._outcomes: Counter[Outcome] = Counter()
        self._reward = 0.0
        self._scored = self._working = self._tokens = self._truncated = 0

    def add_rollouts(self, rollouts: pa.Table) -> None:
        """Add rows of the rollouts table, of which token ids and finish reason count."""
        self._tokens += pc.sum(pc.list_value_length(rollouts["response_token_ids"])).as_py() or 0
        self._truncated += pc.sum(pc.equal(rollouts["finish_reason"], "length")).as_py() or 0

    def add_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Add verdicts."""
        for verdict in verdicts:
            self._outcomes[verdict.outcome] += 1
            self._reward += verdict.reward or 0.0
            self._scored += verdict.reward is not None
            self._working += verdict.shows_working

    def facts(self) -> dict[str, Any]:
        """Return counts per outcome, the mean reward of scored responses, and other means of all; None over none."""
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
