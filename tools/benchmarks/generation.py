"""Generated tokens per second of the engine and of model.generate, by batch size.

    python -m tools.benchmarks generation

Both sample from the same policy and prompts, and stop at the stop token. Their seeds differ, so their tokens differ
too. Only the tokens up to the stop token count.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tasks.models.loading import load_model, load_tokenizer
from tasks.rollout.engine import Request, Sampling, ignore_progress
from tasks.rollout.step import sampling_seed
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import ArithmeticSettings
from tools.benchmarks.measurement import Measurement, measure_interleaved, ratio
from tools.benchmarks.rollouts import PROBLEMS, base_policy

RESPONSES_PER_PROMPT, MAX_NEW_TOKENS = 8, 32
BATCHES = (64, 256, 512)


def measure(repeats: int) -> Measurement:
    """Measure both with every batch size."""
    with tempfile.TemporaryDirectory() as folder:
        policy = base_policy(Path(folder), ArithmeticSettings())
        tokenizer, model = load_tokenizer(policy), load_model(policy)
    requests = [
        Request(one.prompt_id, i, tokenizer(one.prompt)["input_ids"], sampling_seed(0, "benchmark", one.prompt_id, i))
        for one in PROBLEMS
        for i in range(RESPONSES_PER_PROMPT)
    ]
    prompts = torch.tensor([request.prompt_token_ids for request in requests])
    end = tokenizer.eos_token_id

    def ours(batch: int) -> int:
        engine = TransformersEngine(model, [end], batch)
        responses = engine.generate(requests, Sampling(MAX_NEW_TOKENS), ignore_progress)
        return sum(len(response.token_ids) for response in responses)

    def theirs(batch: int) -> int:
        tokens = 0
        for start in range(0, len(prompts), batch):
            part = prompts[start : start + batch]
            sampled_BT = model.generate(
                part, attention_mask=torch.ones_like(part), do_sample=True, top_k=0, max_new_tokens=MAX_NEW_TOKENS
            )[:, part.shape[1] :]
            end_BT = sampled_BT == end
            tokens += int((end_BT.cumsum(1) - end_BT.long() == 0).sum())
        return tokens

    def tokens_per_second(generate: Callable[[int], int], batch: int) -> float:
        start = time.perf_counter()
        return generate(batch) / (time.perf_counter() - start)

    pairs = {batch: (f"the engine, batch {batch}", f"model.generate, batch {batch}") for batch in BATCHES}
    ways = {
        name: partial(tokens_per_second, generate, batch)
        for batch, names in pairs.items()
        for name, generate in zip(names, (ours, theirs), strict=True)
    }
    for warm_up in ways.values():
        warm_up()
    values = measure_interleaved(ways, repeats, "generation")
    return Measurement(
        name="generation",
        what=f"Generation of {len(requests):,} responses by a tiny policy.",
        unit="tokens/s",
        ways=values,
        ratios=[ratio(values, *names) for names in pairs.values()],
        facts={"responses": len(requests), "threads": torch.get_num_threads()},
    )
