"""Generation by the engine beside model.generate, by batch size.

    python -m tools.benchmarks generation

Both have the same policy and prompts and stop at its stop token, so that both decode comparable responses; their own
seeds make other tokens. Only tokens up to the stop token count.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tasks.data.arithmetic import split
from tasks.models.loading import load_model, load_tokenizer
from tasks.rollout.engine import Request, Sampling, sampling_seed
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import ArithmeticSettings
from tools.benchmarks.measured import Measured, in_turn, ratio
from tools.benchmarks.rollouts import PROMPT_COUNT, base_policy

RESPONSES_PER_PROMPT, MAX_NEW_TOKENS = 8, 32
BATCHES = (64, 256, 512)


def measure(repeats: int) -> Measured:
    """Both with every batch size, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        policy = base_policy(Path(folder), ArithmeticSettings())
        tokenizer, model = load_tokenizer(policy), load_model(policy)
    requests = [
        Request(one.prompt_id, i, tokenizer(one.prompt)["input_ids"], sampling_seed(0, "benchmark", one.prompt_id, i))
        for one in split([2], 0.1)[0][:PROMPT_COUNT]
        for i in range(RESPONSES_PER_PROMPT)
    ]
    prompts = torch.tensor([request.prompt_token_ids for request in requests])
    end = tokenizer.eos_token_id

    def ours(batch: int) -> int:
        engine = TransformersEngine(model, [end], batch)
        responses = engine.generate(requests, Sampling(MAX_NEW_TOKENS), lambda *_: None)
        return sum(len(response.token_ids) for response in responses)

    def theirs(batch: int) -> int:
        tokens = 0
        for start in range(0, len(prompts), batch):
            part = prompts[start : start + batch]
            made = model.generate(
                part, attention_mask=torch.ones_like(part), do_sample=True, top_k=0, max_new_tokens=MAX_NEW_TOKENS
            )[:, part.shape[1] :]
            tokens += int(((made == end).cumsum(1) - (made == end).long() == 0).sum())
        return tokens

    def rate(work: Callable[[int], int], batch: int) -> Callable[[], float]:
        def timed() -> float:
            start = time.perf_counter()
            return work(batch) / (time.perf_counter() - start)

        return timed

    pairs = {batch: (f"the engine, batch {batch}", f"model.generate, batch {batch}") for batch in BATCHES}
    ways = {
        way: rate(work, batch)
        for batch, names in pairs.items()
        for way, work in zip(names, (ours, theirs), strict=True)
    }
    for warm in ways.values():
        warm()
    values = in_turn(ways, repeats, "generation")
    return Measured(
        name="generation",
        what=f"Generation of {len(requests):,} responses by a tiny policy.",
        unit="tokens/s",
        ways=values,
        ratios=[ratio(values, *names) for names in pairs.values()],
        facts={"responses": len(requests), "threads": torch.get_num_threads()},
    )
