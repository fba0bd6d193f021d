"""Responses of a stage as memory-mapped columns, and the order in which updates consume them.

Shapes: R responses.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.errors import DataError
from tasks.store.tables import RESPONSE, ROWS_AT_ONCE

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


class Column:
    """A column of values in an unnamed temporary file, which is then mapped into memory."""

    def __init__(self, dtype: npt.DTypeLike, folder: Path | None = None) -> None:
        self._dtype = np.dtype(dtype)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by mapped)

    def add(self, values: npt.ArrayLike) -> None:
        """Append values."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)

    def mapped(self) -> Array:
        """Return all values as a memory map, and close the column. Changes of the map are not written to the file."""
        with self._file as file:
            file.flush()
            return np.asarray(np.memmap(file, self._dtype, "c")) if file.tell() else np.zeros(0, self._dtype)


def zeros(count: int, folder: Path | None) -> Floats:
    """Return a column of zeros to write into.

    Raises:
        OSError: the disk has no room for it.
    """
    if not count:
        return np.zeros(0, np.float32)
    with tempfile.TemporaryFile(dir=folder) as file:
        # A full disk raises OSError here. With holes in the file, it would kill the process (SIGBUS) at a later write.
        file.write(np.zeros(count, np.float32).data)
        file.flush()
        return np.asarray(np.memmap(file, np.float32, "r+"))


@dataclass(frozen=True)
class Ragged:
    """Rows of unequal length, one after the other: row i is ``flat[offsets[i] : offsets[i + 1]]``."""

    flat: npt.NDArray[np.generic]
    offsets: Ints

    def __getitem__(self, row: int) -> npt.NDArray[np.generic]:
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Ints:
        """Lengths of all rows."""
        return np.diff(self.offsets)

    def lengths_of(self, rows: Ints) -> Ints:
        """Return the lengths of some rows."""
        lengths: Ints = self.offsets[rows + 1] - self.offsets[rows]
        return lengths

    def of(self, rows: Ints) -> npt.NDArray[np.generic]:
        """Return all elements of some rows, row after row."""
        return self.flat[self.indices(rows)]

    def indices(self, rows: Ints) -> Ints:
        """Return the indices into ``flat`` of all elements of some rows, row after row."""
        lengths = self.lengths_of(rows)
        ends = lengths.cumsum()
        shift = self.offsets[rows] - ends + lengths
        indices: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(shift, lengths)
        return indices


@dataclass(frozen=True)
class Responses:
    """R responses; the responses of a group are consecutive."""

    prompt_tokens: Ragged
    response_tokens: Ragged
    engine_logp: Ragged
    reward_R: Floats
    """NaN where the verifier could not judge."""
    group_R: Ints
    """Groups, counted from 0."""
    truncated_R: Flags
    """Responses that were cut off at the largest length."""
    folder: Path | None = None
    """A folder on the disk that keeps columns of the responses; None for the system's folder of temporary files."""

    @property
    def group_size(self) -> int:
        """Responses per prompt, the same for every group."""
        return int((self.group_R == 0).sum())

    def sequence_tokens(self, rows: Ints) -> Ints:
        """Return the tokens of prompt and response together, of some rows."""
        return self.prompt_tokens.lengths_of(rows) + self.response_tokens.lengths_of(rows)

    def mean_reward(self, rows: Ints) -> float | None:
        """Return the mean reward of the responses that have a reward; None if none has one."""
        reward = self.reward_R[rows]
        known = reward[~np.isnan(reward)]
        return float(known.mean(dtype=np.float64)) if len(known) else None  # A sum in fp32 can overflow.

    def mean_length(self, rows: Ints) -> float | None:
        """Return the mean number of tokens of some responses, without missing ones; None if all are missing."""
        lengths = self.response_tokens.lengths_of(rows)
        return float(lengths[lengths > 0].mean()) if lengths.any() else None


