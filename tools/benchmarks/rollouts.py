"""Rollout tokens per second through the step that generates a shard, beside the engine alone.

    python -m tools.benchmarks rollouts

The step reads prompts and policy from a store, tokenises, samples in parts, decodes texts, writes Parquet with digests
and keeps parts for a restart. The engine gets the same requests in the same parts, made before, with the step's own
seeds, so that both make the same tokens. Both find the policy loaded.
"""

import itertools
import tempfile
import time
from pathlib import Path

import torch

from tasks.data.arithmetic import split
from tasks.models.loading import OPTIMIZER, load_tokenizer
from tasks.models.step import prepare_policy
from tasks.rollout.engine import Sampling, engine_of, ignore_progress
from tasks.rollout.requests import build_requests
from tasks.rollout.step import generate_shard, parts
from tasks.settings import ArithmeticSettings, PolicySettings, RolloutSettings, TinyPolicySettings, WarmStartSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import PROMPTS, read_table, write_table
from tools.benchmarks.measured import Measured, in_turn, ratio

PROMPT_COUNT = 256
SETTINGS = RolloutSettings(responses_per_prompt=8, max_new_tokens=32)
WARM = WarmStartSettings(working_updates=60, guessing_updates=20)
STEP, ENGINE = "the step", "the engine alone"
FINDING = (
    "cProfile: besides the engine, the step tokenises prompts, decodes responses, writes Parquet and waits for the "
    "disk. It tokenises all prompts together, which takes less time than one by one."
)


def base_policy(folder: Path, arithmetic: ArithmeticSettings, warm: WarmStartSettings = WARM) -> Path:
    """A default one, warm-started on some arithmetic, in a folder below ``folder``."""
    store, tiny = Store.open(str(folder / "policies")), TinyPolicySettings(warm_start=warm)
    return store.path(prepare_policy(store, PolicySettings(tiny=tiny), arithmetic, "", 0), without=OPTIMIZER)


def policy_and_prompts(store: Store) -> tuple[ArtifactRef, ArtifactRef]:
    """A tiny policy that mostly stops by itself, and a shard of prompts."""
    tiny = TinyPolicySettings(warm_start=WARM)
    policy = prepare_policy(store, PolicySettings(tiny=tiny), ArithmeticSettings(), "", 0)
    rows = [
        {"prompt_id": one.prompt_id, "prompt": one.prompt, "answer": str(one.answer), "level": one.level, "chat": False}
        for one in split([2], 0.1)[0][:PROMPT_COUNT]
    ]
    with store.write("prompts", settings={}, parents={}, seed=0) as draft:
        write_table(draft.path / "prompts.parquet", rows, PROMPTS)
    return policy, draft.ref


def measure(repeats: int) -> Measured:
    """Both in turn."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(str(Path(folder) / "store"))
        policy, prompts = policy_and_prompts(store)
        weights = store.path(policy, without=OPTIMIZER)
        rows = read_table(store.path(prompts) / "prompts.parquet").to_pylist()
        tokenizer = load_tokenizer(weights)
        engine = engine_of(weights, policy.digest, SETTINGS.engine)
        numbers = itertools.count()
        counted: dict[str, set[int]] = {STEP: set(), ENGINE: set()}

        samples, limits = range(SETTINGS.responses_per_prompt), (engine.context_tokens, SETTINGS.max_new_tokens)
        requests = [
            build_requests(tokenizer, part, samples, "stage 0", 0, *limits)
            for part in parts(rows, SETTINGS.responses_per_prompt, SETTINGS.responses_per_part)
        ]

        def alone() -> float:
            start, tokens = time.perf_counter(), 0
            for part in requests:
                made = engine.generate(part, Sampling(SETTINGS.max_new_tokens, SETTINGS.temperature), ignore_progress)
                tokens += sum(len(one.token_ids) for one in made)
            counted[ENGINE].add(tokens)
            return tokens / (time.perf_counter() - start)

        def step() -> float:
            # Work of its own: otherwise the parts of the repeat before would be found.
            fresh = Store(store.ref, "generate", "benchmark", str(next(numbers)))
            start = time.perf_counter()
            made = generate_shard(fresh, SETTINGS, policy, prompts, 0, 0)
            took = time.perf_counter() - start
            tokens = sum(map(len, read_table(store.path(made) / "rollouts.parquet")["response_token_ids"].to_pylist()))
            counted[STEP].add(tokens)
            return tokens / took

        step(), alone()
        values = in_turn({STEP: step, ENGINE: alone}, repeats, "rollouts")
        assert counted[STEP] == counted[ENGINE], counted
    return Measured(
        name="rollouts",
        what=f"Generation of {PROMPT_COUNT * SETTINGS.responses_per_prompt} responses by a tiny policy.",
        unit="tokens/s",
        ways=values,
        ratios=[ratio(values, STEP, ENGINE, 0.95)],
        facts={"responses": PROMPT_COUNT * SETTINGS.responses_per_prompt, "threads": torch.get_num_threads()},
        finding=FINDING,
    )
