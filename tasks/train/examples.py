"""Responses of a stage, token by token, as the update that learned from them found them.

Which tokens the veto leaves out follows from the weights at the update, which nothing keeps: so a few updates of a
stage note it, of the best and the worst response of one group.
"""

from typing import Any

import numpy as np
import torch

from tasks.train import distributed
from tasks.train.advantages import Selection
from tasks.train.batches import Floats, Ints, Responses
from tasks.train.objective import ObjectiveResult
from tasks.train.outcome import Row
from tasks.train.tokens import TokenBatch

NOTED = 5
"""Number of updates of a stage that are noted."""
_FLAGS = ("clipped", "trigger", "vetoed", "rejected")
_COLUMNS = ("ratio", "logp", "behavior_logp", *_FLAGS)


def noted_updates(updates: int) -> list[int]:
    """Return which of a stage's updates are noted, from 0: the first, the last and evenly spaced ones between."""
    return sorted({round(place) for place in np.linspace(0, updates - 1, NOTED)})


class CloseUp:
    """Collects the micro-batches of an update and chooses two of its responses, the same in every process."""

    def __init__(self, responses: Responses, selection: Selection, rows: Ints) -> None:
        self._responses = responses
        self._advantage_R = selection.advantage_R.numpy()
        self._rows = selection.active_rows(rows)
        self._tokens: dict[int, Floats] = {}
        """Columns of this process's responses by row, each [columns, tokens]."""

    def add(self, rows: Ints, tokens: TokenBatch, result: ObjectiveResult) -> None:
        """Add a micro-batch, which consists of these rows."""
        if not len(rows):
            return
        flags = (result.clipped_T, result.trigger_T, result.vetoed_T, result.rejected_T)
        columns = (tokens.ratio_T, tokens.logp_T.detach(), tokens.behavior_logp_T, *flags)
        table = torch.stack([column.float() for column in columns]).cpu().numpy()
        ends = np.cumsum(self._responses.response_tokens.lengths_of(rows))
        self._tokens.update(zip(rows.tolist(), np.split(table, ends[:-1], axis=1), strict=True))

    def examples(self, place: Row) -> list[Row]:
        """Return the best and the worst response of a group, each with its tokens; every process must call this.

        It is the first group of the update with a vetoed token; else the first with different advantages, else the
        first. Of the worst responses it is the one with most vetoed tokens.

        Args:
            place: stage, update and staleness.
        """
        own = [self._tokens[row][_COLUMNS.index("vetoed")].sum() if row in self._tokens else 0 for row in self._rows]
        vetoed = distributed.all_reduce_sum(torch.tensor(own, dtype=torch.float64)).numpy()
        return [{**place, **self._example(row)} for row in self._chosen(vetoed)]

    def _chosen(self, vetoed: np.ndarray[Any, Any]) -> list[int]:
        if not len(self._rows):
            return []
        advantage, group = self._advantage_R[self._rows], self._responses.group_R[self._rows]
        groups = [group == number for number in dict.fromkeys(group.tolist())]
        differ = [own for own in groups if np.ptp(advantage[own]) > 0] or groups
        own = next((own for own in differ if vetoed[own].any()), differ[0])
        best = max(np.flatnonzero(own), key=lambda place: advantage[place])
        worst = max(np.flatnonzero(own), key=lambda place: (-advantage[place], vetoed[place]))
        return [int(self._rows[place]) for place in dict.fromkeys((best, worst))]

    def _example(self, row: int) -> Row:
        responses = self._responses
        length, reward = len(responses.response_tokens[row]), float(responses.reward_R[row])
        own = self._tokens.get(row, np.zeros((len(_COLUMNS), length), np.float32))
        table = distributed.all_reduce_sum(torch.from_numpy(own.astype(np.float64))).numpy()
        columns = dict(zip(_COLUMNS, table, strict=True))
        return {
            "reward": None if np.isnan(reward) else reward,
            "advantage": float(self._advantage_R[row]),
            "prompt_token_ids": responses.prompt_tokens[row].tolist(),
            "response_token_ids": responses.response_tokens[row].tolist(),
            **{name: columns[name].tolist() for name in _COLUMNS if name not in _FLAGS},
            **{name: columns[name].astype(bool).tolist() for name in _FLAGS},
        }
