"""A stage's responses in flat arrays, and the order in which updates consume them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.errors import DataError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Ragged:
    """Rows of unequal length, one after the other: row i is ``flat[offsets[i] : offsets[i + 1]]``."""

    flat: npt.NDArray[np.generic]
    offsets: Ints

    def __getitem__(self, row: int) -> npt.NDArray[np.generic]:
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    @cached_property
    def lengths(self) -> Ints:
        """Length of every row."""
        return np.diff(self.offsets)

    def places(self, rows: Ints) -> Ints:
        """Indices into ``flat`` of all elements of some rows, row after row."""
        lengths = self.lengths[rows]
        ends = lengths.cumsum()
        return np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.offsets[rows] - ends + lengths, lengths)


@dataclass(frozen=True)
class Responses:
    """R responses, those of a group beside each other.

    ``reward_R`` is NaN where the verifier could not tell; ``group_R`` counts groups from 0; ``truncated_R`` says which
    were cut off at the largest length.
    """

    prompt_tokens: Ragged
    response_tokens: Ragged
    engine_logp: Ragged
    reward_R: Floats
    group_R: Ints
    truncated_R: npt.NDArray[np.bool_]

    @property
    def group_size(self) -> int:
        """Responses per prompt; the same for every group."""
        return int((self.group_R == 0).sum())

    @property
    def groups(self) -> int:
        """Number of prompts."""
        return int(self.group_R[-1]) + 1

    @property
    def sequence_tokens_R(self) -> Ints:
        """Tokens of prompt and response together."""
        return self.prompt_tokens.lengths + self.response_tokens.lengths


def collect(rollouts: Sequence[pa.Table], verdicts: pa.Table, group_size: int) -> Responses:
    """Responses from rollout tables and the verdicts on them, which must be in the same order.

    Raises:
        DataError: the tables name different responses, or a group is not whole.
    """
    table = pa.concat_tables(rollouts)
    names = list(zip(table["prompt_id"].to_pylist(), table["sample_index"].to_pylist(), strict=True))
    judged = list(zip(verdicts["prompt_id"].to_pylist(), verdicts["sample_index"].to_pylist(), strict=True))
    if names != judged:
        raise DataError(
            f"verdicts name {len(judged)} responses and rollouts {len(names)}, or in another order: verify again."
        )
    expected = [(names[row - row % group_size][0], row % group_size) for row in range(len(names))]
    for name, due in zip(names, expected, strict=True):
        if name != due:
            raise DataError(f"response {name}: {due} was due. Every group must have {group_size} responses, in order.")
    if len(names) % group_size:
        raise DataError(f"prompt {names[-1][0]}: its group has {len(names) % group_size} of {group_size} responses.")
    return Responses(
        prompt_tokens=_ragged(table["prompt_token_ids"]),
        response_tokens=_ragged(table["response_token_ids"]),
        engine_logp=_ragged(table["engine_logp"]),
        reward_R=verdicts["reward"].to_numpy(zero_copy_only=False).astype(np.float32),
        group_R=np.arange(len(names)) // group_size,
        truncated_R=np.array([reason == "length" for reason in table["finish_reason"].to_pylist()]),
    )


def _ragged(column: pa.ChunkedArray) -> Ragged:
    array = column.combine_chunks()
    return Ragged(array.flatten().to_numpy(zero_copy_only=False), np.append(0, np.cumsum(array.value_lengths())))


def group_order(groups: int, seed: Sequence[int]) -> Ints:
    """The order in which the groups of a stage are consumed."""
    return np.random.default_rng(list(seed)).permutation(groups)


def plan_batches(responses: Responses, responses_per_update: int, seed: Sequence[int]) -> list[Ints]:
    """The rows of each batch: a random permutation of whole groups, each used once.

    Args:
        responses: of the stage.
        responses_per_update: a multiple of the group size that divides the number of responses.
        seed: determines the permutation.
    """
    size = responses.group_size
    rows_R = (group_order(responses.groups, seed)[:, None] * size + np.arange(size)).reshape(-1)
    if len(rows_R) % responses_per_update or responses_per_update % size:
        raise DataError(
            f"optimize.responses_per_update: {responses_per_update} does not cut {len(rows_R)} responses "
            f"in groups of {size} into whole updates."
        )
    return list(rows_R.reshape(-1, responses_per_update))


def micro_batches(sequence_tokens_R: Ints, rows: Ints, token_budget: int) -> list[Ints]:
    """Rows of an update, sorted by length, cut so that no part has more tokens than the budget.

    A response that is longer than the budget by itself gets a part of its own.
    """
    by_length = rows[np.argsort(sequence_tokens_R[rows], kind="stable")]
    parts: list[list[int]] = []
    used = token_budget
    for row in by_length:
        tokens = int(sequence_tokens_R[row])
        if used + tokens > token_budget:
            parts.append([])
            used = 0
        parts[-1].append(int(row))
        used += tokens
    return [np.asarray(part) for part in parts]


def shares(parts: Sequence[Ints], sequence_tokens_R: Ints, processes: int) -> list[list[Ints]]:
    """An update's micro-batches for every process: equally many for each, those at one place of about one size.

    Parts are cut further where they do not go round; where there are too few responses for that, a part is empty.
    """
    nothing = np.zeros(0, dtype=np.int64)
    if processes == 1:
        return [list(parts) or [nothing]]
    dealt = list(parts)
    while not dealt or len(dealt) % processes:
        divisible = [place for place, part in enumerate(dealt) if len(part) > 1]
        if not divisible:
            dealt.append(nothing)
            continue
        largest = dealt.pop(max(divisible, key=lambda place: int(sequence_tokens_R[dealt[place]].sum())))
        dealt += [largest[::2], largest[1::2]]
    dealt.sort(key=lambda part: -int(sequence_tokens_R[part].sum()))
    rounds = [dealt[start : start + processes] for start in range(0, len(dealt), processes)]
    # Every second round the other way, so that no process always gets the largest.
    turned = [parts[::-1] if place % 2 else parts for place, parts in enumerate(rounds)]
    return [[parts[process] for parts in turned] for process in range(processes)]
