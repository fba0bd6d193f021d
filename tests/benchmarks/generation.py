"""Generation by the engine beside model.generate on the same policy, prompts and batch sizes.

    python -m tests.benchmarks.generation [--append FILE]

The policy is a tiny one that was warm-started; both stop at its stop token, so that both decode comparable responses.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from tasks.artifacts import Store
from tasks.policy.loading import load_model, load_tokenizer
from tasks.policy.step import prepare_policy
from tasks.prompts.arithmetic import split
from tasks.report.tables import render_markdown
from tasks.rollout.engine import Request, Sampling, sampling_seed
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import ArithmeticSettings, PolicySettings, TinyPolicySettings, WarmStartSettings

MAX_NEW_TOKENS = 32
COLUMNS = ("batch", "engine, tokens/s", "model.generate, tokens/s", "ratio")


def timed(work: Callable[[], int]) -> float:
    """Tokens per second of work that returns its number of tokens."""
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--append", type=Path, help="a Markdown file that gets the table")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warm = TinyPolicySettings(warm_start=WarmStartSettings(working_updates=60, guessing_updates=20))
    store = Store.open(tempfile.mkdtemp())
    folder = store.path(prepare_policy(store, PolicySettings(tiny=warm), ArithmeticSettings(), "", 0))
    tokenizer, model = load_tokenizer(folder), load_model(folder)
    chosen = split([2], 0.1)[0][: options.responses // 8]
    requests = [
        Request(p.prompt_id, i, tokenizer(p.prompt)["input_ids"], sampling_seed(0, "benchmark", p.prompt_id, i))
        for p in chosen
        for i in range(8)
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

    table = Table(*COLUMNS)
    for batch in (64, 256, 512):
        ours(batch), theirs(batch)
        pairs = [(timed(lambda b=batch: ours(b)), timed(lambda b=batch: theirs(b))) for _ in range(options.repeats)]
        ratios = [a / b for a, b in pairs]
        mine, other = np.median(pairs, axis=0)
        spread = f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        table.add_row(str(batch), f"{mine:,.0f}", f"{other:,.0f}", spread)
    text = (
        f"`python -m tests.benchmarks.generation`: {len(requests)} responses of a tiny policy, "
        f"{options.repeats} times in turn, {options.threads} threads, "
        f"torch {torch.__version__}; medians, and the ratios' range."
        f"\n\n{render_markdown(table)}\n"
    )
    print(text)
    if options.append:
        with options.append.open("a", encoding="utf-8") as file:
            file.write(f"\n## Generation\n\n{text}")


if __name__ == "__main__":
    main()