def collect(
    rollouts: Iterable[pa.Table], verdicts: Iterable[pa.Table], group_size: int, folder: Path | None = None
) -> Responses:
    """Join rollouts with the verdicts on them, in the same order; tables of both may end at different rows.

    One table of each is in memory at a time. All columns are kept in files; for their ``folder`` see ``Responses``.

    Raises:
        DataError: the tables name different responses, a group is not whole, or tokens have no log-probability.
    """
    prompts, responses, engine = (_Lists(dtype, folder) for dtype in (np.int32, np.int32, np.float32))
    reward, group, truncated = (Column(dtype, folder) for dtype in (np.float32, np.int64, np.bool_))
    whole_groups = -(-ROWS_AT_ONCE // group_size) * group_size
    first = 0
    pairs = zip_longest(_resized(rollouts, whole_groups), _resized(verdicts, whole_groups), fillvalue=pa.table({}))
    for table, verdict_table in pairs:
        if table.num_rows != verdict_table.num_rows or not all(
            table[name].equals(verdict_table[name]) for name in RESPONSE
        ):
            raise DataError(f"from response {first} on, verdicts name other responses than rollouts: verify again.")
        table = table.combine_chunks()
        _check_rollouts(table, group_size)
        prompts.add(table["prompt_token_ids"])
        responses.add(table["response_token_ids"])
        engine.add(table["engine_logp"])
        reward.add(verdict_table["reward"].to_numpy())
        group.add((first + np.arange(table.num_rows)) // group_size)
        truncated.add(pc.equal(table["finish_reason"], "length").to_numpy())
        first += table.num_rows
    return Responses(
        prompt_tokens=prompts.ragged(),
        response_tokens=responses.ragged(),
        engine_logp=engine.ragged(),
        reward_R=reward.mapped(),
        group_R=group.mapped(),
        truncated_R=truncated.mapped(),
        folder=folder,
    )


def _resized(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the rows of consecutive tables in tables of ``rows`` rows; the last one may have fewer."""
    pending: list[pa.Table] = []
    for table in tables:
        pending.append(table)
        if (available := sum(one.num_rows for one in pending)) >= rows:
            whole, rest = pa.concat_tables(pending), available % rows
            yield from (whole.slice(start, rows) for start in range(0, available - rest, rows))
            pending = [whole.slice(available - rest)]
    if any(one.num_rows for one in pending):
        yield pa.concat_tables(pending)


class _Lists:
    """A column of lists: their values one after the other, and their lengths."""

    def __init__(self, dtype: npt.DTypeLike, folder: Path | None) -> None:
        self._flat, self._lengths = Column(dtype, folder), Column(np.int64, folder)
        self._lengths.add([0])

    def add(self, lists: pa.ChunkedArray) -> None:
        self._flat.add(pc.list_flatten(lists).to_numpy())
        self._lengths.add(pc.list_value_length(lists).to_numpy())

    def ragged(self) -> Ragged:
        offsets = self._lengths.mapped()
        return Ragged(self._flat.mapped(), offsets.cumsum(out=offsets))


def _check_rollouts(table: pa.Table, group_size: int) -> None:
    """Raise DataError unless the rows are whole groups, in order, with a log-probability of every response token."""
    row = np.arange(table.num_rows)
    names, sample_index = table["prompt_id"], table["sample_index"].to_numpy()
    expected = names.take(pa.array(row - row % group_size))
    wrong = (sample_index != row % group_size) | ~pc.equal(names, expected).to_numpy()
    wrong[-1] |= len(row) % group_size > 0
    if wrong.any():
        name = expected[int(wrong.argmax())].as_py()
        raise DataError(
            f"prompt {name}: it does not have {group_size} responses in the order of sample_index: generate again."
        )
    # A length that differs would move the log-probabilities of all later tokens.
    logp_R, tokens_R = (pc.list_value_length(table[name]).to_numpy() for name in ("engine_logp", "response_token_ids"))
    for bad in np.flatnonzero(logp_R != tokens_R)[:1]:
        raise DataError(
            f"prompt {names[bad]}: {logp_R[bad]} log-probabilities of {tokens_R[bad]} response tokens: generate again."
        )


def group_order(groups: int, seed: Sequence[int]) -> Ints:
    """Return the order in which the groups of a stage are consumed."""
    return np.random.default_rng(list(seed)).permutation(groups)


def plan_batches(responses: Responses, responses_per_update: int, seed: Sequence[int]) -> list[Ints]:
    """Plan the rows of each batch: a permutation of whole groups that the seed determines, each used once.

    Raises:
        DataError: ``responses_per_update`` is not a multiple of the group size that divides the number of responses.
    """
    size, count = responses.group_size, len(responses.group_R)
    if count % responses_per_update or responses_per_update % size:
        raise DataError(
            f"optimize.responses_per_update: {responses_per_update} does not cut {count} responses "
            f"in groups of {size} into whole updates."
        )
    rows = group_order(count // size, seed)[:, None] * size + np.arange(size)
    return list(rows.reshape(-1, responses_per_update))


def micro_batches(sequence_tokens_R: Ints, token_budget: int, padded: bool = False) -> list[Ints]:
    """Sort responses by length, and cut them into micro-batches, lists of rows, with at most ``token_budget`` tokens.

    A response that is longer than the budget gets a micro-batch of its own. If ``padded``, every response counts as
    many tokens as the longest of its micro-batch.
    """
    micros: list[list[int]] = []
    used = 0
    for row in np.argsort(sequence_tokens_R, kind="stable"):
        tokens = int(sequence_tokens_R[row])
        used = tokens * (len(micros[-1]) + 1) if padded and micros else used + tokens
        if not micros or used > token_budget:
            micros.append([])
            used = tokens
        micros[-1].append(int(row))
    return [np.asarray(micro) for micro in micros]


def shares(micros: Sequence[Ints], sequence_tokens_R: Ints, processes: int) -> list[list[Ints]]:
    """Share an update's micro-batches among processes, [process][step], of about the same size at each step.

    Micro-batches are split until their number is a multiple of the processes; with too few responses some are empty.
    """
    empty = np.zeros(0, dtype=np.int64)
    if processes == 1:
        return [list(micros) or [empty]]
    split = list(micros)
    while not split or len(split) % processes:
        divisible = [index for index, micro in enumerate(split) if len(micro) > 1]
        if not divisible:
            split.append(empty)
            continue
        largest = split.pop(max(divisible, key=lambda index: int(sequence_tokens_R[split[index]].sum())))
        split += [largest[::2], largest[1::2]]
    split.sort(key=lambda micro: -int(sequence_tokens_R[micro].sum()))
    steps = [split[start : start + processes] for start in range(0, len(split), processes)]
    # Every second step is reversed, so that no process always gets the largest.
    steps[1::2] = [step[::-1] for step in steps[1::2]]
    return [list(share) for share in zip(*steps, strict=True)]
