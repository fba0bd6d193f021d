"""Generated tokens per second of the project's engine and of transformers' continuous batching."""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

from tasks.rollout.engine import Request, Sampling, ignore_progress
from tasks.rollout.transformers_engine import TransformersEngine
from tools.benchmarks.gpu.device import measure_working
from tools.benchmarks.gpu.synthetic import SHAPES, make_model

_RESPONSES_PER_PROMPT = 8


def generation(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Return the median rate of both with the same prompts and lengths, or a text about the failure."""
    random = np.random.default_rng(0)
    vocabulary = int(SHAPES[options.shape]["vocab_size"])
    groups = options.responses // _RESPONSES_PER_PROMPT
    distinct_prompts = [random.integers(0, vocabulary, 128).tolist() for _ in range(groups)]
    prompts = [prompt for prompt in distinct_prompts for _ in range(_RESPONSES_PER_PROMPT)]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = make_model(options.shape, "sdpa", device, dtype)
    requests = [Request("p", i, prompt, i) for i, prompt in enumerate(prompts)]

    def ours() -> int:
        engine = TransformersEngine(model, [], len(requests))
        responses = engine.generate(requests, Sampling(options.new_tokens), ignore_progress)
        return sum(len(response.token_ids) for response in responses)

    def continuous() -> int:
        config = GenerationConfig(max_new_tokens=options.new_tokens, do_sample=True, eos_token_id=-1, pad_token_id=0)
        responses = model.generate_batch(prompts, generation_config=config)
        return sum(len(response.generated_tokens) for response in responses.values())

    def rate(generate: Callable[[], int]) -> float:
        start = time.perf_counter()
        return generate() / (time.perf_counter() - start)

    ways = {"engine": partial(rate, ours), "transformers' continuous batching": partial(rate, continuous)}
    rates, failed = measure_working(ways, 1 + options.repeats)  # The first generation warms up.
    return {**{way: statistics.median(values[1:]) for way, values in rates.items()}, **failed}
