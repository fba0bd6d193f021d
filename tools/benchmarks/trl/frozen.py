"""Rollouts that both trainers train on, and the model that they train.

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
    """The shape of a Qwen2 model with random weights."""

    vocabulary: int
    width: int
    layers: int
    heads: int = 4

    def model(self, attention: str) -> PreTrainedModel:
        """Return a model in float32, always with the same weights."""
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
        """Return a tokenizer whose tokens are the numbers from 0, each written as a word."""
        words = Tokenizer(models.WordLevel({str(number): number for number in range(self.vocabulary)}, unk_token="0"))
        return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="0", pad_token="0", padding_side="left")


@dataclass(frozen=True)
class FrozenRollouts:
    """Random prompts and responses, group after group; every second response of a group is correct."""

    shape: Shape
    groups: int
    group_size: int
    median: float
    """Median of the response tokens."""
    longest: int
    """Largest number of response tokens."""

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
        """Token ids of the prompt of every response."""
        return self._tokens[0]

    @property
    def responses(self) -> list[npt.NDArray[np.int64]]:
        """Token ids of every response, with the stop token."""
        return self._tokens[1]

    @property
    def tokens(self) -> int:
        """Number of tokens of all prompts and responses, without padding."""
        return sum(map(len, self.prompts)) + sum(map(len, self.responses))

    def reward(self, row: int) -> float:
        """Return the reward of a response."""
        return float(row % 2)

    def as_responses(self) -> Responses:
        """Return the responses as the input of the trainer, with log-probabilities of the engine that it ignores."""
        count = len(self.responses)
        response_tokens = ragged(self.responses)
        return Responses(
            prompt_tokens=ragged(self.prompts),
            response_tokens=response_tokens,
            engine_logp=Ragged(np.zeros(len(response_tokens.flat), np.float32), response_tokens.offsets),
            reward_R=np.array([self.reward(row) for row in range(count)], np.float32),
            group_R=np.arange(count) // self.group_size,
            truncated_R=np.zeros(count, bool),
        )


def ragged(rows: list[npt.NDArray[np.int64]]) -> Ragged:
    """Concatenate rows of different lengths."""
    return Ragged(np.concatenate(rows), np.append(0, np.cumsum([len(row) for row in rows])))
