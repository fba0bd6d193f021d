"""Tokens per second of generated responses: the project's engine beside transformers' continuous batching."""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

from tasks.rollout.engine import Request, Sampling
from tasks.rollout.transformers_engine import TransformersEngine
from tools.benchmarks.gpu.made import SHAPES, make_model

_RESPONSES_PER_PROMPT = 8


def generation(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Both on the same prompts and lengths, in turn; a way that fails says why."""
    random = np.random.default_rng(0)
    vocabulary = int(SHAPES[options.shape]["vocab_size"])
    distinct = [random.integers(0, vocabulary, 128).tolist() for _ in range(options.responses // _RESPONSES_PER_PROMPT)]
    prompts = [prompt for prompt in distinct for _ in range(_RESPONSES_PER_PROMPT)]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = make_model(options.shape, "sdpa", device, dtype)
    requests = [Request("p", i, prompt, i) for i, prompt in enumerate(prompts)]

    def ours() -> int:
        engine = TransformersEngine(model, [], len(requests))
        return sum(
            len(one.token_ids) for one in engine.generate(requests, Sampling(options.new_tokens), lambda *_: None)
        )

    def continuous() -> int:
        config = GenerationConfig(max_new_tokens=options.new_tokens, do_sample=True, eos_token_id=-1, pad_token_id=0)
        made = model.generate_batch(prompts, generation_config=config)
        return sum(len(one.generated_tokens) for one in made.values())

    ways: dict[str, Callable[[], int]] = {"engine": ours, "transformers' continuous batching": continuous}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    failed: dict[str, str] = {}
    for repeat in range(options.repeats + 1):
        for way, generate in ways.items():
            if way in failed:
                continue
            start = time.perf_counter()
            try:
                tokens = generate()
            except (RuntimeError, ImportError) as error:  # out of memory, or a kernel that is missing
                failed[way] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                continue
            if repeat:
                rates[way].append(tokens / (time.perf_counter() - start))
    return {way: failed[way] if way in failed else statistics.median(rates[way]) for way in ways}
