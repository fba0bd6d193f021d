"""Rollouts that both sides train on, and the model they train.

Legend of shapes: R responses.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config

from tasks.train.batches import Ragged, Responses

END = 0
_PROMPT = (16, 64)
SIGMA = 0.8
"""Standard deviation of the logarithm of a response's length."""


@dataclass(frozen=True)
class Shape:
    """The shape of a Qwen2 with random weights."""

    vocabulary: int
    width: int
    layers: int
    heads: int = 4

    def model(self, attention: str) -> PreTrainedModel:
        """A model in float32, with the same weights every time."""
        torch.manual_seed(0)
        config = Qwen2Config(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            intermediate_size=4 * self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads // 2,
            tie_word_embeddings=True,
            max_position_embeddings=2**20,
            bos_token_id=None,
            eos_token_id=END,
            pad_token_id=END,
        )
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, attn_implementation=attention, dtype=torch.float32
        )
        return model

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """A word per token."""
        words = Tokenizer(models.WordLevel({str(number): number for number in range(self.vocabulary)}, unk_token="0"))
        return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="0", pad_token="0", padding_side="left")


@dataclass(frozen=True)
class Frozen:
    """Responses to prompts, group after group; every second one of a group is right."""

    shape: Shape
    groups: int
    group_size: int
    median: float
    """Response tokens."""
    longest: int

    @cached_property
    def _tokens(self) -> tuple[list[npt.NDArray[np.int64]], list[npt.NDArray[np.int64]]]:
        random = np.random.default_rng(0)
        count = self.groups * self.group_size
        lengths = np.clip(random.lognormal(np.log(self.median), SIGMA, count), 2, self.longest).astype(int)
        prompts = [random.integers(1, self.shape.vocabulary, int(n)) for n in random.integers(*_PROMPT, self.groups)]
        responses = [np.append(random.integers(1, self.shape.vocabulary, int(n) - 1), END) for n in lengths]
        return [prompts[row // self.group_size] for row in range(count)], responses

    @property
    def prompts(self) -> list[npt.NDArray[np.int64]]:
        """The prompt of every response."""
        return self._tokens[0]

    @property
    def responses(self) -> list[npt.NDArray[np.int64]]:
        """Token ids, with the end."""
        return self._tokens[1]

    @property
    def tokens(self) -> int:
        """Real ones, of prompts and responses together."""
        return sum(map(len, self.prompts)) + sum(map(len, self.responses))

    def reward(self, row: int) -> float:
        return float(row % 2)

    def collected(self) -> Responses:
        """The responses as the trainer takes them; the engine's log-probabilities are not looked at."""
        count = len(self.responses)
        flat = ragged(self.responses)
        return Responses(
            prompt_tokens=ragged(self.prompts),
            response_tokens=flat,
            engine_logp=Ragged(np.zeros(len(flat.flat), np.float32), flat.offsets),
            reward_R=np.array([self.reward(row) for row in range(count)], np.float32),
            group_R=np.arange(count) // self.group_size,
            truncated_R=np.zeros(count, bool),
        )


def ragged(rows: list[npt.NDArray[np.int64]]) -> Ragged:
    """Rows one after the other."""
    return Ragged(np.concatenate(rows), np.append(0, np.cumsum([len(row) for row in rows])))
