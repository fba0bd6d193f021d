"""The step that judges the rollouts of a stage."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.process.interruption import save_on_sigterm
from tasks.settings import VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import ROLLOUTS_FILE, VERDICTS_FILE
from tasks.store.tables import VERDICTS, stream_table, table_writer, to_table
from tasks.verify.pool import Verifier, VerifierInput, check_failures, shared_verifier
from tasks.verify.verdicts import FAILURES, Outcome, Verdict

Row = Mapping[str, Any]
_COLUMNS = ["prompt_id", "sample_index", "answer", "response", "finish_reason", "prompt"]
_PORTION = 2**15
"""Responses of a shard that are judged and saved together. At the end of a portion, workers wait for the slowest."""


@save_on_sigterm
def verify_rollouts(
    store: Store, settings: VerifySettings, rollouts: Sequence[ArtifactRef], stage: int, seed: int
) -> ArtifactRef:
    """Write the verdicts of all responses of a stage: one row per response, in the order of the rollouts.

    ``rollouts`` has one artifact per shard, and stages count from 0.

    Raises:
        GateError: too large a share of the responses could not be judged.
        Interrupted: SIGTERM came; the finished portions are saved.
    """
    with store.write("verdicts", settings=settings, parents={"rollouts": rollouts}, seed=seed) as draft:
        with draft.phase("load"):
            paths = [folder / ROLLOUTS_FILE for folder in store.paths(rollouts)]
            sizes = [pq.read_metadata(path).num_rows for path in paths]
        count = sum(len(range(0, size, _PORTION)) for size in sizes)
        tally = Tally()
        verifier = shared_verifier(settings)
        with draft.phase("start"):
            verifier.start()

        def judge(rows: Iterable[Row], title: str) -> pa.Table:
            table = _judge(rows, verifier, title)
            # The share is of all responses of the stage, so that a stage fails as early as it is certain to. What fails
            # is not saved, so that the next attempt judges again, perhaps on a machine with more CPU time or memory.
            check_failures([*tally.failed, *table.to_pylist()], settings, sum(sizes))
            return table

        with draft.phase("verify"), table_writer(draft.path / VERDICTS_FILE, VERDICTS) as add:
            for number, rows in enumerate(_portions(paths, sizes, tally)):
                title = f"stage {stage + 1} verify" + (f" {number + 1}/{count}" if count > 1 else "")
                table = store.progress.table("judged", number, partial(judge, rows, title))
                tally.add_verdicts(table)
                add(table)
        draft.facts.update(tally.facts())
    return draft.ref


def _portions(paths: Sequence[Path], sizes: Sequence[int], tally: "Tally") -> Iterator[Iterator[Row]]:
    """Yield portions of responses, each as an iterator that reads its rows lazily."""
    for path, size in zip(paths, sizes, strict=True):
        rows = _rows(path, tally)
        for _ in range(0, size, _PORTION):
            portion = islice(rows, _PORTION)
            yield portion
            deque(portion, maxlen=0)  # Skip the rows of a portion whose verdicts were saved before.


def _rows(path: Path, tally: "Tally") -> Iterator[Row]:
    for table in stream_table(path, [*_COLUMNS, "response_token_ids"]):
        tally.add_rollouts(table)
        yield from table.select(_COLUMNS).to_pylist()


def _judge(rows: Iterable[Row], verifier: Verifier, title: str) -> pa.Table:
    keys: list[Row] = []

    def inputs() -> Iterator[VerifierInput]:
        for row in rows:
            keys.append({"prompt_id": row["prompt_id"], "sample_index": row["sample_index"]})
            yield verifier_input(row)

    return verdict_table(keys, verifier.verify(inputs(), title))


def verifier_input(row: Row) -> VerifierInput:
    """Return gold answer, response (None if missing) and prompt of a row of the rollouts or samples table."""
    return row["answer"], None if row["finish_reason"] == "missing" else row["response"], row["prompt"]


def verdict_table(rollouts: Sequence[Row], verdicts: Sequence[Verdict]) -> pa.Table:
    """Return the verdicts table for rows of the rollouts table."""
    rows = [
        {"prompt_id": row["prompt_id"], "sample_index": row["sample_index"], **vars(verdict)}
        for row, verdict in zip(rollouts, verdicts, strict=True)
    ]
    return to_table(rows, VERDICTS)


class Tally:
    """Sums over the responses of a stage, which are added portion by portion."""

    def __init__(self) -> None:
        self.failed: list[Row] = []
        """Rows of the verdicts table of responses that could not be judged."""
        self._outcomes: Counter[str] = Counter()
        self._reward = 0.0
        self._scored = self._working = self._tokens = self._truncated = 0
        self._extracts = True

    def add_rollouts(self, rollouts: pa.Table) -> None:
        """Add rows of the rollouts table with the columns response_token_ids and finish_reason."""
        self._tokens += pc.sum(pc.list_value_length(rollouts["response_token_ids"])).as_py() or 0
        self._truncated += pc.sum(pc.equal(rollouts["finish_reason"], "length")).as_py() or 0

    def add_verdicts(self, verdicts: pa.Table) -> None:
        """Add rows of the verdicts table."""
        for row in verdicts.to_pylist():
            if row["outcome"] in FAILURES:
                self.failed.append(row)
            self._outcomes[row["outcome"]] += 1
            self._reward += row["reward"] or 0.0
            self._scored += row["reward"] is not None
            self._working += row["shows_working"] or 0
            self._extracts &= row["shows_working"] is not None

    def facts(self) -> dict[str, Any]:
        """Return counts per outcome, the mean reward of scored responses, and means over those that are not missing.

        A mean over no responses is None.
        """
        responses = self._outcomes.total()
        generated = responses - self._outcomes[Outcome.MISSING]
        return {
            "responses": responses,
            "outcomes": {str(outcome): self._outcomes[outcome] for outcome in Outcome if self._outcomes[outcome]},
            "reward": _mean(self._reward, self._scored),
            "working": _mean(self._working, generated) if self._extracts else None,
            "response_tokens": _mean(self._tokens, generated),
            "truncated": _mean(self._truncated, generated),
        }


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
