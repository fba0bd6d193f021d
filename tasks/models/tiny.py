"""A tiny Qwen3-style policy with a character tokenizer, warm-started on arithmetic.

Supervised learning teaches it two strategies: to guess at once, mostly, and to show the working, which is right more
often. Reinforcement learning then selects the better one; it teaches little new arithmetic.
"""

import math
import re

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tasks.data.arithmetic import CHARACTERS, Form, Problem
from tasks.models.packing import PACKED_ATTENTION
from tasks.models.scorer import Scorer, pack
from tasks.process.logs import bar
from tasks.settings import TinyPolicySettings, WarmStartSettings

_PAD, _END = "<pad>", "<end>"
_CHUNK_TOKENS = 4096
_RISE_UPDATES = 20


def build_tokenizer(form: Form) -> PreTrainedTokenizerFast:
    """Build a tokenizer with a token for each character, for both ends of an answer, and two special tokens."""
    brackets = [bracket for bracket in (form.opening, form.closing) if bracket not in CHARACTERS]
    texts = [form.opening, *CHARACTERS, *brackets[1:]]
    vocabulary = {token: index for index, token in enumerate([_PAD, _END, *texts])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex("|".join([*map(re.escape, brackets), r"[\s\S]"])), behavior="isolated"
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(_PAD, special=True), AddedToken(_END, special=True)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=_PAD, eos_token=_END, clean_up_tokenization_spaces=False
    )


def build_model(settings: TinyPolicySettings, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build a randomly initialised model, with packed attention, whose weights depend on the seed alone."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.key_value_heads,
        head_dim=settings.hidden_size // settings.heads,
        max_position_embeddings=settings.context_tokens,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.set_attn_implementation(PACKED_ATTENTION)
    return model


def warm_start(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    problems: list[Problem],
    settings: WarmStartSettings,
    seed: int,
    form: Form,
) -> float:
    """Train the model on solutions, then on solutions and guesses; return the last cross-entropy per token.

    The optimizer is AdamW, with a short linear warm-up and a cosine decay; the loss is over response tokens alone.
    """
    total = settings.working_updates + settings.guessing_updates
    scorer = Scorer(model, _CHUNK_TOKENS)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.01, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda update: min(1.0, (update + 1) / _RISE_UPDATES) * (1 + math.cos(math.pi * update / max(1, total))) / 2,
    )
    random = np.random.default_rng([seed, 1])
    loss = math.nan
    model.train()
    with bar("warm start", total) as progress:
        for update in range(total):
            guess_share = 0.0 if update < settings.working_updates else settings.guess_share
            prompts, responses = _examples(problems, settings, guess_share, random, form)
            logp_T, _ = scorer(pack(tokenizer(prompts)["input_ids"], tokenizer(responses)["input_ids"]))
            optimizer.zero_grad()
            cross_entropy = -logp_T.mean()
            cross_entropy.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            loss = cross_entropy.item()
            progress.advance(note=f"cross-entropy {loss:.3f}")
    model.eval()
    return loss


def _examples(
    problems: list[Problem], settings: WarmStartSettings, guess_share: float, random: np.random.Generator, form: Form
) -> tuple[list[str], list[str]]:
    """Draw the prompts and responses of an update."""
    count = settings.examples_per_update
    chosen = [problems[index] for index in random.integers(len(problems), size=count)]
    guesses = random.random(count) < guess_share
    offsets = random.integers(-settings.guess_spread, settings.guess_spread + 1, size=count)
    responses = [
        problem.solution(problem.answer + int(offset) if guess else None, form) + _END
        for problem, guess, offset in zip(chosen, guesses, offsets, strict=True)
    ]
    return [problem.prompt for problem in chosen], responses
