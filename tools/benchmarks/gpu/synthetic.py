"""Models of real shapes with random weights, and rollouts with log-normal lengths.

Legend of shapes: T response tokens of a micro-batch.
"""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from tasks.models.packing import PACKED_ATTENTION
from tasks.models.scorer import MicroBatch, Scorer, pack
from tasks.train.backend import Backend, open_backend

Tokens = npt.NDArray[np.int64]
SHAPES = {
    "qwen2.5-1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "tiny": {
        "vocab_size": 2000,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}


def make_parser(text: str) -> argparse.ArgumentParser:
    """Return a parser with the options of both commands, whose help begins with a text."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="qwen2.5-1.5b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--median", type=float, default=600, help="median of response tokens")
    parser.add_argument("--longest", type=int, default=4096, help="largest number of response tokens")
    parser.add_argument("--budget", type=int, default=16384, help="tokens of a micro-batch of the project")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gib", type=float, default=40, help="memory for the longest response")
    parser.add_argument("--page", type=Path, help="Markdown file; its section between marks is written")
    return parser


def make_model(shape: str, attention: str, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """Return a model with random weights and without a stop token."""
    torch.manual_seed(0)
    config = Qwen2Config(**SHAPES[shape], tie_word_embeddings=True, max_position_embeddings=2**20, eos_token_id=None)
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=dtype)
    return model.eval()


def make_backend(
    shape: str, device: torch.device, chunk_tokens: int, checkpointing: bool = False, liger: bool = False
) -> Backend:
    """Return the torch backend of the trainer: bfloat16 on a GPU, with weights and moments in float32."""
    backend = SimpleNamespace(
        kind="torch",
        dtype="bfloat16" if device.type == "cuda" else "float32",
        gradient_checkpointing=checkpointing,
        liger=liger,
    )
    settings = SimpleNamespace(
        backend=backend, max_grad_norm=1.0, learning_rate=1e-6, adam_beta1=0.9, adam_beta2=0.999, weight_decay=0.0
    )
    scorer = Scorer(make_model(shape, PACKED_ATTENTION, device, torch.float32), chunk_tokens)
    return open_backend(scorer, settings)  # type: ignore[arg-type]  # It reads no other settings.


@dataclass(frozen=True)
class Rollouts:
    """Token ids of prompts and responses."""

    prompts: list[Tokens]
    responses: list[Tokens]

    @staticmethod
    def make(shape: str, count: int, median: float, longest: int) -> "Rollouts":
        """Return random rollouts. The logarithms of the response lengths have a standard deviation of 0.8."""
        random = np.random.default_rng(0)
        vocabulary = int(SHAPES[shape]["vocab_size"])
        lengths = np.clip(random.lognormal(np.log(median), 0.8, count), 1, longest).astype(int)
        prompts = [random.integers(0, vocabulary, int(n)) for n in random.integers(60, 200, count)]
        return Rollouts(prompts, [random.integers(0, vocabulary, int(n)) for n in lengths])

    @property
    def tokens(self) -> int:
        """Number of tokens of all prompts and responses."""
        return sum(map(len, self.prompts)) + sum(map(len, self.responses))

    def lengths(self) -> list[int]:
        """Return the number of tokens of each prompt with its response."""
        return [len(p) + len(r) for p, r in zip(self.prompts, self.responses, strict=True)]

    def micro_batches(self, budget: int) -> list[MicroBatch]:
        """Return packed micro-batches of rollouts that are sorted by length, as in the trainer."""
        lengths = self.lengths()
        order = np.argsort(lengths, kind="stable").tolist()
        parts = split_rows(order, lambda part: sum(lengths[row] for row in part), budget)
        return [pack([self.prompts[row] for row in part], [self.responses[row] for row in part]) for part in parts]


def split_rows(rows: Iterable[int], tokens: Callable[[list[int]], int], budget: int) -> list[list[int]]:
    """Split rows into consecutive parts with at most ``budget`` tokens, or a single row."""
    parts: list[list[int]] = [[]]
    for row in rows:
        if parts[-1] and tokens([*parts[-1], row]) > budget:
            parts.append([])
        parts[-1].append(row)
    return parts


def operations(shape: str, rollouts: Rollouts) -> float:
    """Return the floating-point operations of a forward and backward pass without padding and recomputation.

    There are six per weight and token, and those of causal attention. The output embedding counts for response tokens.
    """
    sizes = SHAPES[shape]
    hidden, layers, heads = sizes["hidden_size"], sizes["num_hidden_layers"], sizes["num_attention_heads"]
    kv = hidden // heads * sizes["num_key_value_heads"]
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * sizes["intermediate_size"]
    attention = 6 * hidden * layers * sum(length**2 for length in rollouts.lengths())
    head = 6 * hidden * sizes["vocab_size"] * sum(map(len, rollouts.responses))
    return 6.0 * layer * layers * rollouts.tokens + attention + head


def policy_gradient_loss(logp_T: Tensor) -> Tensor:
    """Return the loss of a policy gradient whose advantages are 1 and -1 in turn."""
    sign_T = torch.ones_like(logp_T)
    sign_T[::2] = -1
    return -((logp_T - logp_T.detach()).exp() * sign_T).sum()
