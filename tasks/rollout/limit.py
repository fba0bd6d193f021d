"""A warning where nearly all responses end at the limit of tokens, with the token that should have stopped them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from transformers import PreTrainedTokenizerBase

from tasks.formats import percent
from tasks.logs import logger

NEARLY_ALL = 0.9
"""Share of the responses; a warning is given where at least so many end at the limit."""
_MOST = 0.5
"""Share of the responses at the limit; a special token in at least so many is taken for the end of their turn."""


class AtLimit:
    """Counts responses, their tokens, and those that are cut at the limit of tokens.

    Args:
        tokenizer: the policy's.
        stop_ids: tokens that end a response.
        limit: as it is named to the user, such as ``rollout.max_new_tokens 512``.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_ids: Iterable[int], limit: str) -> None:
        self._tokenizer, self._stop_ids, self._limit = tokenizer, list(stop_ids), limit
        added = tokenizer.added_tokens_decoder
        self._special = np.array(
            sorted({one for one, token in added.items() if token.special} - set(self._stop_ids)), dtype=np.int64
        )
        self.responses = self.cut = self.tokens = 0
        self._first: Counter[int] = Counter()

    def add(self, token_ids: npt.NDArray[np.int32], finish_reason: str) -> None:
        """Count a response."""
        self.responses += 1
        self.tokens += len(token_ids)
        if finish_reason == "length":
            self.cut += 1
            places = np.flatnonzero(np.isin(token_ids, self._special))
            if len(places):
                self._first[int(token_ids[places[0]])] += 1

    def add_table(self, rollouts: pa.Table) -> None:
        """Count rows of the rollouts table."""
        ended = rollouts.filter(pc.not_equal(rollouts["finish_reason"], "length"))
        self.responses += ended.num_rows
        self.tokens += pc.sum(pc.list_value_length(ended["response_token_ids"])).as_py() or 0
        for ids in rollouts.filter(pc.equal(rollouts["finish_reason"], "length"))["response_token_ids"]:
            self.add(ids.values.to_numpy(), "length")

    def facts(self, title: str) -> dict[str, Any]:
        """Return facts for a manifest: a warning, which is logged too, where nearly all responses end at the limit.

        Args:
            title: of the work, which the warning begins with.
        """
        if self.cut < max(1, NEARLY_ALL * self.responses):
            return {}
        stops = ", ".join(map(self._named, self._stop_ids))
        warning = (
            f"{title}: {percent(self.cut / self.responses)} of {self.responses} responses end at {self._limit}, "
            f"without a stop token ({stops}). {self._advice()}"
        )
        logger().warning("%s", warning)
        return {"warning": warning}

    def _advice(self) -> str:
        for token, count in self._first.most_common(1):
            if count >= _MOST * self.cut:
                return (
                    f"{percent(count / self.cut)} of those go on after {self._named(token)}: to stop there, add "
                    f"{token} to eos_token_id in the generation_config.json of the base policy."
                )
        name = self._limit.split()[0]
        return f"Raise {name}, or ask for a shorter answer, or for an end, as the policy was trained to write it."

    def _named(self, token: int) -> str:
        return f"{self._tokenizer.convert_ids_to_tokens(token)} {token}"
