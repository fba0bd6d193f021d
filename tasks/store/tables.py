"""The columns of every table but the metrics (tasks/train/results.py), and functions that write and read tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_AT_ONCE = 512
"""Rows of one batch when a table is streamed."""
_CHARACTERS_AT_ONCE = 2**26
"""Characters of texts after which a table that is written gets another row group."""

RESPONSE = ["prompt_id", "sample_index"]
"""Columns that together name a response."""

PROMPTS = pa.schema(
    {
        "prompt_id": pa.string(),
        "prompt": pa.string(),  # the text that the policy continues
        "answer": pa.string(),
        "level": pa.int32(),  # difficulty; null where it is not known
        "chat": pa.bool_(),  # whether the text goes through the tokenizer's chat template
        "problem": pa.string(),  # the problem, without the template around it
    }
)

MESSAGES = pa.field("messages", pa.string())  # the chat as JSON; null where the prompt is a text
CHATS = PROMPTS.append(pa.field("date", pa.string())).append(MESSAGES)
"""Prompts of which some go through the tokenizer's chat template; ``date`` is today's date for the template."""

TRAINING = pa.schema([PROMPTS.field(name) for name in ("prompt_id", "prompt", "answer", "level")])
"""Rows of a training set; ``prompt`` is the problem without a template."""
TRAINING_CHATS = TRAINING.append(MESSAGES)
"""Rows of a training set of which some are chats."""

REMOVED = pa.schema(
    {
        "prompt_id": pa.string(),
        "place": pa.string(),  # of the row in its file
        "reason": pa.string(),
        "benchmark": pa.string(),  # that contains the row's problem
        "problem": pa.string(),  # the matching problem of the benchmark
    }
)

ROLLOUTS = pa.schema(
    {
        "prompt_id": pa.string(),
        "sample_index": pa.int32(),
        "prompt": pa.string(),
        "answer": pa.string(),
        "prompt_token_ids": pa.list_(pa.int32()),
        "response_token_ids": pa.list_(pa.int32()),
        "engine_logp": pa.list_(pa.float32()),  # log-probabilities of the response tokens, by the engine
        "finish_reason": pa.string(),  # stop, length or missing
        "response": pa.string(),  # a view of response_token_ids
        "policy": pa.string(),  # digest of the policy that sampled
    }
)


def rollouts_schema(max_new_tokens: int) -> pa.Schema:
    """Return the schema of rollouts; its metadata puts the limit on new tokens, which objectives use, in the digest."""
    return ROLLOUTS.with_metadata({"max_new_tokens": str(max_new_tokens)})


VERDICTS = pa.schema(
    {
        "prompt_id": pa.string(),
        "sample_index": pa.int32(),
        "outcome": pa.string(),  # correct, wrong, no_answer, gold_unparsable, timeout, crashed or missing
        "reward": pa.float32(),  # null where the verifier could not judge
        "extracted": pa.string(),  # content of the last closed box or block; null without one
        "shows_working": pa.bool_(),  # whether there is text before that box
    }
)

EXAMPLES = pa.schema(
    {
        "stage": pa.int64(),  # from 1
        "update": pa.int64(),  # the update that learned from the response, as in the metrics
        "staleness": pa.int64(),
        "reward": pa.float32(),  # null where the verifier could not judge
        "advantage": pa.float32(),
        "prompt_token_ids": pa.list_(pa.int32()),
        "response_token_ids": pa.list_(pa.int32()),
        # Of every response token, before the update's step:
        "ratio": pa.list_(pa.float32()),  # of the next two columns, as the objective computes it
        "logp": pa.list_(pa.float32()),  # by the current policy
        "behavior_logp": pa.list_(pa.float32()),  # by the behavior policy
        "clipped": pa.list_(pa.bool_()),
        "trigger": pa.list_(pa.bool_()),
        "vetoed": pa.list_(pa.bool_()),
        "rejected": pa.list_(pa.bool_()),  # by a correction for the engine's probabilities
    }
)

CURVE = pa.schema(
    {
        "update": pa.int64(),
        "accuracy": pa.float64(),  # avg@k over the held-out problems
        "problem_accuracy": pa.list_(pa.float64()),  # of every held-out problem, in their order
        "working": pa.float64(),
        "response_tokens": pa.float64(),
    }
)

SAMPLES = pa.schema(
    {
        "prompt_id": pa.string(),
        "sample_index": pa.int32(),  # -1 is the greedy response
        "level": pa.int32(),
        "prompt": pa.string(),
        "answer": pa.string(),
        "response": pa.string(),
        "response_tokens": pa.int32(),
        "finish_reason": pa.string(),
        "outcome": pa.string(),
        "reward": pa.float32(),
        "shows_working": pa.bool_(),
    }
)

UNJUDGED_SAMPLES = pa.schema([SAMPLES.field(name) for name in SAMPLES.names if name not in ("prompt", "answer")])
"""Samples as an evaluation saves them before they are judged; the benchmark has their prompts and gold answers."""


def write_table(
    path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema, rows_at_once: int | None = None
) -> None:
    """Write rows as parquet, so many at once that long texts are not in memory a second time as a whole."""
    start = characters = 0
    with table_writer(path, schema) as add:
        for end, row in enumerate(rows):
            if characters > _CHARACTERS_AT_ONCE or end - start == rows_at_once:
                add(to_table(rows[start:end], schema))
                start, characters = end, 0
            characters += sum(len(value) for value in row.values() if isinstance(value, str))
        add(to_table(rows[start:], schema))


def save_table(path: Path, table: pa.Table) -> None:
    """Write a table as parquet."""
    pq.write_table(table, path, compression="zstd")


def to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table in memory."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends tables to a parquet file, so that a long file is never in memory as a whole."""
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield writer.write_table


def stream_table(path: Path, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the tables of a parquet file, or of some of its columns, with ``ROWS_AT_ONCE`` rows each."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
            yield pa.Table.from_batches([batch])


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Return the table of a parquet file, or only some of its columns."""
    return pq.read_table(path, columns=columns)


def take_rows(table: pa.Table, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return rows of a table by number, also from a column of more than 2 GiB, which ``Table.take`` refuses."""
    return [row for number in numbers for row in table.slice(number, 1).to_pylist()]
